//! Every state × every finish call × current and older tokens (DESIGN §3, "Finishing" and "Retries").
//! Here are also the rows that this table, the table of `decide` and the table of resets are made of.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::claim::{
    AtClaim, Boot, Claim, ErrorCause, Holder, Lease, Liveness, NodeNumber, Parked, State,
};
use oncegate_core::decide::{Decision, Facts, FlagSeen, Hold, Request, RunReason, Start, StopReason, decide};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::finish::{Answer, Call, Failed, Finished, finish};
use oncegate_core::inbox::{InboxList, list_of};
use oncegate_core::key::{ClaimId, RecordName, RunId};
use oncegate_core::policy::{Jitter, Policy, Ttl};
use oncegate_core::time::{LeaseInstant, Now, Timestamp};
use oncegate_core::token::Fence;

pub(crate) const NOW: Now =
    Now { wall: Timestamp::from_secs(1_767_607_200), lease: LeaseInstant(5_000_000_000) };
pub(crate) const BOOT: Boot = Boot::alone(5);
const EARLIER_BOOT: Boot = Boot::alone(4);
const ELSEWHERE: Boot = Boot { node: NodeNumber(1), start: 1 };
pub(crate) const ME: ClaimId = ClaimId([1; 16]);
const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(15 * 60);

/// How a lease stands, one millisecond from the border wherever there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Fresh,
    Stale,
    /// Stale, and another claim took its record since.
    Taken,
    /// Our runner's, from an earlier boot, within its TTL.
    Orphan,
    OrphanPastTtl,
    /// Our runner's on another node, within its TTL: it may be alive, although it started less often than this one.
    Elsewhere,
    ElsewherePastTtl,
}

/// What is found under a key, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    Absent,
    Pruned,
    New,
    Queued,
    /// A step of it asks a person.
    Review,
    /// A flow's claim that a person reset without asking to run it.
    ResetFlow,
    Waiting(Parked),
    Caller {
        run_1: bool,
        held: Held,
        same_runs: u32,
        heard: bool,
    },
    Runner(Held),
    Deferred {
        due: bool,
        earlier_boot: bool,
    },
    Done,
    /// `finish: at_claim`; its run may ask again.
    DoneAtClaim {
        run_1: bool,
        same_runs: u32,
        past_ttl: bool,
    },
    DonePastRetention,
    Failed {
        due: bool,
        flow: bool,
    },
    HandedBack {
        flow: bool,
    },
    Final,
    Dismissed,
}

pub(crate) fn rows() -> Vec<Row> {
    use Held::*;
    let mut rows = vec![Row::Absent, Row::Pruned, Row::New, Row::Queued, Row::ResetFlow];
    rows.extend([Parked::NeedsReplay, Parked::LoopSuspected, Parked::Incident].map(Row::Waiting));
    rows.extend([Row::Done, Row::DonePastRetention, Row::Final, Row::Dismissed, Row::Review]);
    rows.extend([Fresh, Stale, Taken, Orphan, OrphanPastTtl, Elsewhere, ElsewherePastTtl].map(Row::Runner));
    for (run_1, same_runs, past_ttl) in
        [(true, 0, false), (true, 1, false), (true, 2, false), (true, 0, true)]
    {
        rows.push(Row::DoneAtClaim { run_1, same_runs, past_ttl });
    }
    rows.push(Row::DoneAtClaim { run_1: false, same_runs: 0, past_ttl: false });
    for yes in [false, true] {
        rows.extend([false, true].map(|due| Row::Failed { due, flow: yes }));
        rows.extend([false, true].map(|due| Row::Deferred { due, earlier_boot: yes }));
        rows.push(Row::HandedBack { flow: yes });
        rows.extend([Stale, Taken].map(|held| Row::Caller { run_1: yes, held, same_runs: 0, heard: false }));
        for (same_runs, heard) in [(0, false), (1, false), (2, false), (0, true), (2, true)] {
            rows.push(Row::Caller { run_1: yes, held: Fresh, same_runs, heard });
        }
    }
    rows
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

pub(crate) fn lease(holder: Holder, started_at: Timestamp, renewed: LeaseInstant) -> Lease {
    Lease {
        holder,
        started_at,
        renewed,
        ttl: Ttl::default(),
        same_runs: 0,
        heard_from: false,
        deferred_until: None,
        holds_record: true,
        parent: None,
    }
}

pub(crate) fn held(holder: Holder, held: Held) -> Lease {
    let past_ttl = matches!(held, Held::Stale | Held::Taken | Held::OrphanPastTtl | Held::ElsewherePastTtl);
    let age = if past_ttl { TTL } else { TTL - MS };
    let renewed = LeaseInstant(NOW.lease.0 - i64::try_from(age.as_millis()).unwrap());
    Lease { holds_record: held != Held::Taken, ..lease(holder, NOW.wall.before(TTL), renewed) }
}

pub(crate) fn runner(h: Held) -> Lease {
    let boot = match h {
        Held::Orphan | Held::OrphanPastTtl => EARLIER_BOOT,
        Held::Elsewhere | Held::ElsewherePastTtl => ELSEWHERE,
        Held::Fresh | Held::Stale | Held::Taken => BOOT,
    };
    held(Holder::Runner { boot }, h)
}

fn done_until(retain_until: Timestamp, at_claim: Option<AtClaim>) -> State {
    State::Done { at: NOW.wall, retain_until, at_claim }
}

/// The row as the store holds it: attempt 7 of generation 3, so that there are older ones of both.
pub(crate) fn claim(row: Row, fingerprint: Fingerprint, record: Option<RecordName>) -> Option<Claim> {
    let error = |due, cause| State::Error { at: NOW.wall, due, cause, note: "503".to_owned() };
    let (state, flow) = match row {
        Row::Absent | Row::Pruned => return None,
        Row::New | Row::Dismissed | Row::Waiting(Parked::NeedsReplay) => (State::None { due: None }, false),
        Row::ResetFlow | Row::Waiting(_) => (State::None { due: None }, true),
        Row::Queued => (State::None { due: Some(NOW.wall) }, true),
        Row::Caller { run_1, held: h, same_runs, heard } => {
            let lease = held(caller(run_1.then_some("run-1")), h);
            (State::Processing(Lease { same_runs, heard_from: heard, ..lease }), false)
        }
        Row::Runner(h) => (State::Processing(runner(h)), true),
        Row::Deferred { due, earlier_boot } => {
            let left = if due { Duration::ZERO } else { MS };
            let holder = Holder::Runner { boot: if earlier_boot { EARLIER_BOOT } else { BOOT } };
            let lease = lease(holder, NOW.wall.before(TTL), NOW.lease.after(left));
            let deferred_until = Some(NOW.wall.after(left));
            (State::Processing(Lease { deferred_until, heard_from: true, ..lease }), true)
        }
        Row::Review => {
            let lease = lease(Holder::Runner { boot: EARLIER_BOOT }, NOW.wall.before(TTL), NEVER);
            let deferred_until = Some(Timestamp::NEVER);
            (State::Processing(Lease { deferred_until, heard_from: true, ..lease }), true)
        }
        Row::Done => (done_until(NOW.wall.after(MS), None), false),
        Row::DoneAtClaim { run_1, same_runs, past_ttl } => {
            let run_id = RunId::try_from(if run_1 { "run-1" } else { "run-0" }).unwrap();
            let ttl = Ttl::default();
            let age = if past_ttl { TTL } else { TTL - MS };
            let claimed = NOW.lease.before(age);
            let asked = AtClaim { run_id, claimed, ttl, same_runs };
            (done_until(NOW.wall.after(MS), Some(asked)), false)
        }
        Row::DonePastRetention => (done_until(NOW.wall, None), false),
        Row::Failed { due: true, flow } => (error(Some(NOW.wall), ErrorCause::Failed), flow),
        Row::Failed { due: false, flow } => (error(Some(NOW.wall.after(MS)), ErrorCause::Failed), flow),
        Row::HandedBack { flow } => (error(Some(NOW.wall), ErrorCause::Shutdown), flow),
        Row::Final => (error(None, ErrorCause::Failed), false),
    };
    Some(Claim {
        state,
        flow,
        parked: match row {
            Row::Waiting(parked) => Some(parked),
            Row::Review => Some(Parked::Review),
            Row::ResetFlow => Some(Parked::Reset),
            _ => None,
        },
        attempt: 7,
        resets: u32::from(row == Row::ResetFlow),
        generation: 3,
        fingerprint: Some(fingerprint),
        record,
        dismissed: row == Row::Dismissed,
        ..Claim::new(ME, NOW)
    })
}

/// Nothing but the row: no holder of the record, no hold, no loop.
pub(crate) fn facts(claim: Option<Claim>, boot: Boot) -> Facts {
    Facts {
        id: ME,
        claim,
        pruned_done_at: None,
        record_holder: None,
        earlier_waits: false,
        hold: None,
        first_runs_of_record: 0,
        repeat_of: None,
        flag: FlagSeen::Clear,
        stale_streak: 0,
        run_id_is_constant: false,
        clock_is_doubtful: false,
        parent: None,
        boot,
        restores: Arc::default(),
    }
}

pub(crate) fn ask(holder: Holder) -> Request {
    Request {
        start: Start::Now(holder),
        fingerprint: None,
        record: None,
        ttl: None,
        correction: false,
        dated: None,
        likeness: None,
        identity: None,
    }
}

/// What the runner is told at `now`, and the row after it.
fn run_at(claim: &Claim, hold: Option<Hold>, now: Now) -> (Decision, Claim) {
    let facts = Facts { hold, ..facts(Some(claim.clone()), BOOT) };
    let verdict = decide(&facts, &ask(Holder::Runner { boot: BOOT }), &Policy::default(), now);
    (verdict.decision, verdict.changes.claim.unwrap_or_else(|| claim.clone()))
}

pub(crate) fn later(now: Now, d: Duration) -> Now {
    Now { wall: now.wall.after(d), lease: now.lease.after(d) }
}

/// Everything a holder can say; waits of a minute, of an hour and of a day, the last beyond the SLA of 4 h.
fn calls() -> Vec<Call> {
    let note = || "503".to_owned();
    let waits = [60, 3_600, 86_400].map(Duration::from_secs);
    let retryable = |retry_after| Call::Error { failure: Failed::Retryable { retry_after }, note: note() };
    let mut calls = vec![Call::Done, Call::Heartbeat, Call::HandBack, Call::HandOver, retryable(None)];
    calls.push(Call::Review { note: "may it go out?".to_owned() });
    calls.extend(waits.map(|wait| retryable(Some(wait))));
    calls.extend(waits.map(|wait| Call::Defer { until: NOW.wall.after(wait), note: note() }));
    calls.extend(
        [Failed::Locked, Failed::Final, Failed::Unknown].map(|failure| Call::Error { failure, note: note() }),
    );
    calls
}

/// What the holder of the current token is told.
fn expected(state: &State, call: &Call) -> Answer {
    match (state, call) {
        (State::Processing(_), _) | (State::Error { .. }, Call::Done) => Answer::Accepted,
        (State::Done { .. }, Call::Done) => Answer::Unchanged,
        (State::Done { .. }, _) => Answer::AlreadyDone,
        (State::Error { .. }, Call::Heartbeat) => Answer::NotProcessing,
        (State::Error { .. }, _) => Answer::Unchanged,
        (State::None { .. }, _) => Answer::LostClaim,
    }
}

/// When the lease of what waits for a person was renewed.
const NEVER: LeaseInstant = LeaseInstant(Timestamp::NEVER.as_millis());

/// What an accepted call of the current holder leaves behind.
fn check_effect(before: &Claim, call: &Call, jitter: Jitter, after: &Claim, cell: &str) {
    let only_state = Claim { state: before.state.clone(), parked: before.parked, ..after.clone() };
    assert_eq!(only_state, *before, "only the state changes, no counter and no token: {cell}");
    let used = usize::try_from(before.retries_used).unwrap();
    match (call, &after.state) {
        (Call::Done, State::Done { at, retain_until, at_claim: None }) => {
            assert_eq!(
                (*at, *retain_until),
                (NOW.wall, NOW.wall.after(Policy::default().retention())),
                "{cell}"
            );
            assert_eq!(list_of(after, NOW, BOOT), None, "{cell}");
        }
        (Call::Heartbeat, State::Processing(lease)) => {
            assert_eq!(after.is_in_review(), before.is_in_review(), "only a person ends a question: {cell}");
            assert!(
                lease.heard_from && lease.expires() >= NOW.lease.after(TTL),
                "the lease restarts: {cell}"
            );
        }
        // The target calls back; a wait that our runner would end by itself is over.
        (Call::HandOver, State::Processing(lease)) => {
            assert_eq!((&lease.holder, lease.deferred_until), (&caller(None), None), "{cell}");
            assert!(lease.expires() >= NOW.lease.after(TTL), "the lease restarts: {cell}");
        }
        (Call::HandBack, State::Error { due, cause: ErrorCause::Shutdown, .. }) => {
            assert_eq!(*due, Some(NOW.wall), "due at once: {cell}");
        }
        (
            Call::Error { failure: Failed::Final, .. },
            State::Error { due: None, cause: ErrorCause::Failed, .. },
        ) => {}
        (
            Call::Error { failure: Failed::Unknown, .. },
            State::Error { due: None, cause: ErrorCause::OutcomeUnknown, .. },
        ) => {}
        (
            Call::Error { failure: Failed::Retryable { retry_after }, .. },
            State::Error { due, cause, note, .. },
        ) => {
            let asked = retry_after.unwrap_or_default();
            if asked > Policy::default().sla {
                assert_eq!((*due, *cause), (None, ErrorCause::AskedToWait), "{cell}");
                return assert!(note.contains("24 h") || note.contains("24h"), "C48, names the wait: {note}");
            }
            assert_eq!(*cause, ErrorCause::Failed, "{cell}");
            let Some(delay) = [30.0, 240.0, 1_800.0].get(used) else {
                return assert_eq!(*due, None, "out of retries: {cell}");
            };
            let wait = due.unwrap().since(NOW.wall).as_secs_f64();
            let (least, most) =
                (f64::max(delay * 0.75, asked.as_secs_f64()), f64::max(delay * 1.25, asked.as_secs_f64()));
            assert!(wait >= least && wait <= most, "{wait} s is not in {least}..{most}: {jitter:?} {cell}");
        }
        (Call::Error { failure: Failed::Locked, .. }, State::Error { due, cause, .. }) => {
            assert_eq!(*cause, ErrorCause::Failed, "{cell}");
            let Some(delay) = [3.0, 30.0, 240.0].get(used) else {
                return assert_eq!(*due, None, "out of retries: {cell}");
            };
            let wait = due.unwrap().since(NOW.wall).as_secs_f64();
            assert!(wait >= delay * 0.75 && wait <= delay * 1.25, "{wait} s: {jitter:?} {cell}");
        }
        (Call::Review { .. }, State::Processing(_)) => {
            assert_eq!(list_of(after, NOW, BOOT), Some(InboxList::Parked), "a person sees it: {cell}");
            let years = later(NOW, Duration::from_secs(50 * 365 * 86_400));
            let asked_again = run_at(after, None, years).0;
            let waits = matches!(asked_again, Decision::Stop { reason: StopReason::InProgress, .. });
            assert!(waits, "nothing but an answer ends it: {cell}");
            assert_eq!(list_of(after, years, BOOT), Some(InboxList::Parked), "never stuck: {cell}");
        }
        (Call::Defer { until, .. }, State::Processing(lease)) => {
            assert_eq!(lease.deferred_until, Some(*until), "{cell}");
            let due = later(NOW, until.since(NOW.wall));
            assert!(
                matches!(lease.liveness(due, BOOT), Liveness::Fresh { .. }),
                "renewed while waiting: {cell}"
            );
            let early = Now { wall: due.wall.before(MS), ..due };
            let is_waiting =
                |d| matches!(d, Decision::Stop { reason: StopReason::InProgress, retry_after: Some(_), .. });
            assert!(is_waiting(run_at(after, None, early).0), "not before it is due: {cell}");
            let (decision, resumed) = run_at(after, None, due);
            assert_eq!(
                (decision, resumed.retries_used),
                (Decision::Run(RunReason::Resumed), before.retries_used)
            );
        }
        (Call::Defer { until, .. }, State::Error { due: None, cause: ErrorCause::AskedToWait, note, .. }) => {
            assert!(until.since(NOW.wall) > Policy::default().sla, "within the SLA it is waited for: {cell}");
            assert!(note.contains("24 h") || note.contains("24h"), "C48, names the wait: {note}");
        }
        (call, state) => panic!("{call:?} leaves {state:?}: {cell}"),
    }
    let again = finish(after, before.fence(), &Call::Done, &Policy::default(), NOW, jitter).answer;
    assert!(
        matches!(again, Answer::Accepted | Answer::Unchanged),
        "done proves the effect later too: {cell}"
    );
}

fn check(row: Row, before: &Claim, fence: Fence, call: &Call, jitter: Jitter) {
    let cell = format!("{row:?}, {fence:?}, {call:?}, {} retries used", before.retries_used);
    let Finished { answer, claim: after } = finish(before, fence, call, &Policy::default(), NOW, jitter);
    if fence != before.fence() {
        assert_eq!(answer, Answer::LostClaim, "{cell}");
        let after = after.unwrap();
        assert_eq!(after, Claim { late_at: Some(NOW.wall), ..before.clone() }, "only the mark: {cell}");
        assert!(list_of(&after, NOW, BOOT).is_some(), "a late call is listed: {cell}");
        let twice = finish(&after, fence, call, &Policy::default(), later(NOW, MS), jitter);
        return assert_eq!(twice.answer, Answer::LostClaim, "{cell}");
    }
    assert_eq!(answer, expected(&before.state, call), "{cell}");
    match after {
        Some(after) if matches!(row, Row::DoneAtClaim { .. }) => {
            let heard = State::Done { at: NOW.wall, retain_until: NOW.wall.after(MS), at_claim: None };
            assert_eq!(after, Claim { state: heard, ..before.clone() }, "it has its answer: {cell}");
        }
        Some(after) => check_effect(before, call, jitter, &after, &cell),
        None => assert_ne!(answer, Answer::Accepted, "what is accepted is written: {cell}"),
    }
    assert!(
        *call != Call::Done || answer != Answer::LostClaim,
        "a current token is never refused for done: {cell}"
    );
}

#[test]
fn every_finish_call_in_every_state() {
    let mut cells = 0;
    for row in rows() {
        let Some(claim) = claim(row, fingerprint("ann"), Some(record("ann"))) else { continue };
        let current = claim.fence();
        let older = [Fence { attempt: 6, ..current }, Fence { generation: 2, ..current }];
        let taken = matches!(row, Row::Runner(Held::Taken) | Row::Caller { held: Held::Taken, .. });
        // Nobody has a current token of a claim that nobody holds, nor of one whose record was taken.
        let has_current = !taken && !matches!(claim.state, State::None { .. });
        for fence in older.into_iter().chain(has_current.then_some(current)) {
            for call in calls() {
                for retries_used in 0..=3 {
                    let before = Claim { retries_used, ..claim.clone() };
                    for jitter in [Jitter::from_random(0), Jitter::NONE, Jitter::from_random(u32::MAX)] {
                        check(row, &before, fence, &call, jitter);
                        cells += 1;
                    }
                }
            }
        }
    }
    println!("finish: {cells} cells");
}

/// Deferred is "waiting by itself, not a person's business until the SLA": neither a pause nor a busy record
/// on top of the wait may make it look as if its holder had gone silent.
#[test]
fn a_deferred_claim_that_is_held_back_does_not_go_stale() {
    let row = Row::Deferred { due: true, earlier_boot: false };
    let mut claim = claim(row, fingerprint("ann"), None).unwrap();
    let mut now = NOW;
    while now.wall < NOW.wall.after(2 * TTL) {
        let (decision, after) = run_at(&claim, Some(Hold::Paused), now);
        assert!(matches!(decision, Decision::Stop { reason: StopReason::Paused, .. }), "{decision:?}");
        assert_eq!(
            list_of(&after, now, BOOT),
            None,
            "{:?} after the wait was over",
            now.wall.since(NOW.wall)
        );
        (claim, now) = (after, later(now, Duration::from_secs(10)));
    }
    let (decision, after) = run_at(&claim, None, now);
    assert_eq!((decision, after.stale_retries_used), (Decision::Run(RunReason::Resumed), 0));
}
