//! After a restore: what is held, what is parked, what runs.

use std::sync::Arc;

use oncegate_core::claim::{Claim, Holder, Parked, State};
use oncegate_core::decide::{Decision, Facts, Hold, Request, Start, decide};
use oncegate_core::limits;
use oncegate_core::policy::Policy;
use oncegate_core::recovery::{Gap, Restores};
use oncegate_core::time::{LeaseInstant, Now, Timestamp};

use crate::finish_table::{ask, facts};

const BACKUP: Timestamp = Timestamp::from_secs(1_767_600_000);
const RESTORE: Timestamp = Timestamp::from_secs(1_767_607_200);
const NOW: Now = Now { wall: Timestamp::from_secs(1_767_610_800), lease: LeaseInstant(0) };
const GAP: Gap = Gap { backup_at: BACKUP, restored_at: RESTORE };

fn restored(hold: Option<Hold>, claim: Option<Claim>) -> Facts {
    Facts { hold, restores: Arc::new(Restores::default().with(GAP)), ..facts(claim, Default::default()) }
}

fn event(dated: Option<Timestamp>) -> Request {
    Request { start: Start::Queue, dated, ..ask(Holder::Caller { run_id: None }) }
}

fn after(facts: &Facts, request: &Request) -> (String, Option<Claim>) {
    let verdict = decide(facts, request, &Policy::default(), NOW);
    let words = match verdict.decision {
        Decision::Run(reason) => format!("run {}", reason.as_str()),
        Decision::Queued(reason) => format!("queued {}", reason.as_str()),
        Decision::Stop { reason, .. } => format!("stop {}", reason.as_str()),
    };
    (words, verdict.changes.claim)
}

#[test]
fn an_event_is_parked_if_it_may_have_been_done_in_the_gap() {
    let second = std::time::Duration::from_secs(1);
    let oldest = BACKUP.before(limits::SENDER_RETRIES_FOR);
    let newest = RESTORE.after(limits::CLOCK_SLACK);
    for (hold, dated, parked) in [
        (None, None, false),
        (None, Some(BACKUP.after(second)), true),
        (None, Some(oldest), true),
        (None, Some(oldest.before(second)), false),
        (None, Some(newest), true),
        (None, Some(newest.after(second)), false),
        (Some(Hold::Paused), Some(BACKUP), true),
        (Some(Hold::Recovery), None, true),
        (Some(Hold::Recovery), Some(newest.after(second)), true),
    ] {
        let (words, claim) = after(&restored(hold, None), &event(dated));
        let claim = claim.unwrap();
        assert_eq!(words, "queued first", "the sender is acknowledged");
        let due = match claim.state {
            State::None { due } => due,
            _ => panic!("{:?}", claim.state),
        };
        let expected = if parked { (None, Some(Parked::Restored)) } else { (Some(NOW.wall), None) };
        assert_eq!((due, claim.parked, claim.flow), (expected.0, expected.1, true), "{hold:?} {dated:?}");
    }
    // A key that was done before the backup is known, however it is dated.
    let known = Facts { pruned_done_at: Some(BACKUP), ..restored(None, None) };
    assert_eq!(after(&known, &event(Some(BACKUP))).1.unwrap().parked, None);
    // Without a restore no date is doubtful.
    let facts = Facts { restores: Arc::default(), ..restored(None, None) };
    assert_eq!(after(&facts, &event(Some(BACKUP))).1.unwrap().parked, None);
}

#[test]
fn what_is_parked_stays_so_until_a_person_says_otherwise() {
    let caller = ask(Holder::Caller { run_id: None });
    let (words, claim) = after(&restored(Some(Hold::Recovery), None), &caller);
    assert_eq!(words, "stop paused");
    let parked = claim.unwrap();
    assert_eq!(parked.parked, Some(Parked::Restored));
    let again = restored(Some(Hold::Recovery), Some(parked.clone()));
    let (words, claim) = after(&again, &caller);
    assert_eq!((words.as_str(), claim.unwrap().parked), ("stop paused", Some(Parked::Restored)));
    let ended = restored(None, Some(parked.clone()));
    for holder in [Holder::Caller { run_id: None }, Holder::Runner { boot: Default::default() }] {
        assert_eq!(after(&ended, &ask(holder)), ("stop needs_review".to_owned(), None));
    }
    let (_, claim) = after(&ended, &event(None));
    assert_eq!(claim.map(|c| (c.parked, c.state)), Some((Some(Parked::Restored), State::None { due: None })));
    // In recovery, what a person has reset waits as it does in a pause.
    let reset = Claim { parked: Some(Parked::NeedsReplay), ..parked };
    let (words, claim) = after(&restored(Some(Hold::Recovery), Some(reset.clone())), &caller);
    assert_eq!((words.as_str(), claim.unwrap().parked), ("stop paused", Some(Parked::NeedsReplay)));
    assert_eq!(after(&restored(None, Some(reset)), &caller).0, "run first");
}

#[test]
fn attempts_after_a_restore_have_generations_above_all_before_it() {
    let caller = ask(Holder::Caller { run_id: None });
    let once = Restores::default().with(GAP);
    let claim = after(&restored(None, None), &caller).1.unwrap();
    assert_eq!((claim.attempt, claim.generation), (1, once.generation_floor));
    assert!(u64::from(once.generation_floor) >= RESTORE.as_secs().unsigned_abs());
    // Twice within a second, and by a clock that was set back.
    let twice = once.clone().with(GAP);
    assert!(twice.generation_floor > once.generation_floor);
    let back =
        twice.clone().with(Gap { backup_at: Timestamp::from_secs(0), restored_at: Timestamp::from_secs(5) });
    assert!(back.generation_floor > twice.generation_floor);
    let many = (0..40).fold(back, |restores, _| restores.with(GAP));
    assert_eq!(many.gaps.len(), limits::RESTORES_REMEMBERED);
}
