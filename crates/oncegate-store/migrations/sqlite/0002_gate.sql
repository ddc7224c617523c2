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

-- What a person filed it under, e.g. `mass duplicates of 3 May`.
ALTER TABLE claims ADD COLUMN tag TEXT;
-- The claim whose holder this one works for, and whose record it shares.
ALTER TABLE claims ADD COLUMN parent BLOB CHECK (parent IS NULL OR length(parent) = 16);
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
