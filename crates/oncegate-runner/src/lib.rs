//! The loops of oncegate: taking due work, running its steps, keeping leases alive, forgetting what may be forgotten.
//!
//! [`gatekeeper::Gatekeeper`] is what every way in calls; [`engine::Engine`] is what works in the background. Both
//! see the store's trait and the connector, never SQL, never HTTP requests coming in.

pub mod arrivals;
pub mod book;
mod cluster;
mod each;
pub mod engine;
pub mod entropy;
mod fair;
pub mod flow;
pub mod gatekeeper;
mod held;
mod looked_at;
mod looking;
mod message;
pub mod nudger;
mod outside;
mod planning;
pub mod poller;
mod render;
mod request;
pub mod scheduler;
mod sending;
mod stepping;
pub mod targets;
mod upcoming;
mod waiters;
mod waiting;
mod worker;
