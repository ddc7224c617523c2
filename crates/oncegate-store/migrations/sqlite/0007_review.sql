-- A word more for why a claim is parked; see 0003 and 0005.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'OR parked = ''repeat''', 'OR parked = ''repeat'' OR parked = ''review''')
    WHERE type = 'table' AND name = 'claims';
PRAGMA writable_schema = RESET;
