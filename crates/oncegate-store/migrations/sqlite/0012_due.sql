-- What is due is looked for in each automation apart, and what has not been tried apart from what has: a long queue of
-- one that is paused, or whose target has no room, is not read in search of what may start.
DROP INDEX claims_due;
CREATE INDEX claims_due ON claims (automation_id, (attempt > 0), due_at) WHERE due_at IS NOT NULL AND flow = 1;
