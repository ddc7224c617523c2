//! Every state × every act of a person × its confirmations (DESIGN §3, "Reset"); and random histories of
//! one claim, for what must hold however calls, time, restarts and resets interleave.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_core::claim::{Boot, Claim, ErrorCause, Holder, Lease, Parked, State};
use oncegate_core::decide::{Decision, RunReason, StopReason, decide};
use oncegate_core::finish::{Answer, Call, Failed, finish};
use oncegate_core::inbox::{InboxList, list_of};
use oncegate_core::policy::{Jitter, Policy};
use oncegate_core::reset::{Act, Refusal, act};
use oncegate_core::time::{Now, Timestamp};
use oncegate_core::token::Fence;
use proptest::prelude::*;

use crate::finish_table::{
    BOOT, Held, ME, NOW, Row, ask, caller, claim, facts, fingerprint, later, record, rows,
};

/// Broken sentences, each with how many cells break it and the first of them: one run shows every deviation.
#[derive(Default)]
pub(crate) struct Tally {
    cells: u64,
    broken: BTreeMap<String, (u64, String)>,
}

impl Tally {
    pub(crate) fn cell(&mut self, broken: Vec<String>, cell: impl Fn() -> String) {
        self.cells += 1;
        for what in broken {
            self.broken.entry(what).or_insert_with(|| (0, cell())).0 += 1;
        }
    }

    #[expect(clippy::print_stdout, reason = "how many cells there are is what a reader of a test run asks")]
    pub(crate) fn finish(self, table: &str) {
        println!("{table}: {} cells", self.cells);
        let list: Vec<_> =
            self.broken.iter().map(|(s, (n, first))| format!("{n} × {s}\n  {first}")).collect();
        assert!(list.is_empty(), "{} kinds of deviation from DESIGN §3:\n{}", list.len(), list.join("\n"));
    }
}

/// Counts through a product of axes: each cell is one number, taken apart digit by digit.
pub(crate) struct Digits(pub(crate) usize);

impl Digits {
    pub(crate) fn of<T: Copy>(&mut self, axis: &[T]) -> T {
        let digit = self.0 % axis.len();
        self.0 /= axis.len();
        axis[digit]
    }
}

/// Somebody is alive on it. A deferred attempt waits, but it is held; what an earlier boot left is "certainly
/// dead" and needs no more confirmation than what went stale.
fn is_live(row: Row) -> bool {
    matches!(
        row,
        Row::Caller { held: Held::Fresh, .. }
            | Row::Runner(Held::Fresh | Held::Elsewhere)
            | Row::Deferred { .. }
    )
}

/// Whether an act is carried out. `marked`: another payload or a late call is waiting to be looked at.
fn is_accepted(row: Row, claim: &Claim, what: &Act, marked: bool) -> bool {
    let is_done = matches!(claim.state, State::Done { .. });
    match what {
        Act::Reset { run_now, confirm_holder, verified } => match row {
            Row::Done | Row::DoneAtClaim { .. } | Row::DonePastRetention => *verified,
            Row::New | Row::Queued => false, // nothing to reset
            Row::ResetFlow => *run_now,      // "run now" is all that is left to ask for
            row if is_live(row) => *confirm_holder == claim.holder_name(),
            _ => true,
        },
        // All of a reset, and it may ask for what is `none` already.
        Act::FromStart { confirm_holder, verified, .. } => match row {
            Row::Done | Row::DoneAtClaim { .. } | Row::DonePastRetention => *verified,
            row if is_live(row) => *confirm_holder == claim.holder_name(),
            _ => true,
        },
        Act::MarkError { .. } => true,
        Act::MarkDone => matches!(claim.state, State::Error { .. }),
        Act::Approve | Act::Decline => row == Row::Review,
        Act::Dismiss if is_done || row == Row::Dismissed => marked,
        Act::Dismiss => !is_live(row),
    }
}

fn acts(claim: &Claim) -> Vec<Act> {
    let mut acts = vec![Act::MarkError { note: "mass duplicates".to_owned() }, Act::MarkDone, Act::Dismiss];
    acts.extend([Act::Approve, Act::Decline]);
    for confirm_holder in [None, claim.holder_name(), Some("somebody else".to_owned())] {
        for (run_now, verified) in [(false, false), (false, true), (true, false), (true, true)] {
            acts.push(Act::Reset { run_now, confirm_holder: confirm_holder.clone(), verified });
            let (confirm_holder, confirm_sent) = (confirm_holder.clone(), vec![]);
            let new_keys = run_now != verified;
            acts.push(Act::FromStart { run_now, confirm_holder, verified, confirm_sent, new_keys });
        }
    }
    acts
}

/// Who does the work of a claim.
fn owner(claim: &Claim) -> Holder {
    if claim.flow { Holder::Runner { boot: BOOT } } else { caller(None) }
}

/// What an accepted act leaves behind.
fn check_effect(row: Row, before: &Claim, what: &Act, after: &Claim, cell: &str) {
    let looked_at = Claim { mismatch_at: None, late_at: None, ..before.clone() };
    if *what == Act::Dismiss && (before.dismissed || matches!(before.state, State::Done { .. })) {
        return assert_eq!(*after, looked_at, "looking at a mark changes nothing else: {cell}");
    }
    if *what == Act::Approve {
        let State::Processing(lease) = &after.state else { panic!("{cell}") };
        let state =
            State::Processing(Lease { deferred_until: Some(NOW.wall), renewed: NOW.lease, ..lease.clone() });
        let approved = Claim { state, parked: None, open_since: NOW.wall, ..before.clone() };
        assert_eq!(*after, approved, "it is due, no more: {cell}");
        let verdict = decide(&facts(Some(after.clone()), BOOT), &ask(owner(after)), &Policy::default(), NOW);
        return assert_eq!(verdict.decision, Decision::Run(RunReason::Resumed), "{cell}");
    }
    let late = finish(after, before.fence(), &Call::Done, &Policy::default(), NOW, Jitter::NONE);
    assert_eq!(late.answer, Answer::LostClaim, "the old token is void: {cell}");
    let kept = |c: &Claim| (c.id, c.fingerprint, c.record.clone(), c.flow);
    assert_eq!(kept(after), kept(before), "history, payload and key are kept: {cell}");
    // Done steps stay done, unless the whole effect was: to run it again is to run all of it again.
    let from_start = matches!(what, Act::FromStart { .. });
    let all_again =
        from_start || (matches!(before.state, State::Done { .. }) && !matches!(what, Act::MarkDone));
    let new_keys = match what {
        Act::FromStart { new_keys, .. } => *new_keys,
        _ => all_again,
    };
    let keys = if new_keys { after.resets } else { before.key_generation };
    assert_eq!(after.key_generation, keys, "receivers see new keys only where that is meant: {cell}");
    assert_eq!(after.progress.succeeded, before.progress.succeeded && !all_again, "{cell}");
    assert_eq!(after.steps_since == after.resets, all_again || before.resets == after.resets, "{cell}");
    assert!(after.attempt >= before.attempt && after.generation > before.generation, "{cell}");
    match (what, &after.state) {
        (Act::Reset { run_now, .. } | Act::FromStart { run_now, .. }, State::None { due }) => {
            assert_eq!(*due, (*run_now && before.flow).then_some(NOW.wall), "only a flow runs now: {cell}");
            let used = (after.retries_used, after.stale_retries_used, after.resumes_used);
            assert_eq!((used, after.dismissed), ((0, 0, 0), false), "fresh retries: {cell}");
            let verdict =
                decide(&facts(Some(after.clone()), BOOT), &ask(owner(after)), &Policy::default(), NOW);
            assert_eq!(verdict.decision, Decision::Run(RunReason::First), "{cell}");
            // An effect that did not happen is never in no list and in nobody's hands.
            assert_eq!(
                list_of(after, NOW, BOOT).is_some(),
                due.is_none() || after.late_at.is_some(),
                "{cell}"
            );
        }
        (
            Act::MarkError { note },
            State::Error {
                due: None,
                cause: ErrorCause::Marked | ErrorCause::MarkedAfterDone,
                note: tag,
                ..
            },
        ) => {
            assert_eq!((note, list_of(after, NOW, BOOT)), (tag, Some(InboxList::Error)), "{cell}");
        }
        (Act::MarkDone, State::Done { .. }) => {
            let unmarked = Claim { mismatch_at: None, late_at: None, ..after.clone() };
            assert_eq!(
                list_of(&unmarked, NOW, BOOT),
                None,
                "it did happen, so nothing is to be done: {cell}"
            );
        }
        (Act::Dismiss | Act::Decline, _) => {
            let verdict =
                decide(&facts(Some(after.clone()), BOOT), &ask(caller(None)), &Policy::default(), NOW);
            let dismissed = Decision::Stop { reason: StopReason::Dismissed, retry_after: None, note: None };
            assert_eq!((verdict.decision, list_of(after, NOW, BOOT)), (dismissed, None), "{cell}");
        }
        (_, state) => panic!("{what:?} leaves {state:?}: {cell} {row:?}"),
    }
}

#[test]
fn every_act_in_every_state() {
    let (mut cells, mut broken) = (0, Vec::new());
    for row in rows() {
        let Some(claim) = claim(row, fingerprint("ann"), Some(record("ann"))) else { continue };
        for what in acts(&claim) {
            for (marked, parked) in [(false, false), (true, false), (false, true), (true, true)] {
                cells += 1;
                let mut before =
                    Claim { retries_used: 3, stale_retries_used: 1, resumes_used: 3, ..claim.clone() };
                before.progress.succeeded = true;
                before.late_at = marked.then_some(NOW.wall);
                // A caller that was stopped while an error backed off or a lease was stale.
                let holds = matches!(before.state, State::Error { .. } | State::Processing(_));
                if parked && holds && row != Row::Review {
                    before.parked = Some(Parked::NeedsReplay);
                }
                let cell = format!("{row:?}, {what:?}, marked {marked}, parked {parked}");
                let result = act(&before, &what, &Policy::default(), NOW, BOOT);
                if result.is_ok() != is_accepted(row, &before, &what, marked) {
                    broken.push(format!("{cell}: {result:?}"));
                    continue;
                }
                match result {
                    Ok(after) => check_effect(row, &before, &what, &after, &cell),
                    // C96: the second confirmation names the live owner.
                    Err(refusal)
                        if is_live(row) && !matches!(what, Act::MarkDone | Act::Approve | Act::Decline) =>
                    {
                        let holder = before.holder_name().unwrap();
                        assert!(refusal.to_string().contains(&holder), "{cell}: {refusal}");
                        let named = matches!(refusal, Refusal::LiveHolder { attempt: 7, .. });
                        // Dismissing has no confirmation: whoever means it resets first.
                        assert!(
                            named || matches!((&what, refusal), (Act::Dismiss, Refusal::Busy(_))),
                            "{cell}"
                        );
                    }
                    Err(_) => {}
                }
            }
        }
    }
    println!("reset: {cells} cells");
    assert!(broken.is_empty(), "{} cells deviate:\n{}", broken.len(), broken.join("\n"));
}

/// Whatever people do one after another, the row stays one that a store accepts: only what waits or failed is
/// dismissed.
#[test]
fn no_sequence_of_acts_leaves_a_row_that_cannot_be() {
    let reset = Act::Reset { run_now: true, confirm_holder: None, verified: true };
    let acts = [Act::MarkError { note: "tag".to_owned() }, Act::MarkDone, Act::Dismiss, reset];
    for row in rows() {
        let Some(first) = claim(row, fingerprint("ann"), Some(record("ann"))) else { continue };
        for sequence in 0..acts.len().pow(4) {
            let mut now = first.clone();
            for nth in 0..4 {
                let what = &acts[sequence / acts.len().pow(nth) % acts.len()];
                now = act(&now, what, &Policy::default(), NOW, BOOT).unwrap_or(now);
                let may_be_dismissed = matches!(now.state, State::None { .. } | State::Error { .. });
                assert!(!now.dismissed || may_be_dismissed, "{row:?}, sequence {sequence}: {now:?}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// One of two callers claims; each repeats its own `run_id`.
    Claim(usize),
    Runner,
    /// Any token given out so far, counted from the latest.
    Say(usize, Call),
    Wait(Duration),
    Restart,
    Reset {
        confirmed: bool,
        verified: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let error = |failure| Call::Error { failure, note: "503".to_owned() };
    let call = prop_oneof![
        2 => Just(Call::Done),
        4 => Just(error(Failed::Retryable { retry_after: None })),
        1 => Just(error(Failed::Final)),
        1 => Just(error(Failed::Unknown)),
        3 => Just(Call::Heartbeat),
    ];
    let wait = prop_oneof![
        8 => prop::sample::select(vec![1, 40, 5 * 60, 16 * 60, 40 * 60]),
        1 => Just(91 * 86_400_u64),
    ];
    prop_oneof![
        6 => (0..2_usize).prop_map(Step::Claim),
        4 => Just(Step::Runner),
        6 => (0..4_usize, call).prop_map(|(token, call)| Step::Say(token, call)),
        6 => wait.prop_map(|s| Step::Wait(Duration::from_secs(s))),
        2 => Just(Step::Restart),
        1 => any::<(bool, bool)>().prop_map(|(confirmed, verified)| Step::Reset { confirmed, verified }),
    ]
}

/// One claim and what an onlooker writes down about it.
struct World {
    claim: Option<Claim>,
    now: Now,
    boot: Boot,
    /// Every token given out, oldest first.
    given: Vec<Fence>,
    /// Runs by reason since the claim was last new.
    runs: BTreeMap<RunReason, u32>,
    /// Until when "done" has been promised to be remembered.
    done_until: Option<Timestamp>,
}

impl World {
    fn new() -> Self {
        let (given, runs) = (Vec::new(), BTreeMap::new());
        Self { claim: None, now: NOW, boot: BOOT, given, runs, done_until: None }
    }

    fn ask(&mut self, holder: Holder) {
        let facts = facts(self.claim.clone(), self.boot);
        let verdict = decide(&facts, &ask(holder), &Policy::default(), self.now);
        self.claim = verdict.changes.claim.or(self.claim.take());
        let Decision::Run(reason) = verdict.decision else { return };
        let fence = self.claim.as_ref().unwrap().fence();
        if reason == RunReason::SameRun {
            return assert_eq!(self.given.last(), Some(&fence), "same_run gives the same token");
        }
        assert!(!self.given.contains(&fence), "a new run has a new token");
        self.given.push(fence);
        if reason == RunReason::FirstAfterRetention {
            assert!(self.done_until.take().is_some_and(|t| t <= self.now.wall), "retention has ended");
            self.runs.clear();
        }
        assert_eq!(self.done_until, None, "what is done does not run again");
        *self.runs.entry(reason).or_default() += 1;
    }

    fn say(&mut self, nth_latest: usize, call: &Call) {
        let (Some(claim), Some(fence)) = (&self.claim, self.given.iter().rev().nth(nth_latest)) else {
            return;
        };
        let said = finish(claim, *fence, call, &Policy::default(), self.now, Jitter::NONE);
        if *call == Call::Done && said.answer == Answer::Accepted {
            self.done_until = Some(self.now.wall.after(Policy::default().retention()));
        }
        self.claim = said.claim.or(self.claim.take());
    }

    fn reset(&mut self, confirmed: bool, verified: bool) {
        let Some(claim) = &self.claim else { return };
        let confirm_holder = confirmed.then(|| claim.holder_name()).flatten();
        let what = Act::Reset { run_now: false, confirm_holder, verified };
        let Ok(after) = act(claim, &what, &Policy::default(), self.now, self.boot) else { return };
        assert!(verified || self.done_until.is_none(), "done is reset only when verified");
        (self.done_until, self.claim) = (None, Some(after));
        self.runs.clear();
    }

    fn take(&mut self, step: &Step) {
        let attempt = self.claim.as_ref().map_or(0, |c| c.attempt);
        match step {
            Step::Claim(who) => self.ask(caller(Some(["run-a", "run-b"][*who]))),
            Step::Runner => self.ask(Holder::Runner { boot: self.boot }),
            Step::Say(token, call) => self.say(*token, call),
            Step::Wait(d) => self.now = later(self.now, *d),
            Step::Restart => self.boot.start += 1,
            Step::Reset { confirmed, verified } => self.reset(*confirmed, *verified),
        }
        let Some(claim) = &self.claim else { return };
        assert_eq!(claim.id, ME);
        assert!(claim.attempt >= attempt, "attempts never fall");
        let holds = |f: &&Fence| {
            let said = finish(claim, **f, &Call::Done, &Policy::default(), self.now, Jitter::NONE);
            said.answer != Answer::LostClaim
        };
        assert!(self.given.iter().filter(holds).count() <= 1, "at most one token holds");
        let is_done = matches!(claim.state, State::Done { .. });
        assert_eq!(is_done, self.done_until.is_some(), "done stays done");
        use RunReason::*;
        let most = [(First, 1), (FirstAfterRetention, 1), (Retry, 3), (StaleRetry, 1), (Resumed, 3)];
        for (reason, most) in most {
            let runs = self.runs.get(&reason).copied().unwrap_or_default();
            assert!(runs <= most, "{runs} runs for the reason {}", reason.as_str());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn no_history_breaks_the_promise(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
    }
}
