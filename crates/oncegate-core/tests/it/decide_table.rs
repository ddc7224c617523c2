//! Every cell of the table of DESIGN §3, against an oracle written from its lines.
//!
//! A cell is a set of plain words ([`Cell`]); `build` makes of it what `decide` takes, `expected` reads the design's
//! lines off the words alone, and `violations` says what must hold whatever is decided.

use std::time::Duration;

use oncegate_core::claim::{AtClaim, Claim, ErrorCause, Holder, Lease, Progress, State};
use oncegate_core::decide::{
    Changes, Decision, Facts, FlagSeen, Hold, RecordHolder, Request, RunReason, Start, StopReason, Verdict,
    decide, run_id_of,
};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::inbox::list_of;
use oncegate_core::key::{ClaimId, RecordName};
use oncegate_core::policy::{Finish, OnMismatch, OnStale, Policy};

use crate::cells::{ASKS, Asks, PAYLOADS, Payload, Record, YES_NO};
use crate::finish_table::{
    BOOT, Held, ME, NOW, Row, caller, claim, facts, fingerprint, held, lease, record, rows, runner,
};
use crate::reset_table::{Digits, Tally};

const OTHER: ClaimId = ClaimId([2; 16]);

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
    retrigger: bool,
}

const CLEAN: Progress = Progress { succeeded: false, unknown: false };
const PROGRESS: [Progress; 3] =
    [CLEAN, Progress { succeeded: true, ..CLEAN }, Progress { unknown: true, ..CLEAN }];

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
    retrigger: false,
};

impl Cell {
    /// Two claims never hold one record, and a row that is not there names none.
    fn is_possible(&self) -> bool {
        match self.record {
            Record::HeldBy(_) => !self.row.holds_its_record(),
            Record::OfRow => !self.row.is_forgotten(),
            Record::NewAndHeld | Record::Changed => !matches!(self.row, Row::Absent | Row::Pruned),
            Record::Behind { stale, .. } => !(stale && self.row.holds_its_record()),
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
        // 3, for a claim that nobody calls done: an answer that got lost would lose the effect.
        Row::DoneAtClaim { run_1: true, same_runs: 0 | 1, past_ttl: false }
            if c.asks == (Asks::CallerRun1 { looks_constant: false }) =>
        {
            Ok(RunReason::SameRun)
        }
        Row::Done | Row::DoneAtClaim { .. } => Err(StopReason::Duplicate), // 2
        Row::Dismissed => Err(StopReason::Dismissed),                      // 2
        Row::Caller { run_1: true, held: Fresh, same_runs: 0 | 1, heard: false }
            if c.asks == (Asks::CallerRun1 { looks_constant: false }) =>
        {
            Ok(RunReason::SameRun) // 3
        }
        Row::Caller { held: Fresh, .. } | Row::Runner(Fresh | Elsewhere) => Err(StopReason::InProgress), // 4
        // "Waiting by itself": its runner goes on when it is due; for everybody else it is in progress.
        Row::Deferred { due: true, .. } if c.asks == Asks::Runner => Ok(RunReason::Resumed),
        Row::Deferred { .. } | Row::Review => Err(StopReason::InProgress), // 4
        Row::Failed { due: false, .. } => Err(StopReason::BackingOff),     // 5
        Row::Final => Err(StopReason::NeedsReview),                        // 6
        // 6: out of retries, e.g. because the policy allows fewer since.
        Row::Failed { .. } if retries >= 3 => Err(StopReason::NeedsReview),
        Row::Failed { .. } => Ok(RunReason::Retry),
        // "No retry spent", but the third resume without a finished step is the last, however it was stopped.
        Row::HandedBack { .. } | Row::Runner(Orphan | OrphanPastTtl) => may_resume,
        Row::Caller { .. } | Row::Runner(Stale | Taken | ElsewherePastTtl) => {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let looked_at = c.row == Row::ResetFlow || c.is_corrected();
    let may_loop = first && !looked_at;
    let stop = match (c.hold, c.flag, c.record) {
        (Some(Hold::Paused), ..) => StopReason::Paused,     // 7
        (Some(Hold::Incident), ..) => StopReason::Incident, // 7
        (.., record) if may_loop && c.at_loop_limit && record != Record::None => StopReason::LoopSuspected, // 8
        (_, FlagSeen::BusyElsewhere, _) => StopReason::FlagBusy, // 9
        (_, FlagSeen::Unreadable, _) => StopReason::FlagUnreadable, // 9
        // 10. In order of arrival, for no longer than the SLA; what has begun goes on.
        (.., Record::Behind { past_sla, .. }) if c.row.is_in_line() && (!past_sla || c.is_corrected()) => {
            StopReason::RecordBusy
        }
        // 10. An orphan within its TTL is about to be resumed; past it nobody has to wait for it.
        (.., Record::NewAndHeld | Record::HeldBy(Held::Fresh | Held::Orphan | Held::Elsewhere)) => {
            StopReason::RecordBusy
        }
        _ => return Expected::Run(reason), // 11
    };
    Expected::Stop(stop)
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
        let named = !matches!(c.record, Record::None | Record::NewAndHeld);
        let claim = claim(c.row, self.payloads[0], named.then(|| self.records[0].clone()))?;
        let (retries_used, stale_retries_used, resumes_used) = c.used;
        Some(Claim { retries_used, stale_retries_used, resumes_used, progress: c.progress, ..claim })
    }

    fn build(&self, c: &Cell) -> (Facts, Request, Policy) {
        let mut facts = facts(self.claim(c), BOOT);
        facts.pruned_done_at = (c.row == Row::Pruned).then_some(NOW.wall);
        facts.record_holder = match c.record {
            Record::NewAndHeld => Some(held(caller(None), Held::Fresh)),
            Record::HeldBy(h @ (Held::Fresh | Held::Stale | Held::Taken)) => Some(held(caller(None), h)),
            Record::HeldBy(h) => Some(runner(h)),
            Record::Behind { stale: true, .. } => Some(runner(Held::Stale)),
            Record::None | Record::Free | Record::Behind { .. } | Record::OfRow | Record::Changed => None,
        }
        .map(|lease| RecordHolder { id: OTHER, lease });
        facts.earlier_waits = matches!(c.record, Record::Behind { .. });
        if let (Record::Behind { past_sla: true, .. }, Some(claim)) = (c.record, &mut facts.claim) {
            claim.open_since = NOW.wall.before(Policy::default().sla);
        }
        (facts.hold, facts.flag) = (c.hold, c.flag);
        facts.first_runs_of_record = if c.at_loop_limit { 5 } else { 4 };
        facts.stale_streak = if c.at_stale_streak { 5 } else { 4 };
        facts.run_id_is_constant = c.asks == (Asks::CallerRun1 { looks_constant: true });
        let request = Request {
            dated: None,
            likeness: None,
            identity: None,
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
                Record::Free | Record::Behind { .. } | Record::NewAndHeld | Record::HeldBy(_) => {
                    Some(self.records[0].clone())
                }
            },
            ttl: None,
            correction: c.correction,
        };
        let mut policy = Policy::default();
        policy.on_stale = if c.hold_stale { OnStale::Hold } else { OnStale::RetryOnce };
        policy.retrigger = c.retrigger;
        policy.finish = if c.at_claim { Finish::AtClaim } else { Finish::Caller };
        policy.on_mismatch = if c.ignore_mismatch { OnMismatch::Ignore } else { OnMismatch::Stop };
        (facts, request, policy)
    }
}

/// What must hold after a verdict, whatever it is: the broken sentences.
fn violations(c: &Cell, facts: &Facts, request: &Request, verdict: &Verdict) -> Vec<String> {
    use StopReason::*;
    let mut broken = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            broken.push(what.to_owned());
        }
    };
    let Verdict { decision, changes } = verdict;
    let absent = Claim::new(ME, NOW);
    let before = facts.claim.as_ref().unwrap_or(&absent);
    let after = changes.claim.as_ref().unwrap_or(before);
    // Beyond the table: steps that have begun are gone on with by those who know which.
    let by_caller = !matches!(c.asks, Asks::Runner | Asks::Queue);
    let anew = c.is_corrected() || c.row == Row::DonePastRetention;
    let half_done = before.flow && !before.progress.is_clean() && !anew;
    let may_start = by_caller && matches!(known(c), Ok(reason) if reason != RunReason::SameRun);
    let want = if half_done && may_start { Expected::Stop(InProgress) } else { expected(c) };
    let (got, stopped) = match decision {
        Decision::Run(reason) => (Expected::Run(*reason), None),
        Decision::Queued(reason) => (Expected::Queued(*reason), None),
        Decision::Stop { reason, .. } => (Expected::Stop(*reason), Some(*reason)),
    };
    if got != want {
        return vec![format!("expected {want:?}, got {got:?}")];
    }
    if let Decision::Stop { reason, retry_after, note } = decision {
        let names_a_wait = matches!(reason, InProgress | BackingOff | FlagBusy | FlagUnreadable | RecordBusy);
        must(retry_after.is_some() == names_a_wait, "a stop that passes by itself says when, no other does");
        must(*retry_after != Some(Duration::ZERO), "nobody is asked to come back at once");
        must(*reason != NeedsReview || note.is_some(), "needs_review says why");
    }
    let new_attempt = matches!(got, Expected::Run(reason) if reason != RunReason::SameRun);

    must(after.attempt == before.attempt + u32::from(new_attempt), "one attempt more exactly on a run");
    let is_voided = after.fence() != before.fence();
    // Of a pruned claim, which has no row, tokens may still be about.
    let voids = new_attempt || anew || c.row == Row::Pruned;
    must(is_voided == voids, "runs and resets void the token, nothing else");
    must(after.generation >= before.generation, "the generation never falls");
    let (r, s, z) = if anew || facts.claim.is_none() { (0, 0, 0) } else { c.used };
    let spent = match got {
        Expected::Run(RunReason::Retry) => (r + 1, s, z),
        Expected::Run(RunReason::StaleRetry) => (r, s + 1, z),
        // A wait that the target asked for is no restart.
        Expected::Run(RunReason::Resumed) if !matches!(c.row, Row::Deferred { .. }) => (r, s, z + 1),
        _ => (r, s, z),
    };
    let used = (after.retries_used, after.stale_retries_used, after.resumes_used);
    must(used == spent, "a run spends what its reason names, nothing else spends");
    must(used.0 <= 3 && used.1 <= 1 && used.2 <= 3, "counters stay in bounds");

    let unmarked = |claim: &Claim| Claim { mismatch_at: None, ..claim.clone() };
    match stopped {
        Some(Duplicate | Dismissed | InProgress) => {
            must(*changes == Changes::default(), "a stop of lines 2 and 4 changes nothing");
        }
        Some(PayloadMismatch) => {
            must(after.mismatch_at.is_some() && unmarked(after) == *before, "a mismatch is marked, no more");
        }
        Some(NeedsReview) => {
            must(
                matches!(after.state, State::Error { due: None, .. }),
                "needs_review is never due by itself",
            );
            let says_so = matches!(&after.state, State::Error { cause: ErrorCause::OutcomeUnknown, note, .. }
                if note.starts_with("outcome unknown: "));
            must(
                changes.claim.is_none() || !before.progress.unknown || says_so,
                "where a call is unknown, whoever looks is told so",
            );
        }
        _ => {}
    }
    let remembered = matches!(before.state, State::Done { .. }) && c.row != Row::DonePastRetention;
    let asks_again = got == Expected::Run(RunReason::SameRun);
    must(!remembered || asks_again || after.state == before.state, "done stays done");
    let is_live = |claim: &Claim| matches!(claim.state, State::Processing(_));
    if !new_attempt && is_live(before) && is_live(after) {
        must(after.record == before.record, "a live claim gets a record through line 10 only");
    }

    // A correction is a reset and keeps what it does not replace; the end of retention keeps nothing.
    let goes_on = !matches!(known(c), Err(_) | Ok(RunReason::SameRun));
    if goes_on && changes.claim.is_some() && (new_attempt || !is_live(before)) {
        let kept = Some(before).filter(|_| c.row != Row::DonePastRetention);
        let payload = request.fingerprint.or(kept.and_then(|k| k.fingerprint));
        let record = request.record.as_ref().or(kept.and_then(|k| k.record.as_ref()));
        must(after.fingerprint == payload, "the payload asked for, or else the one kept");
        must(after.record.as_ref() == record, "the record asked for, or else the one kept");
    }

    // "A stop is never the end of an effect that did not happen": somebody goes on, or it is listed.
    let ours = match &after.state {
        State::None { due } | State::Error { due, .. } => after.flow && due.is_some(),
        State::Processing(_) => after.flow,
        State::Done { .. } => false,
    };
    let listed = list_of(after, NOW, BOOT).is_some();
    if c.asks == Asks::Queue {
        must(!is_live(after) || is_live(before), "queueing starts nothing");
        must(stopped.is_some() || (after.flow && (ours || listed)), "what is queued is found again");
    }
    let by_line_5_to_10 = stopped.is_some() && (goes_on || matches!(stopped, Some(BackingOff | NeedsReview)));
    let called_back = c.retrigger && after.nudge.is_some();
    must(
        !(by_caller && by_line_5_to_10) || ours || listed || called_back,
        "a stopped caller's effect is listed",
    );
    must(
        after.nudge.is_none() || (called_back && after.parked.is_none()),
        "called back, or by hand, never both",
    );
    let waits = matches!(stopped, Some(BackingOff | Paused | FlagBusy | FlagUnreadable | RecordBusy));
    must(!(c.retrigger && by_caller && waits && !after.flow) || called_back, "a hook spares the person");

    match (&after.state, got, &before.state) {
        (State::Processing(l), Expected::Run(RunReason::SameRun), State::Processing(was)) => {
            let again = Lease { renewed: NOW.lease, same_runs: was.same_runs + 1, ..was.clone() };
            must(*l == again, "same_run restarts the lease and counts, no more");
        }
        (
            State::Done { at_claim: Some(a), .. },
            Expected::Run(RunReason::SameRun),
            State::Done { at_claim, .. },
        ) => {
            let again = at_claim.clone().map(|was| AtClaim { same_runs: was.same_runs + 1, ..was });
            must(again.as_ref() == Some(a), "same_run of what was done at its claim counts, no more");
        }
        (State::Processing(l), Expected::Run(_), _) => {
            let new = lease(l.holder.clone(), NOW.wall, NOW.lease);
            must(*l == new && !(c.at_claim && by_caller), "a run has a new lease, or is done at claim");
            must(matches!(l.holder, Holder::Caller { .. }) == by_caller, "the asker holds it");
        }
        (State::Done { at_claim, .. }, Expected::Run(_), _) => {
            must(c.at_claim && by_caller, "only at_claim is done at once");
            let asked = at_claim.as_ref().map(|a| (&a.run_id, a.claimed, a.same_runs));
            must(asked == run_id_of(request).map(|id| (id, NOW.lease, 0)), "its run may ask again");
        }
        (_, Expected::Run(_), _) => must(false, "what runs is processing or done"),
        _ => {}
    }
    must(!new_attempt || after.parked.is_none(), "what runs is not parked");

    let held = matches!(c.record, Record::HeldBy(_) | Record::Behind { stale: true, .. });
    let took = (new_attempt && held).then_some(OTHER);
    must(changes.record_taken_from == took, "a record is taken from a stale holder, on a run only");
    must(changes.corrected == c.is_corrected(), "a correction is told");
    let first = matches!(got, Expected::Run(RunReason::First | RunReason::FirstAfterRetention));
    must(changes.first_run == first, "first runs are counted");
    let silent = matches!(c.row, Row::Caller { held: Held::Stale | Held::Taken, .. });
    let ended = got == Expected::Run(RunReason::StaleRetry) || stopped == Some(NeedsReview);
    must(changes.went_stale == (silent && ended), "a silent caller counts once, when its attempt ends");
    broken
}

/// Checks `cell` of 0, 1, 2 … until the digits run over.
fn check_all(what: &str, cell: impl Fn(&mut Digits) -> Cell) {
    let (fixture, mut tally) = (Fixture::new(), Tally::default());
    for i in 0.. {
        let mut digits = Digits(i);
        let cell = cell(&mut digits);
        if digits.0 > 0 {
            break;
        } else if cell.is_possible() {
            let (facts, request, policy) = fixture.build(&cell);
            let verdict = decide(&facts, &request, &policy, NOW);
            // Deciding twice shows state that outlives a call at once; every eighth cell is enough for that.
            let again = (i % 8 == 0).then(|| decide(&facts, &request, &policy, NOW));
            assert!(again.is_none_or(|again| again == verdict), "not deterministic: {cell:?}");
            tally.cell(violations(&cell, &facts, &request, &verdict), || format!("{cell:?}\n  {verdict:?}"));
        }
    }
    tally.finish(what);
}

/// Lines 1 to 6: what is known about the key. Everything that they read is crossed; what only lines 7 to 11
/// read stands at its two ends, a free road and a wholly blocked one, because it must not matter here.
#[test]
fn what_is_known_about_the_key() {
    let mut blocked = Cell { hold: Some(Hold::Paused), flag: FlagSeen::BusyElsewhere, ..PLAIN };
    (blocked.at_loop_limit, blocked.at_claim, blocked.retrigger) = (true, true, true);
    let roads = [PLAIN, Cell { record: Record::Changed, ..PLAIN }, blocked];
    let mut rows_used = Vec::new();
    for row in rows() {
        let used = (0..32).map(|i| (i % 4, i / 4 % 2, i / 8));
        // Counters of what was never tried or is over must not matter: their two ends will do.
        let ends = |used: &(u32, u32, u32)| is_tried(row) || [(0, 0, 0), (3, 1, 3)].contains(used);
        rows_used.extend(used.filter(ends).map(|used| (row, used)));
    }
    check_all("lines 1 to 6", |d| {
        let mut c = d.of(&roads);
        (c.row, c.used) = d.of(&rows_used);
        (c.asks, c.payload, c.progress) = (d.of(&ASKS), d.of(&PAYLOADS), d.of(&PROGRESS));
        (c.ignore_mismatch, c.correction) = (d.of(&YES_NO), d.of(&YES_NO));
        (c.hold_stale, c.at_stale_streak) = (d.of(&YES_NO), d.of(&YES_NO));
        c
    });
}

/// Whether what an attempt spent can decide about the next.
fn is_tried(row: Row) -> bool {
    match row {
        Row::Caller { held, .. } => held != Held::Fresh,
        Row::Runner(_) | Row::Deferred { .. } | Row::Failed { .. } | Row::HandedBack { .. } => true,
        _ => false,
    }
}

/// Lines 7 to 11: what may start now. Everything that they read is crossed, for every row and the payloads
/// that lead past line 1 and into it; counters stand at none and one of each.
#[test]
fn what_may_start_now() {
    let differs = Cell { payload: Payload::Differs, ..PLAIN };
    let offers = [
        PLAIN,
        Cell { payload: Payload::None, ..PLAIN },
        Cell { ignore_mismatch: true, ..differs },
        Cell { correction: true, ..differs },
        Cell { correction: true, payload: Payload::None, ..PLAIN },
    ];
    let held =
        [Held::Fresh, Held::Stale, Held::Orphan, Held::OrphanPastTtl, Held::Elsewhere].map(Record::HeldBy);
    let others = [Record::None, Record::Free, Record::OfRow, Record::NewAndHeld, Record::Changed];
    let behind = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(stale, past_sla)| Record::Behind { stale, past_sla });
    let records = [&others[..], &behind[..], &held[..]].concat();
    let rows = rows();
    check_all("lines 7 to 11", |d| {
        let mut c = d.of(&offers);
        (c.row, c.record, c.asks) = (d.of(&rows), d.of(&records), d.of(&ASKS));
        c.hold = d.of(&[None, Some(Hold::Paused), Some(Hold::Incident)]);
        c.flag = d.of(&[FlagSeen::Clear, FlagSeen::BusyElsewhere, FlagSeen::Unreadable]);
        (c.at_loop_limit, c.at_claim, c.used) = (d.of(&YES_NO), d.of(&YES_NO), d.of(&[(0, 0, 0), (1, 1, 1)]));
        c.retrigger = d.of(&YES_NO);
        c
    });
}
