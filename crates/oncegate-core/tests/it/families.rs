//! Claims whose holder works for another's: the child ends no later than its parent, is void with it, and shares its
//! record with nobody else.

use oncegate_core::claim::{Claim, Lease, Parent, State};
use oncegate_core::decide::{Facts, RunReason, decide};
use oncegate_core::family::{Followed, follow};
use oncegate_core::finish::{Answer, Call, Failed, finish};
use oncegate_core::key::ClaimId;
use oncegate_core::policy::{Jitter, Policy};
use oncegate_core::time::LeaseInstant;

use crate::finish_table::{BOOT, Held, ME, NOW, Row, ask, caller, claim, facts, fingerprint, record};

const CHILD: ClaimId = ClaimId([3; 16]);
const GRAND: ClaimId = ClaimId([4; 16]);

fn parent() -> Claim {
    let row = Row::Caller { run_1: true, held: Held::Fresh, same_runs: 0, heard: false };
    claim(row, fingerprint("ann"), Some(record("ann"))).unwrap()
}

fn lease(claim: &Claim) -> &Lease {
    match &claim.state {
        State::Processing(lease) => lease,
        state => panic!("{state:?}"),
    }
}

/// A child that was started just now for that attempt, as `decide` makes it.
fn child_of(parent: &Claim, shares_record: bool) -> Claim {
    let tie = Parent { id: parent.id, ends: lease(parent).expires(), shares_record };
    let facts = Facts { id: CHILD, parent: Some(tie.clone()), ..facts(None, BOOT) };
    let mut request = ask(caller(None));
    request.record = Some(record("ann"));
    let verdict = decide(&facts, &request, &Policy::default(), NOW);
    assert_eq!(verdict.decision, oncegate_core::decide::Decision::Run(RunReason::First));
    let child = verdict.changes.claim.unwrap();
    assert_eq!(lease(&child).parent, Some(tie));
    child
}

fn said(claim: &Claim, call: &Call) -> Claim {
    let finished = finish(claim, claim.fence(), call, &Policy::default(), NOW, Jitter::NONE);
    assert_eq!(finished.answer, Answer::Accepted);
    finished.claim.unwrap()
}

#[test]
fn a_child_ends_no_later_than_its_parent_whatever_it_says() {
    let parent = parent();
    let child = child_of(&parent, true);
    assert!(lease(&child).renewed.after(lease(&child).ttl.get()) > lease(&parent).expires());
    assert_eq!(lease(&child).expires(), lease(&parent).expires());
    assert!(!lease(&child).keeps_record(), "the record is the parent's");
    let alive = said(&child, &Call::Heartbeat);
    assert_eq!(
        lease(&alive).expires(),
        lease(&parent).expires(),
        "a sign of life of its own changes nothing"
    );
    // That of its parent does.
    let carried_on = said(&parent, &Call::Heartbeat);
    let (alive, what) = follow(&parent, &carried_on, &alive, NOW).unwrap();
    assert_eq!((what, lease(&alive).expires()), (Followed::Carried, lease(&carried_on).expires()));
    assert_eq!(alive.fence(), child.fence(), "its token holds");
}

#[test]
fn a_child_is_void_and_stale_when_its_parents_token_is() {
    let parent = parent();
    let voided = Claim { generation: parent.generation + 1, ..parent.clone() };
    let taken_over = Claim { attempt: parent.attempt + 1, ..parent.clone() };
    for after in [voided, taken_over] {
        let child = child_of(&parent, true);
        let (void, what) = follow(&parent, &after, &child, NOW).unwrap();
        assert_eq!(what, Followed::Voided);
        let late = finish(&void, child.fence(), &Call::Done, &Policy::default(), NOW, Jitter::NONE);
        assert_eq!(late.answer, Answer::LostClaim);
        assert!(lease(&void).expires() <= NOW.lease, "people see it, and its next claim is judged, at once");
        assert!(!lease(&void).keeps_record() && lease(&void).parent.is_none());
        assert_eq!(
            oncegate_core::inbox::list_of(&void, NOW, BOOT),
            Some(oncegate_core::inbox::InboxList::Stuck)
        );
    }
}

#[test]
fn a_child_goes_on_when_its_parent_ends_and_keeps_the_record() {
    let failure = Failed::Retryable { retry_after: None };
    for call in [Call::Done, Call::Error { failure, note: "503".into() }] {
        let parent = parent();
        let ended = said(&parent, &call);
        for shares in [true, false] {
            let child = child_of(&parent, shares);
            let (alone, what) = follow(&parent, &ended, &child, NOW).unwrap();
            assert_eq!((what, alone.fence()), (Followed::LetGo, child.fence()));
            assert_eq!(lease(&alone).parent, None);
            assert!(lease(&alone).keeps_record(), "somebody is at work on it");
            let own_end = lease(&alone).renewed.after(lease(&alone).ttl.get());
            assert_eq!(lease(&alone).expires(), own_end, "until its own end");
        }
    }
}

#[test]
fn a_grandchild_falls_to_its_grandparent_and_is_void_with_it() {
    let grand = Parent { id: GRAND, ends: NOW.lease, shares_record: true };
    for (grand, keeps) in [(grand.clone(), false), (Parent { shares_record: false, ..grand }, true)] {
        let mut middle = parent();
        if let State::Processing(lease) = &mut middle.state {
            lease.parent = Some(Parent { ends: LeaseInstant(i64::MAX), ..grand.clone() });
        }
        let child = child_of(&middle, true);
        let (child, _) = follow(&middle, &said(&middle, &Call::Done), &child, NOW).unwrap();
        assert_eq!(lease(&child).parent.as_ref().map(|p| p.id), Some(GRAND));
        assert_eq!(lease(&child).keeps_record(), keeps, "what its parent shared, it shares");
    }
}

#[test]
fn nobody_follows_a_stranger() {
    let stranger = Claim { id: ClaimId([9; 16]), ..parent() };
    let child = child_of(&parent(), true);
    assert_eq!(follow(&stranger, &said(&stranger, &Call::Done), &child, NOW), None);
    assert_eq!(parent().id, ME);
}
