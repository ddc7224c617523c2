//! The second-level rule between lines 7 and 8 (C15), and records that are not the ones they were (C82).

use std::time::Duration;

use oncegate_core::claim::{Boot, Claim, Holder, Parked, State};
use oncegate_core::decide::{
    Decision, Facts, Hold, Original, Request, RunReason, Start, StopReason, Verdict, decide,
};
use oncegate_core::identity::{IdentityPrint, Likeness};
use oncegate_core::inbox::{InboxList, list_of};
use oncegate_core::key::{ClaimId, IdempotencyKey};
use oncegate_core::policy::{OnMismatch, Policy};
use oncegate_core::reset::{self, Act};

use crate::finish_table::{BOOT, Held, NOW, Row, caller, claim, facts, fingerprint};

const FIRST: ClaimId = ClaimId([9; 16]);

fn original() -> Option<Original> {
    Some(Original { id: FIRST, key: IdempotencyKey::try_from("s_5001").unwrap() })
}

fn repeating(claim: Option<Claim>) -> Facts {
    Facts { repeat_of: original(), ..facts(claim, BOOT) }
}

fn asks(start: Start) -> Request {
    let likeness = Some(Likeness { hash: [1; 16], within: Duration::from_secs(1800) });
    Request { start, likeness, ..Request::as_it_stands(Start::Queue) }
}

fn by_caller() -> Request {
    asks(Start::Now(caller(None)))
}

fn decided(facts: &Facts, request: &Request) -> Verdict {
    decide(facts, request, &Policy::default(), NOW)
}

fn stopped(verdict: &Verdict) -> Option<StopReason> {
    match &verdict.decision {
        Decision::Stop { reason, .. } => Some(*reason),
        Decision::Run(_) | Decision::Queued(_) => None,
    }
}

fn parked(verdict: &Verdict) -> Claim {
    let claim = verdict.changes.claim.clone().unwrap();
    assert_eq!((claim.parked, claim.repeat_of), (Some(Parked::Repeat), Some(FIRST)));
    assert_eq!((&claim.state, claim.nudge), (&State::None { due: None }, None), "it never runs by itself");
    assert_eq!(list_of(&claim, NOW, BOOT), Some(InboxList::Parked));
    claim
}

fn reset_by_a_person(claim: &Claim, run_now: bool) -> Claim {
    let act = Act::Reset { run_now, confirm_holder: None, verified: false };
    reset::act(claim, &act, &Policy::default(), NOW, Boot::alone(1)).unwrap()
}

#[test]
fn c15_a_repeat_is_parked_stays_parked_and_runs_once_a_person_says_so() {
    // A caller is told what it repeats; an event is acknowledged.
    let verdict = decided(&repeating(None), &by_caller());
    let Decision::Stop { reason: StopReason::Repeat, retry_after: None, note: Some(note) } =
        &verdict.decision
    else {
        panic!("{:?}", verdict.decision)
    };
    assert!(note.contains("repeat of s_5001"), "{note}");
    let of_caller = parked(&verdict);
    let verdict = decided(&repeating(None), &asks(Start::Queue));
    assert_eq!(verdict.decision, Decision::Queued(RunReason::First));
    let of_event = parked(&verdict);
    assert!(of_event.flow);
    // Whoever asks again, however much later, is told the same. The window is the store's to judge; what it once
    // found stays with the claim.
    for claim in [&of_caller, &of_event] {
        for facts in [repeating(Some(claim.clone())), facts(Some(claim.clone()), BOOT)] {
            assert_eq!(stopped(&decided(&facts, &by_caller())), Some(StopReason::Repeat));
            let by_runner = decided(&facts, &asks(Start::Now(Holder::Runner { boot: BOOT })));
            assert_eq!(stopped(&by_runner), Some(StopReason::Repeat));
            let next_event = decided(&facts, &asks(Start::Queue));
            assert!(next_event.changes.claim.is_none_or(|c| c.parked == Some(Parked::Repeat)));
            // Not even an import, which a person started, has looked at it.
            let other = Some(fingerprint("other"));
            let correction = Request { correction: true, fingerprint: other, ..by_caller() };
            let with_payload = Claim { fingerprint: Some(fingerprint("one")), ..claim.clone() };
            let facts = Facts { claim: Some(with_payload), ..facts };
            parked(&decided(&facts, &correction));
        }
    }
    // A person's word lets it run, although the store still finds what it repeats.
    let waiting = reset_by_a_person(&of_caller, false);
    assert_eq!(waiting.parked, Some(Parked::NeedsReplay));
    let ran = decided(&repeating(Some(waiting)), &by_caller());
    assert_eq!(ran.decision, Decision::Run(RunReason::First));
    assert_eq!(ran.changes.claim.unwrap().repeat_of, Some(FIRST), "it goes on having none of its own");
    let due = reset_by_a_person(&of_event, true);
    assert_eq!(due.state, State::None { due: Some(NOW.wall) });
    let ran = decided(&repeating(Some(due)), &asks(Start::Now(Holder::Runner { boot: BOOT })));
    assert_eq!(ran.decision, Decision::Run(RunReason::First));
    let later = reset_by_a_person(&of_event, false);
    let queued = decided(&repeating(Some(later)), &asks(Start::Queue));
    assert_eq!(queued.changes.claim.unwrap().parked, None);
}

#[test]
fn the_rule_stands_between_lines_7_and_8_and_takes_nothing_from_anybody() {
    for (hold, told) in [
        (Some(Hold::Paused), StopReason::Paused),
        (Some(Hold::Incident), StopReason::Incident),
        (None, StopReason::Repeat),
    ] {
        let mut facts = repeating(None);
        (facts.hold, facts.first_runs_of_record) = (hold, 5);
        let request = Request { record: Some(crate::finish_table::record("ann")), ..by_caller() };
        let verdict = decided(&facts, &request);
        assert_eq!(stopped(&verdict), Some(told));
        assert_eq!(verdict.changes.record_taken_from, None);
        let claim = verdict.changes.claim.unwrap();
        assert_eq!(claim.repeat_of, Some(FIRST), "known even if something else stops it");
        // No hook calls its tool back, whatever held it.
        assert_eq!(claim.nudge, None);
    }
}

#[test]
fn what_has_begun_is_known_or_was_looked_at_is_no_repeat() {
    let rows = [
        Row::Caller { run_1: false, held: Held::Stale, same_runs: 0, heard: false },
        Row::Runner(Held::Orphan),
        Row::Failed { due: true, flow: false },
        Row::Done,
        Row::Final,
    ];
    for row in rows {
        let claim = claim(row, fingerprint("a"), None);
        let verdict = decided(&repeating(claim.clone()), &by_caller());
        let without = decided(&facts(claim, BOOT), &by_caller());
        assert_eq!(verdict, without, "{row:?}");
    }
    let pruned = Facts { pruned_done_at: Some(NOW.wall), ..repeating(None) };
    assert_eq!(decided(&pruned, &by_caller()).decision, Decision::Run(RunReason::FirstAfterRetention));
}

fn print(of: u8) -> Option<IdentityPrint> {
    let mut bytes = [0; 16];
    bytes[15] = of;
    Some(IdentityPrint(bytes))
}

#[test]
fn c82_a_duplicate_of_another_record_is_told_so_and_stands_in_the_inbox() {
    for ignore in [false, true] {
        let mut policy = Policy::default();
        policy.on_mismatch = if ignore { OnMismatch::Ignore } else { OnMismatch::Stop };
        let done = Claim { identity: print(1), ..claim(Row::Done, fingerprint("a"), None).unwrap() };
        for (identity, changed) in [(print(2), true), (print(1), false), (None, false)] {
            let request = Request { identity, ..by_caller() };
            let verdict = decide(&facts(Some(done.clone()), BOOT), &request, &policy, NOW);
            let Decision::Stop { reason: StopReason::Duplicate, note, .. } = verdict.decision else {
                panic!("{:?}", verdict.decision)
            };
            assert_eq!(note.is_some_and(|n| n.contains("record identity changed")), changed);
            let list = verdict.changes.claim.as_ref().map(|c| list_of(c, NOW, BOOT));
            assert_eq!(list, changed.then_some(Some(InboxList::Mismatch)));
            let after = verdict.changes.claim.map(|c| Claim { mismatch_at: None, ..c });
            assert!(after.is_none_or(|c| c == done), "nothing else of it changes");
        }
    }
}

#[test]
fn a_retry_is_not_spent_on_another_record() {
    let failed = claim(Row::Failed { due: true, flow: false }, fingerprint("a"), None).unwrap();
    let failed = Claim { identity: print(1), ..failed };
    let request = Request { identity: print(2), ..by_caller() };
    let verdict = decided(&facts(Some(failed.clone()), BOOT), &request);
    let Decision::Stop { reason: StopReason::PayloadMismatch, note: Some(note), .. } = verdict.decision
    else {
        panic!("{:?}", verdict.decision)
    };
    assert!(note.contains("record identity changed"), "{note}");
    assert_eq!(verdict.changes.claim.unwrap().identity, print(1));
    // A person who has it start over means the record as it is now.
    let open = reset_by_a_person(&failed, false);
    let ran = decided(&facts(Some(open), BOOT), &request);
    assert_eq!(ran.decision, Decision::Run(RunReason::First));
    assert_eq!(ran.changes.claim.unwrap().identity, print(2));
}
