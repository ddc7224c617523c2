-- Whose turn it is on a record: what oncegate runs itself and is not done, in order of arrival.
CREATE INDEX claims_in_line ON claims (workspace_id, record)
    WHERE record IS NOT NULL AND flow = 1 AND processing_state <> 'done';
