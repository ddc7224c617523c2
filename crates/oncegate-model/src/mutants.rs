//! Rules that are wrong on purpose, each by one guard: the proof that the search would notice.

use oncegate_store::transition::Rules;

include!("../mutants.rs");

#[expect(unreachable_pub, reason = "made by build.rs from the real sources")]
mod made {
    use super::Rules;

    include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
}

/// Every mutant with its rules.
pub fn mutants() -> impl Iterator<Item = (&'static Mutant, Rules)> {
    MUTANTS.iter().zip(made::RULES.iter().copied())
}
