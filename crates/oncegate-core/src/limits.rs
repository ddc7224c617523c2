//! Every bound on size, time and count that a user can run into, in one place, each with its reason.

use std::time::Duration;

/// Longest `idempotency_key`, in bytes of UTF-8: room for two e-mail addresses and an id; a key is a name.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest automation name, in bytes.
pub const AUTOMATION_BYTES_MAX: usize = 128;
/// Longest record name, in bytes, e.g. `hubspot:contacts:ann@example.com`.
pub const RECORD_BYTES_MAX: usize = 512;
/// Longest `run_id`, in bytes: execution id + node + item index.
pub const RUN_ID_BYTES_MAX: usize = 256;
/// Longest `run_url`, in bytes; what browsers take.
pub const RUN_URL_BYTES_MAX: usize = 2_048;
/// Longest note or reason, in bytes; a longer one from a machine is cut, from a person refused.
pub const NOTE_BYTES_MAX: usize = 2_000;
/// Longest stored result of a claim, in bytes of JSON: it is handed to every duplicate.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Largest body of a gate API call, in bytes. A payload is a form's answers, not a file.
pub const API_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Largest webhook body taken from any provider, in bytes. GitHub sends up to 25 MB (webhooks/README.md).
pub const INTAKE_BODY_BYTES_MAX: usize = 25 * 1024 * 1024;
/// Time a sender has to finish sending its body; slower ones hold a connection for nothing.
pub const BODY_READ_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest `wait` of a claim: below the 30 s after which Zapier and Make give up on a call.
pub const WAIT_MAX: Duration = Duration::from_secs(25);
/// Rows in one page of a list.
pub const PAGE_ROWS_MAX: u32 = 500;
/// Stops of one claim, and late calls, that get a history row of their own; later ones are only counted.
pub const STOP_HISTORY_ROWS_MAX: u32 = 50;
/// Bodies with a bad signature that are kept apart (DESIGN §5).
pub const UNVERIFIED_KEPT_MAX: u32 = 1_000;
/// How long bodies with a bad signature are kept.
pub const UNVERIFIED_KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the hash of a pruned key is remembered (DESIGN §2, retention).
pub const PRUNED_KEPT_FOR: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// Boot resumes without a finished step after which a person must look (DESIGN §3, "Restart").
pub const RESUMES_MAX: u32 = 3;
/// Times a holder may repeat its own claim (DESIGN §3, `same_run`).
pub const SAME_RUN_MAX: u32 = 2;
/// Stale claims without one done after which an automation gives no more `stale_retry`.
pub const STALE_STREAK_MAX: u32 = 5;
/// How far `processing_started_at` may lie ahead of the store's clock before it is shown as a clock problem.
pub const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// How long a drain at SIGTERM may take before what is left is handed back.
pub const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Largest answer read from a step's target, in bytes; the rest is cut, the outcome stands.
pub const STEP_ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Steps in one automation.
pub const STEPS_MAX: usize = 50;
/// Depth to which JSON is read: serde_json's own limit, stated here because it is a promise.
pub const JSON_DEPTH_MAX: usize = 128;
