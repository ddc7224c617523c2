//! Claims whose holder works for the holder of another: what becomes of a child when its parent moves.
//!
//! A child that shares its parent's record is one line with it: the parent, and at most one live child at a time. Two
//! children of one parent would interleave on the record as two strangers would.

use crate::claim::{Claim, Parent, State};
use crate::time::Now;

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The parent's lease was carried on, and with it the bound of the child's own.
    Carried,
    /// The parent's attempt ended; the child goes on until its own end, and keeps the record that they shared.
    LetGo,
    /// The parent's token is void, and so is the child's.
    Voided,
}

/// What becomes of `child`, which is `processing` for an attempt of `before`, now that its parent is `after`. `None`:
/// nothing.
pub fn follow(before: &Claim, after: &Claim, child: &Claim, now: Now) -> Option<(Claim, Followed)> {
    let State::Processing(lease) = &child.state else { return None };
    let tie = lease.parent.as_ref().filter(|parent| parent.id == before.id)?;
    let mut lease = lease.clone();
    if after.fence() != before.fence() {
        // Nobody can finish it any more: it is stale from now on, so that people see it and its next claim is judged.
        lease.renewed = lease.renewed.min(now.lease.before(lease.ttl.get()));
        lease.holds_record &= !tie.shares_record;
        lease.parent = None;
        let voided =
            Claim { generation: child.generation + 1, state: State::Processing(lease), ..child.clone() };
        return Some((voided, Followed::Voided));
    }
    let followed = match &after.state {
        State::Processing(parent) => {
            lease.parent = Some(Parent { ends: parent.expires(), ..tie.clone() });
            Followed::Carried
        }
        State::None { .. } | State::Done { .. } | State::Error { .. } => {
            let above = match &before.state {
                State::Processing(parent) => parent.parent.clone(),
                State::None { .. } | State::Done { .. } | State::Error { .. } => None,
            };
            // What its parent shared in turn, it shares now; what was its parent's own is its own now.
            lease.parent = above
                .map(|above| Parent { shares_record: tie.shares_record && above.shares_record, ..above });
            Followed::LetGo
        }
    };
    let child = Claim { state: State::Processing(lease), ..child.clone() };
    Some((child, followed))
}
