//! When the tool of a stopped caller is called back, and when that ends (DESIGN §3, `retrigger`).

use std::time::Duration;

use oncegate_core::claim::{Claim, Nudge, Parked};
use oncegate_core::decide::{Decision, Facts, Hold, RecordHolder, RunReason, decide};
use oncegate_core::finish::{Call, Failed, finish};
use oncegate_core::key::ClaimId;
use oncegate_core::limits;
use oncegate_core::nudge::{Verdict, nudge};
use oncegate_core::policy::{Jitter, Policy};
use oncegate_core::reset::{Act, act};

use crate::finish_table::{
    BOOT, Held, NOW, Row, ask, caller, claim, facts, fingerprint, held, later, record,
};

const MS: Duration = Duration::from_millis(1);

fn hooked() -> Policy {
    let mut policy = Policy::default();
    policy.retrigger = true;
    policy
}

fn waiting(row: Row, nudge: Nudge) -> Claim {
    let claim = claim(row, fingerprint("ann"), Some(record("ann"))).unwrap();
    Claim { nudge: Some(nudge), parked: None, ..claim }
}

fn on(claim: &Claim) -> Facts {
    facts(Some(claim.clone()), BOOT)
}

#[test]
fn a_hook_is_called_three_times_ever_later_and_then_a_person_is() {
    let mut now = NOW;
    let mut claim = waiting(Row::New, Nudge { due: NOW.wall, unanswered: 0 });
    for wait in limits::NUDGE_AGAIN_AFTER {
        let Verdict::Send(sent, RunReason::First) = nudge(&on(&claim), &hooked(), now) else {
            panic!("after {:?}", now.wall.since(NOW.wall));
        };
        let due = now.wall.after(wait);
        assert_eq!(sent.nudge.map(|n| n.due), Some(due));
        assert_eq!(Claim { nudge: claim.nudge, ..sent.clone() }, claim, "nothing else changes");
        assert_eq!(nudge(&on(&sent), &hooked(), later(now, wait - MS)), Verdict::Wait);
        (claim, now) = (sent, later(now, wait));
    }
    let Verdict::GiveUp(given_up, why) = nudge(&on(&claim), &hooked(), now) else {
        panic!("called for ever")
    };
    assert_eq!((given_up.nudge, given_up.parked), (None, Some(Parked::NeedsReplay)), "{why}");
    assert_eq!(nudge(&on(&given_up), &hooked(), now), Verdict::Over(None));
}

/// What a claim would be told decides: nothing is sent that would be stopped.
#[test]
fn a_hook_is_called_only_when_its_claim_would_run() {
    let due = Nudge { due: NOW.wall, unanswered: 0 };
    let busy = RecordHolder { id: ClaimId([2; 16]), lease: held(caller(None), Held::Fresh) };
    let plain = on(&waiting(Row::New, due));
    for (what, facts, sent) in [
        ("free", plain.clone(), Some(true)),
        ("paused", Facts { hold: Some(Hold::Paused), ..plain.clone() }, Some(false)),
        ("record busy", Facts { record_holder: Some(busy), ..plain.clone() }, Some(false)),
        ("error due", on(&waiting(Row::Failed { due: true, flow: false }, due)), Some(true)),
        ("error due later", on(&waiting(Row::Failed { due: false, flow: false }, due)), Some(false)),
        ("for a person", on(&waiting(Row::Final, due)), None),
        ("dismissed", on(&waiting(Row::Dismissed, due)), None),
        ("a loop", Facts { first_runs_of_record: 5, ..plain.clone() }, None),
        (
            "somebody is on it",
            on(&waiting(Row::Caller { run_1: true, held: Held::Fresh, same_runs: 0, heard: false }, due)),
            None,
        ),
    ] {
        match (nudge(&facts, &hooked(), NOW), sent) {
            (Verdict::Send(..), Some(true)) | (Verdict::Wait, Some(false)) => {}
            (Verdict::Over(Some(after)), None) => assert_eq!(after.nudge, None, "{what}"),
            (verdict, _) => panic!("{what}: {verdict:?}"),
        }
    }
    let no_hook = nudge(&plain, &Policy::default(), NOW);
    assert!(matches!(
        no_hook,
        Verdict::GiveUp(Claim { parked: Some(Parked::NeedsReplay), nudge: None, .. }, _)
    ));
}

#[test]
fn a_claim_answers_the_hook_and_a_run_ends_it() {
    let asked = waiting(Row::New, Nudge { due: NOW.wall, unanswered: 2 });
    let stopped =
        decide(&Facts { hold: Some(Hold::Paused), ..on(&asked) }, &ask(caller(None)), &hooked(), NOW);
    let nudge = stopped.changes.claim.unwrap().nudge.unwrap();
    assert_eq!(nudge.unanswered, 0, "the tool was heard of");
    let run = decide(&on(&asked), &ask(caller(None)), &hooked(), NOW);
    assert_eq!(run.decision, Decision::Run(RunReason::First));
    let run = run.changes.claim.unwrap();
    assert_eq!(run.nudge, None);

    // The run fails: nobody else comes back when the retry is due.
    let call = Call::Error { failure: Failed::Retryable { retry_after: None }, note: "503".into() };
    let failed = |policy: &Policy| finish(&run, run.fence(), &call, policy, NOW, Jitter::NONE).claim.unwrap();
    let due = NOW.wall.after(Duration::from_secs(30));
    assert_eq!(failed(&hooked()).nudge, Some(Nudge { due, unanswered: 0 }));
    assert_eq!(failed(&Policy::default()).nudge, None);
    // Our own runner does come back: nobody is to be called.
    let ours = Claim { flow: true, ..run.clone() };
    let failed = finish(&ours, ours.fence(), &call, &hooked(), NOW, Jitter::NONE).claim.unwrap();
    assert_eq!(failed.nudge, None);
}

#[test]
fn run_now_calls_the_hook_and_a_reset_alone_does_not() {
    for row in
        [Row::New, Row::Final, Row::Waiting(Parked::NeedsReplay), Row::Failed { due: false, flow: false }]
    {
        let claim = claim(row, fingerprint("ann"), None).unwrap();
        for run_now in [true, false] {
            let reset = Act::Reset { run_now, confirm_holder: None, verified: false };
            let Ok(after) = act(&claim, &reset, &hooked(), NOW, BOOT) else {
                assert!(row == Row::New && !run_now, "{row:?}");
                continue;
            };
            let expected = match run_now {
                true => (Some(Nudge { due: NOW.wall, unanswered: 0 }), None),
                false => (None, Some(Parked::NeedsReplay)),
            };
            assert_eq!((after.nudge, after.parked), expected, "{row:?}");
            let by_hand = act(&claim, &reset, &Policy::default(), NOW, BOOT);
            assert!(by_hand.is_err() || by_hand.unwrap().nudge.is_none(), "{row:?}: there is no hook");
        }
    }
}
