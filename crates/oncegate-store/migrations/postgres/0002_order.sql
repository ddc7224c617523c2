-- Whose turn it is on a record: what oncegate runs itself and is not done, in order of arrival.
CREATE INDEX claims_in_line ON claims (workspace_id, record, position)
    WHERE record IS NOT NULL AND flow AND processing_state <> 'done';
