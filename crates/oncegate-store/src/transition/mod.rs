//! What a store writes for each thing that can happen to a claim. Pure: given what was loaded and what is asked, each
//! function asks the core and says which rows change. Loading before and writing after, in one transaction, is all
//! that is left to a backend, so that no two of them, and no simulation, can differ in what happens.

pub mod act;
pub(crate) mod bulk;
pub mod claim;
pub mod family;
pub mod finish;
pub mod forget;
pub mod notice;
pub mod step;

use std::borrow::Cow;

use oncegate_core::claim::{Boot, Claim};
use oncegate_core::decide::{self, Facts, Request, Verdict};
use oncegate_core::finish::{Call, Finished};
use oncegate_core::policy::{Jitter, Policy};
use oncegate_core::reset::{self, Act, Refusal};
use oncegate_core::time::Now;
use oncegate_core::token::Fence;

/// The core's functions. An argument, so that the model checker can put a rule that is broken on purpose under the
/// same transitions; a store has [`Rules::CORE`].
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What may run.
    pub decide: fn(&Facts, &Request, &Policy, Now) -> Verdict,
    /// What becomes of a claim whose record was taken.
    pub without_record: fn(Claim) -> Claim,
    /// What the holder's word does.
    pub finish: fn(&Claim, Fence, &Call, &Policy, Now, Jitter) -> Finished,
    /// What a person's act does.
    pub act: fn(&Claim, &Act, &Policy, Now, Boot) -> Result<Claim, Refusal>,
}

impl Rules {
    /// The rules of the gate.
    pub const CORE: Self = Self {
        decide: decide::decide,
        without_record: decide::without_record,
        finish: oncegate_core::finish::finish,
        act: reset::act,
    };
}

/// One row of a claim's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// What happened.
    pub kind: &'static str,
    /// Which kind of it.
    pub reason: Option<&'static str>,
    /// The attempt it is about.
    pub attempt: u32,
    /// In words.
    pub note: Option<Cow<'a, str>>,
}
