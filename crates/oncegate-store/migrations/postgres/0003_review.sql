-- A word more for why a claim is parked.
ALTER TABLE claims DROP CONSTRAINT claims_parked_check;
ALTER TABLE claims ADD CONSTRAINT claims_parked_check
    CHECK (parked IN ('needs_replay', 'loop_suspected', 'incident', 'reset', 'restored', 'repeat', 'review'));
