//! What is left of a claim whose data is forgotten: its keyed hash, its state and dates, so that the same event, should
//! it come again, does not run again.

use oncegate_core::claim::{Claim, State};
use oncegate_core::key::{ClaimId, IdempotencyKey};

use crate::StoreError;

/// What is left of a claim. `None`: it waits, runs or will run again by itself, and so is not forgotten.
pub fn left_of(claim: Claim) -> Option<Claim> {
    let state = match claim.state {
        State::Done { .. } => claim.state,
        // Nobody shall look at it any more: there is nothing left to look at.
        State::Error { due: None, .. } if claim.nudge.is_none() => State::None { due: None },
        State::None { .. } if claim.dismissed => State::None { due: None },
        State::None { .. } | State::Error { .. } | State::Processing(_) => return None,
    };
    let dismissed = !matches!(state, State::Done { .. });
    Some(Claim {
        state,
        dismissed,
        // Tokens of before open nothing.
        generation: claim.generation.saturating_add(1),
        fingerprint: None,
        record: None,
        flow: false,
        parked: None,
        mismatch_at: None,
        late_at: None,
        ..claim
    })
}

/// The key that stands in for one that is forgotten.
///
/// # Errors
/// Never: the key is made of letters, digits and a space, and is short.
pub fn key(id: ClaimId) -> Result<IdempotencyKey, StoreError> {
    IdempotencyKey::try_from(format!("forgotten {id}").as_str())
        .map_err(|e| StoreError::Inconsistent(e.to_string()))
}
