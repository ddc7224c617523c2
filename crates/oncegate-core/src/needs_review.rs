//! What becomes of a claim that may not run again before a person has looked, and what that person is told.

use crate::claim::{Claim, ErrorCause, State};
use crate::time::Now;

/// How a note begins that tells a person to look first.
const UNKNOWN: &str = "outcome unknown: ";

/// The claim waits for a person from now on. The note that says why.
pub fn begin(claim: &mut Claim, cause: ErrorCause, note: String, now: Now) -> String {
    claim.nudge = None;
    claim.state = State::Error { at: now.wall, due: None, cause, note: note.clone() };
    match claim.progress.unknown {
        true => left_unknown(claim).unwrap_or(note),
        false => note,
    }
}

/// A call of this claim went out, and nobody knows what came of it: from now on nothing takes the claim for
/// untouched, and the person it waits for, if it waits for one, is told to look. The note that says so.
pub fn left_unknown(claim: &mut Claim) -> Option<String> {
    claim.progress.unknown = true;
    let State::Error { due: None, cause, note, .. } = &mut claim.state else { return None };
    // What a person said of it, or a restore, is the last word.
    if let ErrorCause::Marked | ErrorCause::MarkedAfterDone | ErrorCause::Restored = cause {
        return None;
    }
    *cause = ErrorCause::OutcomeUnknown;
    if !note.starts_with(UNKNOWN) {
        *note = format!("{UNKNOWN}{note}; look whether it happened, then reset, or mark it done");
    }
    Some(note.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ClaimId;
    use crate::time::{LeaseInstant, Timestamp};

    #[test]
    fn what_a_person_said_of_it_is_the_last_word() {
        use ErrorCause::{
            AskedToWait, Failed, Marked, MarkedAfterDone, OutcomeUnknown, Restored, Shutdown, Stale,
        };
        for (cause, becomes) in [
            (Failed, OutcomeUnknown),
            (OutcomeUnknown, OutcomeUnknown),
            (Stale, OutcomeUnknown),
            (Shutdown, OutcomeUnknown),
            (AskedToWait, OutcomeUnknown),
            (Marked, Marked),
            (MarkedAfterDone, MarkedAfterDone),
            (Restored, Restored),
        ] {
            let at = Timestamp::from_millis(0);
            let mut claim = Claim::new(ClaimId([0; 16]), Now { wall: at, lease: LeaseInstant(0) });
            claim.state = State::Error { at, due: None, cause, note: "why".into() };
            left_unknown(&mut claim);
            let State::Error { cause: found, note, .. } = &claim.state else { panic!("{claim:?}") };
            assert_eq!((*found, note == "why"), (becomes, cause == becomes && cause != OutcomeUnknown));
            assert!(claim.progress.unknown, "whoever works with it again knows");
        }
    }
}
