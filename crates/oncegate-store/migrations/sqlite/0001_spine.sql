-- The spine: claims with their history and steps, events as they came in, and who did what.
-- Instants are milliseconds since 1970 (wall clock); lease_* are milliseconds of the lease clock.
-- The words stand as text so that a person with nothing but a SQLite shell can read them.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY NOT NULL,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workspaces (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE automations (
    id           INTEGER PRIMARY KEY,
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    name         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    paused_at    INTEGER,
    -- Stale claims of callers since the last done (DESIGN §3, "Callers that never call done").
    stale_streak INTEGER NOT NULL DEFAULT 0 CHECK (stale_streak >= 0),
    UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE claims (
    id                 INTEGER PRIMARY KEY,
    claim_id           BLOB NOT NULL CHECK (length(claim_id) = 16),
    workspace_id       INTEGER NOT NULL REFERENCES workspaces (id),
    automation_id      INTEGER NOT NULL REFERENCES automations (id),
    idempotency_key    TEXT NOT NULL,
    processing_state   TEXT NOT NULL CHECK (processing_state IN ('none', 'processing', 'done', 'error')),
    version            INTEGER NOT NULL CHECK (version >= 1),
    attempt            INTEGER NOT NULL CHECK (attempt >= 0),
    generation         INTEGER NOT NULL CHECK (generation >= 0),
    resets             INTEGER NOT NULL DEFAULT 0 CHECK (resets >= 0),
    steps_since        INTEGER NOT NULL DEFAULT 0 CHECK (steps_since BETWEEN 0 AND resets),
    fingerprint        BLOB CHECK (fingerprint IS NULL OR length(fingerprint) = 17),
    record             TEXT,
    -- Set only while this claim holds the record: the unique index below is what makes it one holder.
    record_hash        BLOB CHECK (record_hash IS NULL OR (length(record_hash) = 16 AND processing_state = 'processing')),
    retries_used       INTEGER NOT NULL DEFAULT 0 CHECK (retries_used BETWEEN 0 AND 3),
    stale_retries_used INTEGER NOT NULL DEFAULT 0 CHECK (stale_retries_used BETWEEN 0 AND 1),
    resumes_used       INTEGER NOT NULL DEFAULT 0 CHECK (resumes_used >= 0),
    step_succeeded     INTEGER NOT NULL DEFAULT 0 CHECK (step_succeeded IN (0, 1)),
    step_unknown       INTEGER NOT NULL DEFAULT 0 CHECK (step_unknown IN (0, 1)),
    flow               INTEGER NOT NULL DEFAULT 0 CHECK (flow IN (0, 1)),
    dismissed          INTEGER NOT NULL DEFAULT 0 CHECK (dismissed IN (0, 1)),
    opened_at          INTEGER NOT NULL,
    -- none and error: when the runner, or the caller, may take it; processing: deferred until then.
    due_at             INTEGER CHECK (due_at IS NULL OR processing_state <> 'done'),
    holder             TEXT CHECK (holder IS NULL OR holder IN ('caller', 'runner')),
    boot               INTEGER,
    run_id             TEXT,
    run_url            TEXT,
    processing_started_at INTEGER,
    lease_renewed      INTEGER,
    lease_ttl          INTEGER,
    lease_expires      INTEGER,
    same_runs          INTEGER NOT NULL DEFAULT 0,
    heard_from         INTEGER NOT NULL DEFAULT 0,
    done_at            INTEGER,
    retain_until       INTEGER,
    result             TEXT,
    error_at           INTEGER,
    error_cause        TEXT,
    note               TEXT,
    parked             TEXT CHECK (parked IS NULL OR parked IN ('needs_replay', 'loop_suspected', 'incident', 'reset')),
    mismatch_at        INTEGER,
    late_at            INTEGER,
    stops              INTEGER NOT NULL DEFAULT 0,
    first_stop_at      INTEGER,
    last_stop_at       INTEGER,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    CHECK ((processing_state = 'processing') = (lease_expires IS NOT NULL)),
    CHECK ((processing_state = 'processing') = (holder IS NOT NULL)),
    CHECK ((processing_state = 'processing') = (processing_started_at IS NOT NULL)),
    CHECK ((processing_state = 'done') = (done_at IS NOT NULL)),
    CHECK ((processing_state = 'done') = (retain_until IS NOT NULL)),
    CHECK ((processing_state = 'error') = (error_at IS NOT NULL)),
    CHECK ((processing_state = 'error') = (error_cause IS NOT NULL)),
    CHECK (processing_state <> 'processing' OR attempt >= 1),
    CHECK (NOT dismissed OR processing_state IN ('none', 'error'))
) STRICT;

-- Random hashes go into this narrow index only; the rows themselves are appended.
CREATE UNIQUE INDEX claims_by_id ON claims (claim_id);
CREATE UNIQUE INDEX claims_one_holder_per_record ON claims (workspace_id, record_hash) WHERE record_hash IS NOT NULL;
CREATE INDEX claims_due ON claims (due_at) WHERE due_at IS NOT NULL AND flow = 1;
-- Not by lease: a heartbeat would then move the row about in the index, and what is live is few rows anyway.
CREATE INDEX claims_live ON claims (workspace_id, id) WHERE processing_state = 'processing';
CREATE INDEX claims_error ON claims (workspace_id, id) WHERE processing_state = 'error';
CREATE INDEX claims_marked ON claims (workspace_id, id)
    WHERE mismatch_at IS NOT NULL OR late_at IS NOT NULL OR parked IS NOT NULL;
CREATE INDEX claims_by_run ON claims (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX claims_retained ON claims (retain_until) WHERE retain_until IS NOT NULL;

-- The payload as it came, byte for byte; kept apart so that lists and claims stay narrow.
CREATE TABLE payloads (
    claim_row INTEGER PRIMARY KEY REFERENCES claims (id) ON DELETE CASCADE,
    body      BLOB NOT NULL,
    -- What the templates of steps see: JSON made from the body.
    json      TEXT NOT NULL,
    stored_at INTEGER NOT NULL
) STRICT;

-- What remains of a key after retention: a keyed hash and a date.
CREATE TABLE pruned (
    claim_id  BLOB PRIMARY KEY NOT NULL CHECK (length(claim_id) = 16),
    done_at   INTEGER NOT NULL,
    -- The two years count from here, however long the claim itself was remembered before.
    pruned_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX pruned_by_date ON pruned (pruned_at);

CREATE TABLE record_runs (
    record_hash   BLOB NOT NULL CHECK (length(record_hash) = 16),
    automation_id INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    claim_id      BLOB NOT NULL,
    attempt       INTEGER NOT NULL,
    PRIMARY KEY (record_hash, automation_id, at, claim_id, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_runs_by_date ON record_runs (at);

-- One row per thing that happened to a claim.
CREATE TABLE history (
    id        INTEGER PRIMARY KEY,
    claim_row INTEGER NOT NULL REFERENCES claims (id) ON DELETE CASCADE,
    at        INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    reason    TEXT,
    attempt   INTEGER NOT NULL,
    actor     TEXT NOT NULL,
    note      TEXT
) STRICT;
CREATE INDEX history_by_claim ON history (claim_row, id);
CREATE TRIGGER history_is_not_rewritten BEFORE UPDATE ON history
BEGIN SELECT RAISE(ABORT, 'history is append-only'); END;
-- It goes only with its claim, when retention ends.
CREATE TRIGGER history_is_not_erased BEFORE DELETE ON history WHEN EXISTS (SELECT 1 FROM claims WHERE id = OLD.claim_row)
BEGIN SELECT RAISE(ABORT, 'history is append-only'); END;

-- One row per call that a step sends, written before it is sent.
CREATE TABLE step_calls (
    id              INTEGER PRIMARY KEY,
    claim_row       INTEGER NOT NULL REFERENCES claims (id) ON DELETE CASCADE,
    step            TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    resets          INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    target          TEXT NOT NULL,
    sent_at         INTEGER NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome IN ('in_flight', 'succeeded', 'failed', 'unknown')),
    status          INTEGER,
    answer          BLOB,
    note            TEXT,
    finished_at     INTEGER,
    CHECK ((outcome = 'in_flight') = (finished_at IS NULL))
) STRICT;
CREATE INDEX step_calls_by_claim ON step_calls (claim_row, id);

-- One row per arrival of an event; what came before, byte for byte, is counted on its first row instead.
CREATE TABLE deliveries (
    -- People release deliveries by number: a number is never used twice.
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL,
    source       TEXT NOT NULL,
    automation   TEXT NOT NULL,
    received_at  INTEGER NOT NULL,
    -- How often the same came again, and when last.
    repeats      INTEGER NOT NULL DEFAULT 0 CHECK (repeats >= 0),
    last_at      INTEGER,
    claim_id     BLOB,
    verdict      TEXT NOT NULL CHECK (verdict IN ('accepted', 'duplicate', 'mismatch', 'rejected', 'unverified', 'released')),
    reason       TEXT,
    -- SHA-256; only beside a body.
    body_hash    BLOB CHECK (body_hash IS NULL OR length(body_hash) = 32),
    -- Of body and headers together; only counted where there is a quota.
    bytes        INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    headers      TEXT,
    body         BLOB,
    settled_at   INTEGER,
    CHECK (verdict NOT IN ('rejected', 'unverified') OR (body IS NOT NULL AND headers IS NOT NULL)),
    CHECK ((body IS NULL) = (body_hash IS NULL))
) STRICT;
CREATE INDEX deliveries_open ON deliveries (workspace_id, id) WHERE verdict IN ('rejected', 'unverified');
-- One captured request is one row, however often it is sent.
CREATE UNIQUE INDEX deliveries_rejected_once ON deliveries (workspace_id, source, body_hash, reason)
    WHERE verdict = 'rejected';
CREATE UNIQUE INDEX deliveries_mismatch_once ON deliveries (claim_id, source, body_hash, reason)
    WHERE verdict = 'mismatch';
CREATE UNIQUE INDEX deliveries_unverified_once ON deliveries (workspace_id, source, body_hash)
    WHERE verdict = 'unverified';
-- The quota of a source is added up in the index, without touching the rows.
CREATE INDEX deliveries_unverified_newest ON deliveries (workspace_id, source, id, bytes) WHERE verdict = 'unverified';
CREATE INDEX deliveries_unverified_by_date ON deliveries (received_at) WHERE verdict = 'unverified';
CREATE INDEX deliveries_released ON deliveries (settled_at) WHERE verdict = 'released' AND body IS NOT NULL;
CREATE INDEX deliveries_duplicate ON deliveries (claim_id) WHERE verdict = 'duplicate';
CREATE INDEX deliveries_by_claim ON deliveries (claim_id, id) WHERE claim_id IS NOT NULL;

-- What people and their tokens did. Append-only.
CREATE TABLE audit (
    id           INTEGER PRIMARY KEY,
    workspace_id INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    actor        TEXT NOT NULL,
    action       TEXT NOT NULL,
    subject      TEXT NOT NULL,
    reason       TEXT,
    detail       TEXT
) STRICT;
CREATE TRIGGER audit_is_not_rewritten BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_erased BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;

-- Only the hash of a token is kept.
CREATE TABLE api_tokens (
    hash       BLOB PRIMARY KEY NOT NULL CHECK (length(hash) = 32),
    name       TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('admin')),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
