//! Line 10, for what oncegate runs itself: events of one record go one after another, in order of arrival (DESIGN §6).

use crate::claim::{Claim, State};
use crate::decision::Facts;
use crate::policy::Policy;
use crate::time::Now;

/// Whether an earlier event of its record goes first. Nobody waits for another longer than for its own SLA; and what
/// has begun goes on, or the two would wait for each other.
pub fn waits_its_turn(facts: &Facts, claim: &Claim, policy: &Policy, now: Now) -> bool {
    let has_begun = matches!(claim.state, State::Processing(_));
    facts.earlier_waits && claim.flow && !has_begun && now.wall < claim.open_since.after(policy.sla)
}
