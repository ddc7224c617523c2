//! The pure core of oncegate.
//!
//! It decides what may run and nothing else: no IO, no clock, no randomness. `now`, ids and random bytes are
//! arguments, so that every path through it can be enumerated, simulated and replayed.

pub mod access;
pub mod act;
pub mod call;
pub mod claim;
pub mod csv_cell;
pub mod decide;
pub mod decision;
pub mod family;
pub mod fingerprint;
pub mod finish;
pub mod header_key;
pub mod identity;
pub mod inbox;
pub mod json;
pub mod key;
pub mod lane;
pub mod limits;
pub mod needs_review;
pub mod notice;
pub mod nudge;
pub mod order;
pub mod parked;
pub mod person;
pub mod policy;
pub mod poll;
pub mod recovery;
pub mod reset;
pub mod sameness;
pub mod schedule;
pub mod secret;
pub mod short;
pub mod time;
pub mod token;
pub mod undo;
pub mod webhook;
