-- A poll that fails again and again is told. See 0003 for the way.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''sender_limit'')', '''sender_limit'', ''poll_fails'')')
    WHERE type = 'table' AND name = 'notices';
PRAGMA writable_schema = RESET;
