//! The pure core of oncegate.
//!
//! It decides what may run and nothing else: no IO, no clock, no randomness. `now`, ids and random bytes are
//! arguments, so that every path through it can be enumerated, simulated and replayed.

pub mod key;
pub mod limits;
pub mod secret;
pub mod time;
pub mod webhook;
