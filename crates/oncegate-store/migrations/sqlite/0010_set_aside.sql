-- What guards at the door set aside has more kinds than one. See 0003 and 0005 for the way.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'OR parked = ''other_environment''',
    'OR parked = ''other_environment'' OR parked = ''machine_mail'' OR parked = ''sender''')
    WHERE type = 'table' AND name = 'deliveries';
UPDATE sqlite_schema SET sql = replace(sql, '''skipped_slots'')', '''skipped_slots'', ''sender_limit'')')
    WHERE type = 'table' AND name = 'notices';
PRAGMA writable_schema = RESET;

-- When the last events of one sender were accepted: one row for each, found by a keyed hash, so that no address stands
-- here.
CREATE TABLE senders (
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    sender_hash  BLOB NOT NULL CHECK (length(sender_hash) = 16),
    counted      TEXT NOT NULL CHECK (json_valid(counted)),
    at           INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, sender_hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX senders_by_date ON senders (at);
