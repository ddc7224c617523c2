//! A claim that works for the holder of another: how it is tied to it, and what is written about it when that moves.

use oncegate_core::claim::{Boot, Claim, Liveness, Parent, State};
use oncegate_core::family::{self, Followed};
use oncegate_core::key::ClaimId;
use oncegate_core::time::Now;
use oncegate_core::token::Fence;

use super::Line;
use crate::api::ClaimCall;

/// The tie to a parent whose token was shown; `None` if it no longer holds, or its lease has ended.
/// [`Parent::shares_record`] is left to whoever knows who holds the record.
pub fn tie(parent: &Claim, fence: Fence, now: Now, boot: Boot) -> Option<Parent> {
    let State::Processing(lease) = &parent.state else { return None };
    let fresh = matches!(lease.liveness(now, boot), Liveness::Fresh { .. });
    let holds = parent.fence() == fence && fresh && lease.holds_record;
    holds.then(|| Parent { id: parent.id, ends: lease.expires(), shares_record: false })
}

/// The claim above, if the attempt is tied to one.
pub fn above(claim: &Claim) -> Option<ClaimId> {
    match &claim.state {
        State::Processing(lease) => lease.parent.as_ref().map(|parent| parent.id),
        State::None { .. } | State::Done { .. } | State::Error { .. } => None,
    }
}

/// A claim that names no record, now or before, is about its parent's.
pub fn inherit(call: &mut ClaimCall, claim: Option<&Claim>, parent: &Claim) {
    if call.request.record.is_none() && claim.is_none_or(|c| c.record.is_none()) {
        call.request.record.clone_from(&parent.record);
    }
}

/// What is written about a child for which [`family::follow`] has news. `name` says which claim its parent is.
pub fn follow(
    before: &Claim,
    after: &Claim,
    child: &Claim,
    name: impl Fn() -> String,
    now: Now,
) -> Option<(Claim, Option<Line<'static>>)> {
    let (followed, what) = family::follow(before, after, child, now)?;
    let line = match what {
        Followed::Carried => None,
        Followed::LetGo => {
            Some(("parent_ended", format!("{} has ended; this one goes on by itself", name())))
        }
        Followed::Voided => Some(("parent_lost", format!("void, because the token of {} is", name()))),
    };
    let attempt = child.attempt;
    let line = line.map(|(kind, note)| Line { kind, reason: None, attempt, note: Some(note.into()) });
    (followed != *child).then_some((followed, line))
}
