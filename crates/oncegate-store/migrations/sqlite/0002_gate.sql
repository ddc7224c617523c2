-- The gate, whole: tokens with roles, acts on many claims, notices, writes that a repeat does not repeat.

-- Only the hash of a token is kept. Tokens of before are admins of the default workspace.
CREATE TABLE api_tokens_2 (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('caller', 'viewer', 'operator', 'admin')),
    -- A JSON list of automation names; NULL: all of them.
    automations  TEXT CHECK (automations IS NULL OR json_valid(automations)),
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;
INSERT INTO api_tokens_2 (workspace_id, hash, name, role, created_at, created_by)
    SELECT 1, hash, name, 'admin', created_at, 'first start' FROM api_tokens ORDER BY created_at;
DROP TABLE api_tokens;
ALTER TABLE api_tokens_2 RENAME TO api_tokens;
CREATE INDEX api_tokens_by_workspace ON api_tokens (workspace_id, id);

-- A deleted workspace keeps its row, so that its number, which audit rows carry, never means another.
ALTER TABLE workspaces ADD COLUMN deleted_at INTEGER;
-- Rows of claims and deliveries up to this one are gone; NULL: nothing is left to go.
ALTER TABLE workspaces ADD COLUMN purged_to INTEGER;

-- What a person filed it under, e.g. `mass duplicates of 3 May`.
ALTER TABLE claims ADD COLUMN tag TEXT;
-- The claim whose holder this one works for, and whose record it shares.
ALTER TABLE claims ADD COLUMN parent BLOB CHECK (parent IS NULL OR length(parent) = 16);
-- When the parent's lease ends, and so this one at the latest; both only while this attempt is held for the parent's.
ALTER TABLE claims ADD COLUMN parent_ends INTEGER;
CREATE INDEX claims_by_parent ON claims (workspace_id, parent) WHERE parent IS NOT NULL;

-- Calls with an `Idempotency-Key` that wrote something, and what they were answered: a repeat acts once.
CREATE TABLE api_requests (
    workspace_id    INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    -- SHA-256 of method, address, body and token.
    fingerprint     BLOB NOT NULL CHECK (length(fingerprint) = 32),
    status          INTEGER NOT NULL CHECK (status BETWEEN 200 AND 299),
    -- NULL: it held a secret, which is shown once.
    answer          TEXT,
    at              INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX api_requests_by_date ON api_requests (at);

-- Lists of one automation, one record, one tag; the first is written with every claim, always at its end.
CREATE INDEX claims_by_automation ON claims (automation_id);
CREATE INDEX claims_by_record ON claims (workspace_id, record) WHERE record IS NOT NULL;
CREATE INDEX claims_by_tag ON claims (workspace_id, tag) WHERE tag IS NOT NULL;

-- A person's act on many claims. Which ones is settled when it begins; then they are acted on some at a time, so that
-- it goes on where it stood after a crash.
CREATE TABLE bulk_acts (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL,
    token_id     INTEGER,
    -- JSON: what is done, and which claims were asked for.
    act          TEXT NOT NULL CHECK (json_valid(act)),
    filter       TEXT NOT NULL CHECK (json_valid(filter)),
    reason       TEXT NOT NULL,
    actor        TEXT NOT NULL,
    matched      INTEGER NOT NULL,
    made_at      INTEGER NOT NULL,
    finished_at  INTEGER,
    undoes       INTEGER REFERENCES bulk_acts (id)
) STRICT;
CREATE INDEX bulk_acts_open ON bulk_acts (id) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX bulk_acts_undone_once ON bulk_acts (undoes) WHERE undoes IS NOT NULL;

CREATE TABLE bulk_rows (
    bulk_id   INTEGER NOT NULL REFERENCES bulk_acts (id),
    claim_row INTEGER NOT NULL REFERENCES claims (id) ON DELETE CASCADE,
    -- The claim as it was counted: one that has changed since is left alone.
    version   INTEGER NOT NULL,
    -- NULL: its turn has not come.
    fate      TEXT CHECK (fate IS NULL OR fate IN ('acted', 'refused', 'changed', 'failed')),
    why       TEXT,
    -- What it was before and which version the act made, for the undo.
    before    TEXT CHECK (before IS NULL OR json_valid(before)),
    made      INTEGER,
    PRIMARY KEY (bulk_id, claim_row),
    CHECK ((fate IS 'acted') = (made IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX bulk_rows_left ON bulk_rows (bulk_id, claim_row) WHERE fate IS NULL;
CREATE INDEX bulk_rows_kept ON bulk_rows (bulk_id) WHERE before IS NOT NULL;
CREATE INDEX bulk_rows_by_claim ON bulk_rows (claim_row);
-- The number of resets from which receivers see new keys; until now that was always where steps start anew.
ALTER TABLE claims ADD COLUMN key_generation INTEGER NOT NULL DEFAULT 0 CHECK (key_generation BETWEEN 0 AND resets);
UPDATE claims SET key_generation = steps_since WHERE steps_since > 0;

-- When the hook of a stopped caller's tool is called, and how often it was since the tool was last heard of.
ALTER TABLE claims ADD COLUMN nudge_at INTEGER CHECK (nudge_at IS NULL OR processing_state <> 'done');
ALTER TABLE claims ADD COLUMN nudges INTEGER NOT NULL DEFAULT 0;
CREATE INDEX claims_nudges ON claims (nudge_at) WHERE nudge_at IS NOT NULL;

-- What a person should know though nothing waits for them: one row for each kind and subject, counted.
CREATE TABLE notices (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    kind         TEXT NOT NULL CHECK (kind IN ('new_automation', 'constant_run_id', 'callers_never_call_done',
        'clock_set_back', 'no_runner')),
    subject      TEXT NOT NULL,
    detail       TEXT NOT NULL,
    first_at     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    count        INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1),
    dismissed_at INTEGER,
    dismissed_by TEXT,
    UNIQUE (workspace_id, kind, subject),
    CHECK ((dismissed_at IS NULL) = (dismissed_by IS NULL))
) STRICT;

-- Kept like what is rejected, and listed as parked: nothing is wrong with it, it is only not meant for here.
ALTER TABLE deliveries ADD COLUMN parked TEXT CHECK (parked IS NULL OR parked = 'other_environment');
CREATE INDEX deliveries_parked ON deliveries (workspace_id, id) WHERE parked IS NOT NULL AND verdict = 'rejected';
CREATE INDEX deliveries_parked_by_date ON deliveries (last_at) WHERE parked IS NOT NULL AND verdict = 'rejected';
