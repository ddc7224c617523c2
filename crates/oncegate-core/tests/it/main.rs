//! The core from outside, on real samples: one binary, because linking is what tests cost most.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers are tests too")]

mod boots;
mod cells;
mod decide_table;
mod families;
mod fingerprints;
mod finish_table;
mod folding;
mod forgeries;
mod identity;
mod large;
mod mutations;
mod never_panics;
mod nudges;
mod polls;
mod raw_bytes;
mod recovery_table;
mod repeat_table;
mod reset_table;
mod sample;
mod samples;
mod schedules;
mod schemes;
mod shared_secrets;
