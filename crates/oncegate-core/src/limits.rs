//! Every bound on size, time and count that a user can run into, in one place, each with its reason.

use std::time::Duration;

/// Longest `idempotency_key`, in bytes of UTF-8: room for two e-mail addresses and an id; a key is a name.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest automation name, in bytes.
pub const AUTOMATION_BYTES_MAX: usize = 128;
/// Longest workspace name, in bytes: it stands in URLs and headers.
pub const WORKSPACE_BYTES_MAX: usize = 64;
/// Longest token name, in bytes: it stands in every line of history and audit.
pub const TOKEN_NAME_BYTES_MAX: usize = 100;
/// Automations that one token may be bound to; who needs more of them needs an unbound token.
pub const TOKEN_AUTOMATIONS_MAX: usize = 100;
/// Longest life of a token that ends, counted from now; without an end it lives until it is revoked.
pub const TOKEN_LIFE_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// Tokens of one workspace that are good at a time: each is a row that lists show whole.
pub const TOKENS_MAX: usize = 1_000;
/// Workspaces of one server: each is a row that lists show whole.
pub const WORKSPACES_MAX: usize = 1_000;
/// Failed authentications of one address within [`FAILURES_WINDOW`] that are answered 401; further ones are 429.
pub const FAILURES_MAX: u32 = 10;
/// The time in which failed authentications are counted.
pub const FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// Longest delay that an address is told after failures; it doubles from 1 s.
pub const FAILURES_DELAY_MAX: Duration = Duration::from_secs(15 * 60);
/// Addresses whose failures are known at a time; the one that was silent longest is forgotten first.
pub const FAILURES_ADDRESSES_MAX: usize = 10_000;
/// Claims and deliveries looked at in one query of an export or a search: others wait for a reader meanwhile.
pub const DOSSIERS_PER_QUERY: u32 = 100;
/// Claims and deliveries forgotten in one transaction: claims of callers wait behind it.
pub const FORGOTTEN_PER_TRANSACTION: usize = 50;
/// Shortest value, in characters, that is looked for inside texts (keys, records, notes, URLs): a shorter one would
/// be found in everybody's.
pub const PERSON_TEXT_CHARS_MIN: usize = 5;
/// Fields that a person may be described by.
pub const PERSON_FIELDS_MAX: usize = 10;
/// Claims of one person that one call forgets; more of them are not one person's.
pub const PERSON_CLAIMS_MAX: usize = 10_000;
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
/// Largest webhook body taken from GitHub, in bytes: what it sends at most (webhooks/README.md).
pub const INTAKE_GITHUB_BODY_BYTES_MAX: usize = 25 * 1024 * 1024;
/// Largest webhook body taken from any other provider, in bytes: forms and orders, with links to files. Anybody can
/// begin to send one, so it is no larger than it must be.
pub const INTAKE_BODY_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Events of one webhook request; the largest batches known have 1,500 (SendGrid, Meta).
pub const INTAKE_EVENTS_MAX: usize = 5_000;
/// Parts of one multipart form: fields and files.
pub const MULTIPART_PARTS_MAX: usize = 10_000;
/// Requests of one source that are kept in memory to choose its key by.
pub const RECENT_SAMPLES_MAX: usize = 5;
/// Largest body, in bytes, that is kept so.
pub const RECENT_BODY_BYTES_MAX: usize = 64 * 1024;
/// How long they are kept: whoever sets up a source looks the same day.
pub const RECENT_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// How far apart they are, so that a busy source spends no time on copies.
pub const RECENT_APART: Duration = Duration::from_secs(1);
/// Keys of one source that are compared, to see one event come under two delivery ids.
pub const RECENT_KEYS_MAX: usize = 64;
/// What is read, in bytes, of a body whose headers alone show that its signature cannot be right: enough to keep what
/// a provider sends while its secret is not set up.
pub const UNSIGNED_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all bodies in memory at a time: ten of the largest, a hundred of the usual limit.
pub const BODY_BYTES_IN_FLIGHT_MAX: usize = 256 * 1024 * 1024;
/// The first bytes of each body, which do not count: large bodies must not keep out the small ones.
pub const BODY_BYTES_FREE: usize = 64 * 1024;
/// Bodies above [`BODY_BYTES_FREE`] that are verified and parsed at a time; each takes a core, and a multiple of its
/// size in memory.
pub const LARGE_BODIES_AT_WORK_MAX: usize = 2;
/// Time a sender has to finish sending its body; slower ones hold a connection for nothing.
pub const BODY_READ_TIME_MAX: Duration = Duration::from_secs(30);
/// Time a caller has to send the head of a request, from its first byte.
pub const HEAD_READ_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time between two requests on one connection: above the 60 s for which nginx keeps one, so that it is not
/// we who close a connection that a proxy is about to use.
pub const KEEP_ALIVE_MAX: Duration = Duration::from_secs(75);
/// Time for which a caller may take nothing of its answer.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(30);
/// Connections at a time, if the limit on open files allows them.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Open files that are not given to connections: the store, the steps' calls, the log.
pub const FILES_KEPT: usize = 256;
/// Longest `wait` of a claim: below the 30 s after which Zapier and Make give up on a call.
pub const WAIT_MAX: Duration = Duration::from_secs(25);
/// Rows in one page of a list.
pub const PAGE_ROWS_MAX: u32 = 500;
/// Stops of one claim, and late calls, that get a history row of their own; later ones are only counted.
pub const STOP_HISTORY_ROWS_MAX: u32 = 50;
/// Bodies with a bad signature that are kept apart for each source (DESIGN §5).
pub const UNVERIFIED_KEPT_MAX: u32 = 1_000;
/// Their bodies and headers, in bytes; like their number per source, so that a flood of one hides no other's.
pub const UNVERIFIED_KEPT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Largest body with a bad signature that is kept, in bytes: anybody can send one. Larger ones are counted.
pub const UNVERIFIED_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Headers kept of such a request, in bytes all together; whole ones, in order.
pub const UNVERIFIED_HEADERS_BYTES_MAX: usize = 32 * 1024;
/// How long the body of a released delivery is kept: its claim has the payload.
pub const RELEASED_BODY_KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest signature header, in bytes; longer ones are refused before anything is computed.
pub const SIGNATURE_HEADER_BYTES_MAX: usize = 4096;
/// Signatures tried in one request: rotation needs two.
pub const SIGNATURES_MAX: usize = 16;
/// How long bodies with a bad signature are kept.
pub const UNVERIFIED_KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the hash of a pruned key is remembered (DESIGN §2, retention).
pub const PRUNED_KEPT_FOR: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// How long common senders of webhooks go on trying (Stripe three days, Shopify two): an event dated that long before
/// a backup may have been delivered after it.
pub const SENDER_RETRIES_FOR: Duration = Duration::from_secs(3 * 24 * 3600);
/// Restores whose gaps a store remembers; nobody restores a store daily, and each costs every decision a look.
pub const RESTORES_REMEMBERED: usize = 16;
/// Free space, in bytes, below which nothing new is taken, or 5 % of a smaller disk: room for what runs to be
/// finished, and for SQLite's log, which grows to 80 MB, to be written back.
pub const DISK_KEPT_FREE_BYTES: u64 = 64 * 1024 * 1024;
/// Size of the file that holds a place on the disk, in bytes: given up when even what runs cannot be written down. It
/// holds tens of thousands of done calls.
pub const RESERVE_BYTES: u64 = 32 * 1024 * 1024;
/// Most of a bounded database, in bytes, that new claims may not use, or 5 % of it.
pub const DATABASE_KEPT_FREE_BYTES: u64 = 16 * 1024 * 1024;
/// How long copies made before an upgrade are kept at least; the newest is kept for ever.
pub const UPGRADE_COPY_KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
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
/// What is kept of the answer to one item of a `for_each`, in bytes: there may be many, and later steps see all of
/// them.
pub const ITEM_ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Longest `settle` of a lookup that can be declared.
pub const LOOKUP_SETTLE_MAX: Duration = Duration::from_secs(3600);
/// Items of one `for_each`: each is a call with rows of its own.
pub const FOR_EACH_ITEMS_MAX: usize = 500;
/// Lists and objects in one another to which JSON is read: serde_json's own limit, stated here because it is a
/// promise.
pub const JSON_DEPTH_MAX: usize = 127;
/// Lists and mappings in one another in `oncegate.yaml`: a step's `json` stands six levels down, and each level costs
/// its reader up to 32 KiB of stack, of which a thread has 2 MiB.
pub const YAML_DEPTH_MAX: usize = 32;
/// Fields of one form or query string: many times what any call takes, key fields included.
pub const FORM_FIELDS_MAX: usize = 200;
/// Longest name of a form or query field, in bytes: room for `key_fields[…]` around a name that a person wrote.
pub const FIELD_NAME_BYTES_MAX: usize = 256;
/// Longest tag, in bytes: a name of a group of claims, not a note.
pub const TAG_BYTES_MAX: usize = 128;
/// Claims in one batch: a page of a sheet; all of them wait for one sync of the disk.
pub const BATCH_CLAIMS_MAX: usize = 500;
/// Largest body of a batch of claims, in bytes: 10 KiB for each of them.
pub const BATCH_BODY_BYTES_MAX: usize = 5 * 1024 * 1024;
/// How long the answer to a call with an `Idempotency-Key` is kept: what retries of clients and proxies span.
pub const REQUESTS_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// Claims looked at for one page of a filtered list: some tens of milliseconds of reading. A page then ends early,
/// says until when it searched, and the next one goes on.
pub const SEARCH_ROWS_MAX: u32 = 20_000;
/// Longest text searched for, in bytes: a key.
pub const SEARCH_TEXT_BYTES_MAX: usize = 512;
/// Claims counted into groups, newest first: a second of reading.
pub const GROUP_ROWS_MAX: u32 = 500_000;
/// Claims of one bulk act; they are noted in one transaction, which nobody shall wait for.
pub const BULK_ROWS_MAX: u32 = 100_000;
/// Claims acted on in one transaction of a bulk act: other calls wait some tens of milliseconds for it.
pub const BULK_CHUNK_ROWS: u32 = 200;
/// How long a bulk act can be undone: what each claim was before is kept for so long.
pub const BULK_UNDO_KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
/// Exports at a time; each holds a connection, and a view of the store that keeps its log from shrinking.
pub const EXPORTS_AT_A_TIME_MAX: usize = 2;
/// How long an export may take: the largest is sent in minutes, and a slower reader holds the store's log meanwhile.
pub const EXPORT_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Rows of an export read ahead of a slow reader.
pub const EXPORT_ROWS_AHEAD: usize = 64;
/// Notices of one kind in one workspace; beyond them the oldest becomes part of one that counts them together. A
/// person reads a page, not a thousand.
pub const NOTICES_OF_A_KIND_MAX: u32 = 200;
/// For how long something noticed must not have happened to be told anew after a person dismissed it.
pub const NOTICE_IS_OVER_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Names that a new one is compared to; comparing takes time for each.
pub const NAMES_COMPARED_MAX: usize = 2_000;
/// How long ago a claim must have ended for its `run_id`, seen again, to name no run (DESIGN §3, `same_run`).
pub const RUN_ID_LIVES_FOR: Duration = Duration::from_secs(3600);
/// Oldest claims with a `run_id` that are looked at for that: one item of one run claims a few keys at most, and a
/// constant one must not make each claim slower than the one before.
pub const RUN_ID_CLAIMS_READ_MAX: u32 = 32;
/// After how long a caller's hook is called again if nobody claimed; after the last of them a person has to replay.
pub const NUDGE_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(5 * 60), Duration::from_secs(30 * 60)];
/// How long a caller's hook may take to answer: it only takes a message, its run goes on by itself.
pub const NUDGE_TIME_MAX: Duration = Duration::from_secs(30);
/// Hooks that are called at a time.
pub const NUDGES_AT_WORK_MAX: usize = 8;
/// Claims above one another: a run that calls a run that calls a run. Deeper ones look like a loop.
pub const PARENTS_MAX: usize = 8;
/// How long an event that was set aside at the door is kept since it came last: nobody waits for its effect.
pub const SET_ASIDE_KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most events of one sender that a source may let run within its time: the time of each is remembered.
pub const SENDER_RUNS_MAX: u32 = 1_000;
/// The part of a mail's header that is looked at, in bytes, for whether a person wrote it: relays refuse larger ones.
pub const MAIL_HEADER_BYTES_MAX: usize = 256 * 1024;
/// The fields of a mail's header that are looked at for that.
pub const MAIL_FIELDS_MAX: usize = 2_000;
/// How long a write may take for the gate to be called ready: well below what balancers wait for an answer (2 to 5
/// s).
pub const READY_WRITE_MAX: Duration = Duration::from_secs(2);
/// How long `/readyz` believes its last look: however many ask, the disk is asked once in this time.
pub const READY_LOOKED_AT_FOR: Duration = Duration::from_secs(1);
/// How long a node believes what the store said of a token, where another node may have revoked it since.
pub const TOKEN_BELIEVED_FOR: Duration = Duration::from_secs(1);
/// How often a call that waits looks by itself, where whoever it waits for may finish on another node.
pub const WAIT_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long `/metrics` believes its last look at all open claims: below the 15 s in which scrapers come.
pub const VITALS_LOOKED_AT_FOR: Duration = Duration::from_secs(5);
/// The longest notice of a stop: what waits for it must not be killed before it.
pub const DRAIN_NOTICE_MAX: Duration = Duration::from_secs(300);
/// Most calls of a target's `rate`: the time of each is remembered.
pub const RATE_CALLS_MAX: usize = 100_000;
/// Longest time of a target's `rate`: a restart forgets what was sent.
pub const RATE_PERIOD_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a turn is kept for a call that the rate held back and that does not come.
pub const TURN_KEPT_FOR: Duration = Duration::from_secs(60);
/// How long one `Retry-After` holds back other calls to its target at most; then one of them finds out.
pub const THROTTLE_BELIEVED_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest pause of a target's breaker that can be declared: how late it may be noticed that the target is back.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(3600);
/// How long at most a claim is told to wait for room at its target: how long calls take is a guess.
pub const ROOM_WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// How long a claim that is due and waits for its target is left alone: then it is taken up, which ends in error
/// beyond its SLA, and else is written down as a further wait.
pub const WAITS_UNSEEN_MAX: Duration = Duration::from_secs(15 * 60);
/// Claims that are due, wait for their targets and are passed over at each look; further ones are taken up, and told
/// to wait anew.
pub const PASSED_OVER_MAX: usize = 256;
/// Targets that are known at a time; the one that was called longest ago is forgotten first.
pub const TARGETS_MAX: usize = 1_000;
/// Times of day of one schedule: one each half hour; whoever wants more wants `every`.
pub const SLOT_TIMES_MAX: usize = 48;
/// How late a slot counts as on time: longer than a restart takes.
pub const SLOT_ON_TIME_WITHIN: Duration = Duration::from_secs(5 * 60);
/// How late the latest of missed slots is made up for: a nightly run is worth it in the day that follows, and no
/// longer.
pub const SLOT_MADE_UP_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How far back missed slots are counted: nobody needs their number once it is large.
pub const SLOTS_LOOKED_BACK: Duration = Duration::from_secs(31 * 24 * 3600);
/// Shortest and longest time from one poll to the next; below it a webhook is what is wanted.
pub const POLL_EVERY: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(24 * 3600)];
/// Largest page that a poll reads, in bytes; a larger one is not taken in part.
pub const POLL_ANSWER_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Pages that one poll reads; what they held stays admitted.
pub const POLL_PAGES_MAX: usize = 1_000;
/// Items of a page that are admitted in one transaction: others wait some tens of milliseconds for it.
pub const POLL_ITEMS_PER_TRANSACTION: usize = 200;
/// Longest `overlap` of a poll: what it reads anew each time.
pub const POLL_OVERLAP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Items of the last polls of one source that are known again without asking the store.
pub const POLL_ITEMS_KNOWN_MAX: usize = 50_000;
/// Polls that may fail in a row before a notice tells it: one bad minute is nobody's business.
pub const POLL_FAILURES_UNTOLD: u32 = 2;
/// How long at most a poll that fails pauses by itself, or its `every` if that is longer.
pub const POLL_BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);
/// How long at most a poll waits because it was asked to (`Retry-After`): then it finds out.
pub const POLL_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest `timeout` of one page of a poll.
pub const POLL_TIMEOUT_MAX: Duration = Duration::from_secs(5 * 60);
