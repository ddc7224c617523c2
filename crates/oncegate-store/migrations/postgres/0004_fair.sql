-- What is due is looked for in each workspace apart, so that a long queue of one does not stand before the others.
DROP INDEX claims_due;
CREATE INDEX claims_due ON claims (workspace_id, due_at, position) WHERE due_at IS NOT NULL AND flow;
