-- For a list of more than two words in a CHECK SQLite makes a table, fills it and throws it away, with every row that is
-- written: a sixth of all that a claim costs the writer. One by one the same words are a few comparisons. See 0003 for
-- the way; what the tables take stays as it was.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (processing_state IN (''none'', ''processing'', ''done'', ''error''))',
    'CHECK (processing_state = ''processing'' OR processing_state = ''done'' OR processing_state = ''none'' OR processing_state = ''error'')')
    WHERE type = 'table' AND name = 'claims';
UPDATE sqlite_schema SET sql = replace(sql,
    'parked IN (''needs_replay'', ''loop_suspected'', ''incident'', ''reset'', ''restored'', ''repeat'')',
    'parked = ''needs_replay'' OR parked = ''loop_suspected'' OR parked = ''incident'' OR parked = ''reset'' OR parked = ''restored'' OR parked = ''repeat''')
    WHERE type = 'table' AND name = 'claims';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (outcome IN (''in_flight'', ''succeeded'', ''failed'', ''unknown''))',
    'CHECK (outcome = ''in_flight'' OR outcome = ''succeeded'' OR outcome = ''failed'' OR outcome = ''unknown'')')
    WHERE type = 'table' AND name = 'step_calls';
UPDATE sqlite_schema SET sql = replace(sql,
    'CHECK (verdict IN (''accepted'', ''duplicate'', ''mismatch'', ''rejected'', ''unverified'', ''released''))',
    'CHECK (verdict = ''accepted'' OR verdict = ''duplicate'' OR verdict = ''mismatch'' '
    || 'OR verdict = ''rejected'' OR verdict = ''unverified'' OR verdict = ''released'')')
    WHERE type = 'table' AND name = 'deliveries';
PRAGMA writable_schema = RESET;
