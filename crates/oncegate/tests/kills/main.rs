//! The gate under kill -9: the real program, a receiver and senders as processes of their own, each with its own
//! file, and a judge that believes only the files. One binary, because linking is what tests cost most.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers are tests too")]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests live outside the program: they have clocks and files"
)]

// Release builds have no failpoints to die at.
#[cfg(not(debug_assertions))]
compile_error!("run these tests without --release");

mod bulk;
mod campaign;
mod cases;
mod configs;
mod dice;
mod full_disk;
mod judge;
mod report;
mod round;
mod shown;
mod verdicts;
mod wire;
mod world;
