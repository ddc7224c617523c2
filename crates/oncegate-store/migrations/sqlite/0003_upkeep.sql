-- Backups, restores, and payloads that go some time after done.

-- A word more for why a claim is parked. A CHECK cannot be altered; this is the way that SQLite's own documentation
-- gives for loosening one (ALTER TABLE, "Making Other Kinds Of Table Schema Changes"), and no row is rewritten.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''reset'')', '''reset'', ''restored'')') WHERE type = 'table' AND name = 'claims';
PRAGMA writable_schema = RESET;

-- When the payload was removed; 0: there was none when its time came.
ALTER TABLE claims ADD COLUMN payload_removed_at INTEGER;
CREATE INDEX claims_with_payload ON claims (automation_id, done_at) WHERE done_at IS NOT NULL AND payload_removed_at IS NULL;
-- A key that is run again after its retention, or by its caller after a reset, brings a new one.
CREATE TRIGGER payload_is_back AFTER INSERT ON payloads
BEGIN UPDATE claims SET payload_removed_at = NULL WHERE id = NEW.claim_row AND payload_removed_at IS NOT NULL; END;
