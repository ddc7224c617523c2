//! Every cell of the table of DESIGN §3, against an oracle written from its lines.
//!
//! A cell is a set of plain words ([`Cell`]); `build` turns it into what `decide` takes, `expected` reads the
//! design's lines off the words alone, and `violations` says what must hold whatever is decided. Failures are
//! collected, so that one run shows every kind of deviation with its first cell and how many cells share it.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_core::claim::{Boot, Claim, ErrorCause, Holder, Lease, Parked, Progress, State};
use oncegate_core::decide::{
    Changes, Decision, Facts, FlagSeen, Hold, RecordHolder, Request, RunReason, Start, StopReason, Verdict,
    decide,
};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::inbox::list_of;
use oncegate_core::key::{ClaimId, RecordName, RunId};
use oncegate_core::limits;
use oncegate_core::policy::{Finish, OnMismatch, OnStale, Policy, Ttl};
use oncegate_core::time::{LeaseInstant, Now, Timestamp};

pub(crate) const NOW: Now =
    Now { wall: Timestamp::from_secs(1_767_607_200), lease: LeaseInstant(5_000_000_000) };
pub(crate) const BOOT: Boot = Boot(5);
const EARLIER_BOOT: Boot = Boot(4);
pub(crate) const ME: ClaimId = ClaimId([1; 16]);
const OTHER: ClaimId = ClaimId([2; 16]);
const TTL_MS: i64 = 15 * 60 * 1000;
const MS: Duration = Duration::from_millis(1);

/// How a lease stands, one millisecond from the border wherever there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Fresh,
    Stale,
    /// Stale, and another claim took its record since.
    Taken,
    /// Our runner's, from an earlier boot, within its TTL.
    Orphan,
    OrphanPastTtl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Absent,
    Pruned,
    New,
    Queued,
    /// A flow's claim that a person reset without asking to run it.
    ResetFlow,
    Waiting(Parked),
    Caller { run_1: bool, held: Held, same_runs: u32, heard: bool },
    Runner(Held),
    Deferred { due: bool, boot: Boot },
    Done,
    DonePastRetention,
    Failed { due: bool, flow: bool },
    HandedBack { flow: bool },
    Final,
    Dismissed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    None,
    Same,
    Differs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    None,
    Free,
    /// Only the row names it.
    OfRow,
    /// The row names none; the request names one that another claim is working on.
    NewAndHeld,
    /// The row names one, the request another.
    Changed,
    /// Row and request agree; another claim holds it.
    HeldBy(Held),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Caller,
    CallerRun1 { looks_constant: bool },
    CallerRun2,
    Runner,
    Queue,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    row: Row,
    /// retries, stale retries, resumes used
    used: (u32, u32, u32),
    payload: Payload,
    ignore_mismatch: bool,
    correction: bool,
    progress: Progress,
    record: Record,
    hold: Option<Hold>,
    at_loop_limit: bool,
    at_stale_streak: bool,
    flag: FlagSeen,
    asks: Asks,
    hold_stale: bool,
    at_claim: bool,
}

const CLEAN: Progress = Progress { succeeded: false, unknown: false };
const PROGRESS: [Progress; 3] =
    [CLEAN, Progress { succeeded: true, unknown: false }, Progress { succeeded: false, unknown: true }];

/// Asks for a free record with nothing in the way.
const PLAIN: Cell = Cell {
    row: Row::Absent,
    used: (0, 0, 0),
    payload: Payload::Same,
    ignore_mismatch: false,
    correction: false,
    progress: CLEAN,
    record: Record::Free,
    hold: None,
    at_loop_limit: false,
    at_stale_streak: false,
    flag: FlagSeen::Clear,
    asks: Asks::Caller,
    hold_stale: false,
    at_claim: false,
};

impl Row {
    fn is_open(self) -> bool {
        use Row::*;
        match self {
            New | Queued | ResetFlow | Waiting(_) | Failed { .. } | HandedBack { .. } | Final | Dismissed => true,
            Absent | Pruned | Caller { .. } | Runner(_) | Deferred { .. } | Done | DonePastRetention => false,
        }
    }

    /// A key of which nothing is remembered but perhaps a hash; the end of retention is not the reaper's to say.
    fn is_forgotten(self) -> bool {
        matches!(self, Row::Absent | Row::Pruned | Row::DonePastRetention)
    }

    fn holds_its_record(self) -> bool {
        match self {
            Row::Caller { held, .. } | Row::Runner(held) => held != Held::Taken,
            Row::Deferred { .. } => true,
            _ => false,
        }
    }
}

impl Cell {
    /// Two claims never hold one record, and a row that is not there names none.
    fn is_possible(&self) -> bool {
        match self.record {
            Record::HeldBy(_) => !self.row.holds_its_record(),
            Record::OfRow | Record::NewAndHeld | Record::Changed => !matches!(self.row, Row::Absent | Row::Pruned),
            Record::None | Record::Free => true,
        }
    }

    fn mismatches(&self) -> bool {
        let differs = self.payload == Payload::Differs || self.record == Record::Changed;
        differs && !self.ignore_mismatch && !self.row.is_forgotten()
    }

    fn is_corrected(&self) -> bool {
        self.mismatches() && self.correction && self.row.is_open() && self.progress == CLEAN
    }
}

/// The lines of DESIGN §3, in order. `Ok` may start, for that reason; `Err` is stopped.
fn known(c: &Cell) -> Result<RunReason, StopReason> {
    use Held::*;
    let (retries, stale_retries, resumes) = c.used;
    if c.mismatches() {
        return if c.is_corrected() { Ok(RunReason::First) } else { Err(StopReason::PayloadMismatch) }; // 1
    }
    let may_resume = if resumes < 3 { Ok(RunReason::Resumed) } else { Err(StopReason::NeedsReview) };
    match c.row {
        Row::Done => Err(StopReason::Duplicate),      // 2
        Row::Dismissed => Err(StopReason::Dismissed), // 2
        Row::Caller { run_1: true, held: Fresh, same_runs: 0 | 1, heard: false }
            if c.asks == (Asks::CallerRun1 { looks_constant: false }) =>
        {
            Ok(RunReason::SameRun) // 3
        }
        Row::Caller { held: Fresh, .. } | Row::Runner(Fresh) => Err(StopReason::InProgress), // 4
        // "Waiting by itself": its runner goes on when it is due; for everybody else it is in progress.
        Row::Deferred { due: true, .. } if c.asks == Asks::Runner => Ok(RunReason::Resumed),
        Row::Deferred { .. } => Err(StopReason::InProgress), // 4
        Row::Failed { due: false, .. } => Err(StopReason::BackingOff), // 5
        Row::Final => Err(StopReason::NeedsReview),  // 6
        // 6: out of retries, e.g. because the policy allows fewer since.
        Row::Failed { .. } if retries >= 3 => Err(StopReason::NeedsReview),
        Row::Failed { .. } => Ok(RunReason::Retry),
        // "No retry spent", but the third resume without a finished step is the last, however it was stopped.
        Row::HandedBack { .. } | Row::Runner(Orphan | OrphanPastTtl) => may_resume,
        Row::Caller { .. } | Row::Runner(Stale | Taken) => {
            // "Callers that never call done": five of them end it for callers only.
            let streak = c.at_stale_streak && matches!(c.row, Row::Caller { .. });
            if c.hold_stale || stale_retries > 0 || streak {
                return Err(StopReason::NeedsReview); // 6
            }
            Ok(RunReason::StaleRetry)
        }
        Row::Absent | Row::New | Row::Queued | Row::ResetFlow | Row::Waiting(_) => Ok(RunReason::First),
        Row::Pruned | Row::DonePastRetention => Ok(RunReason::FirstAfterRetention),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Run(RunReason),
    Queued(RunReason),
    Stop(StopReason),
}

fn expected(c: &Cell) -> Expected {
    let reason = match known(c) {
        Err(stop) => return Expected::Stop(stop),
        Ok(RunReason::SameRun) => return Expected::Run(RunReason::SameRun),
        Ok(reason) => reason,
    };
    if c.asks == Asks::Queue {
        return Expected::Queued(reason); // intake goes on, whatever holds running back
    }
    let first = matches!(reason, RunReason::First | RunReason::FirstAfterRetention);
    let stop = match (c.hold, c.flag, c.record) {
        (Some(Hold::Paused), ..) => StopReason::Paused,     // 7
        (Some(Hold::Incident), ..) => StopReason::Incident, // 7
        (.., record) if first && c.at_loop_limit && record != Record::None => StopReason::LoopSuspected, // 8
        (_, FlagSeen::BusyElsewhere, _) => StopReason::FlagBusy, // 9
        (_, FlagSeen::Unreadable, _) => StopReason::FlagUnreadable, // 9
        // 10. An orphan within its TTL is about to be resumed; past it nobody has to wait for it.
        (.., Record::NewAndHeld | Record::HeldBy(Held::Fresh | Held::Orphan)) => StopReason::RecordBusy,
        _ => return Expected::Run(reason), // 11
    };
    Expected::Stop(stop)
}

fn names_a_wait(stop: StopReason) -> bool {
    use StopReason::*;
    match stop {
        InProgress | BackingOff | FlagBusy | FlagUnreadable | RecordBusy => true,
        PayloadMismatch | Duplicate | Dismissed | NeedsReview | Paused | Incident | LoopSuspected => false,
    }
}

pub(crate) fn fingerprint(payload: &str) -> Fingerprint {
    Fingerprint::of(&serde_json::json!({ "answer": payload }), &[])
}

pub(crate) fn record(name: &str) -> RecordName {
    RecordName::try_from(name).unwrap()
}

pub(crate) fn caller(run_id: Option<&str>) -> Holder {
    Holder::Caller { run_id: run_id.map(|r| RunId::try_from(r).unwrap()) }
}

pub(crate) fn lease(holder: Holder, renewed: LeaseInstant) -> Lease {
    Lease {
        holder,
        started_at: NOW.wall.before(Duration::from_secs(3600)),
        renewed,
        ttl: Ttl::default(),
        same_runs: 0,
        heard_from: false,
        deferred_until: None,
        holds_record: true,
    }
}

fn held(holder: Holder, held: Held) -> Lease {
    let past_ttl = matches!(held, Held::Stale | Held::Taken | Held::OrphanPastTtl);
    let age = if past_ttl { TTL_MS } else { TTL_MS - 1 };
    Lease { holds_record: held != Held::Taken, ..lease(holder, LeaseInstant(NOW.lease.0 - age)) }
}

fn runner(h: Held) -> Lease {
    let boot = if matches!(h, Held::Orphan | Held::OrphanPastTtl) { EARLIER_BOOT } else { BOOT };
    held(Holder::Runner { boot }, h)
}

/// The values that cost too much to make anew for each of millions of cells.
struct Fixture {
    payloads: [Fingerprint; 2],
    records: [RecordName; 2],
}

impl Fixture {
    fn new() -> Self {
        let [a, b] = ["ann", "bob"];
        Self { payloads: [fingerprint(a), fingerprint(b)], records: [record(a), record(b)] }
    }

    fn claim(&self, c: &Cell) -> Option<Claim> {
        let failed = |due, cause| State::Error { at: NOW.wall, due, cause, note: "503".to_owned() };
        let (state, flow) = match c.row {
            Row::Absent | Row::Pruned => return None,
            Row::New | Row::Dismissed | Row::Waiting(Parked::NeedsReplay) => (State::None { due: None }, false),
            Row::ResetFlow | Row::Waiting(_) => (State::None { due: None }, true),
            Row::Queued => (State::None { due: Some(NOW.wall) }, true),
            Row::Caller { run_1, held: h, same_runs, heard } => {
                let lease = held(caller(run_1.then_some("run-1")), h);
                (State::Processing(Lease { same_runs, heard_from: heard, ..lease }), false)
            }
            Row::Runner(h) => (State::Processing(runner(h)), true),
            Row::Deferred { due, boot } => {
                let left = if due { Duration::ZERO } else { MS };
                let lease = lease(Holder::Runner { boot }, NOW.lease.after(left));
                let deferred_until = Some(NOW.wall.after(left));
                (State::Processing(Lease { deferred_until, heard_from: true, ..lease }), true)
            }
            Row::Done => (State::Done { at: NOW.wall, retain_until: NOW.wall.after(MS) }, false),
            Row::DonePastRetention => (State::Done { at: NOW.wall, retain_until: NOW.wall }, false),
            Row::Failed { due: true, flow } => (failed(Some(NOW.wall), ErrorCause::Failed), flow),
            Row::Failed { due: false, flow } => (failed(Some(NOW.wall.after(MS)), ErrorCause::Failed), flow),
            Row::HandedBack { flow } => (failed(Some(NOW.wall), ErrorCause::Shutdown), flow),
            Row::Final => (failed(None, ErrorCause::Failed), false),
        };
        let parked = if let Row::Waiting(parked) = c.row { Some(parked) } else { None };
        let named = !matches!(c.record, Record::None | Record::NewAndHeld);
        let (retries_used, stale_retries_used, resumes_used) = c.used;
        Some(Claim {
            state,
            flow,
            parked,
            attempt: 7,
            generation: 3,
            fingerprint: Some(self.payloads[0]),
            record: named.then(|| self.records[0].clone()),
            retries_used,
            stale_retries_used,
            resumes_used,
            progress: c.progress,
            dismissed: c.row == Row::Dismissed,
            ..Claim::new(ME, NOW)
        })
    }

    fn build(&self, c: &Cell) -> (Facts, Request, Policy) {
        let holder = |lease| Some(RecordHolder { id: OTHER, lease });
        let facts = Facts {
            id: ME,
            claim: self.claim(c),
            pruned_done_at: (c.row == Row::Pruned).then_some(NOW.wall),
            record_holder: match c.record {
                Record::NewAndHeld => holder(held(caller(None), Held::Fresh)),
                Record::HeldBy(h @ (Held::Orphan | Held::OrphanPastTtl)) => holder(runner(h)),
                Record::HeldBy(h) => holder(held(caller(None), h)),
                Record::None | Record::Free | Record::OfRow | Record::Changed => None,
            },
            hold: c.hold,
            first_runs_of_record: if c.at_loop_limit { 5 } else { 4 },
            flag: c.flag,
            stale_streak: if c.at_stale_streak { 5 } else { 4 },
            run_id_is_constant: c.asks == (Asks::CallerRun1 { looks_constant: true }),
            boot: BOOT,
        };
        let request = Request {
            start: match c.asks {
                Asks::Caller => Start::Now(caller(None)),
                Asks::CallerRun1 { .. } => Start::Now(caller(Some("run-1"))),
                Asks::CallerRun2 => Start::Now(caller(Some("run-2"))),
                Asks::Runner => Start::Now(Holder::Runner { boot: BOOT }),
                Asks::Queue => Start::Queue,
            },
            fingerprint: match c.payload {
                Payload::None => None,
                Payload::Same => Some(self.payloads[0]),
                Payload::Differs => Some(self.payloads[1]),
            },
            record: match c.record {
                Record::None | Record::OfRow => None,
                Record::Changed => Some(self.records[1].clone()),
                Record::Free | Record::NewAndHeld | Record::HeldBy(_) => Some(self.records[0].clone()),
            },
            ttl: None,
            correction: c.correction,
        };
        let policy = Policy {
            on_stale: if c.hold_stale { OnStale::Hold } else { OnStale::RetryOnce },
            finish: if c.at_claim { Finish::AtClaim } else { Finish::Caller },
            on_mismatch: if c.ignore_mismatch { OnMismatch::Ignore } else { OnMismatch::Stop },
            ..Policy::default()
        };
        (facts, request, policy)
    }
}
