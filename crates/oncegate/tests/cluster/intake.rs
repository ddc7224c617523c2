//! Webhooks, on two nodes: the door itself.

#[path = "../it/intake/doors.rs"]
mod doors;
