//! What is done to a store as a whole: copied, restored, upgraded, relieved of old payloads.
#![expect(clippy::disallowed_methods, reason = "these tests look at the files themselves, and damage them")]

mod backups;
mod full;
mod payloads;
mod restores;
mod upgrades;

use std::path::Path;

use oncegate_store::sqlite::{Made, Source, back_up};

use crate::conformance::MORNING;

pub(crate) fn copy(data: &Path, to: &Path) -> Made {
    back_up(Source::of_data(data), to, MORNING).unwrap()
}
