//! Webhooks: from the sender's bytes to the effect.

mod bodies;
mod doors;
mod providers;
mod raw_bytes;
mod recents;
mod samples;
