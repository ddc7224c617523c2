-- What a claim agrees in with others of its automation, which one it repeats, and what its record says about itself.

-- A word more for why a claim is parked; see 0003.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''reset'', ''restored'')', '''reset'', ''restored'', ''repeat'')')
    WHERE type = 'table' AND name = 'claims';
PRAGMA writable_schema = RESET;

-- Keyed hashes: they say whether two are equal, and nothing else.
ALTER TABLE claims ADD COLUMN likeness BLOB CHECK (likeness IS NULL OR length(likeness) = 16);
ALTER TABLE claims ADD COLUMN repeat_of BLOB CHECK (repeat_of IS NULL OR length(repeat_of) = 16);
ALTER TABLE claims ADD COLUMN identity BLOB CHECK (identity IS NULL OR length(identity) = 16);
-- A repeat has no repeats of its own.
CREATE INDEX claims_by_likeness ON claims (workspace_id, automation_id, likeness, created_at)
    WHERE likeness IS NOT NULL AND repeat_of IS NULL;

-- What names one sending of an event: one that was sent under several comes from a hook that is registered more than once.
ALTER TABLE deliveries ADD COLUMN delivery_id TEXT;
