-- Where sources stand that oncegate itself looks at: a schedule goes on from there after a restart, and of nodes that
-- look at once only the one that finds the version it saw moves it.
CREATE TABLE source_positions (
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    source       TEXT NOT NULL,
    -- Counts its moves.
    version      INTEGER NOT NULL CHECK (version >= 1),
    value        TEXT NOT NULL CHECK (json_valid(value)),
    moved_at     INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, source)
) STRICT, WITHOUT ROWID;

-- What a schedule did not run, and why. See 0003 for the way.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''no_runner'')', '''no_runner'', ''missed_slots'', ''skipped_slots'')')
    WHERE type = 'table' AND name = 'notices';
PRAGMA writable_schema = RESET;
