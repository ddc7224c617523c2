-- What guards at the door set aside has more kinds than one.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_parked_check;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_parked_check
    CHECK (parked IN ('other_environment', 'machine_mail', 'sender'));

-- When the last events of one sender were accepted: one row for each, found by a keyed hash, so that no address stands
-- here. Whoever counts holds the row until the end.
CREATE TABLE senders (
    workspace_id bigint NOT NULL,
    sender_hash  bytea NOT NULL CHECK (length(sender_hash) = 16),
    counted      text NOT NULL,
    at           bigint NOT NULL,
    PRIMARY KEY (workspace_id, sender_hash)
);
CREATE INDEX senders_by_date ON senders (workspace_id, at);
