//! The only place from which oncegate calls the outside world: over HTTP, and by mail.
//!
//! One [`Caller::call`] is at most one request on the wire, and its [`CallOutcome`] says what is known about
//! the *effect*: done, surely not done, or not known. Nothing retries underneath (DESIGN §6): whoever calls
//! decides whether to call again, with the same `Idempotency-Key`.
//!
//! Three things keep a request from being sent twice below the caller (case C51):
//! 1. the body can be read once (`once_body.rs`), so no layer is able to send it again;
//! 2. connections are not reused unless asked for, so none can have been closed just before it is used;
//! 3. reqwest's retries, redirects and environment proxies are off.

mod address;
mod allow;
mod caller;
pub mod classify;
mod guard;
mod link;
mod mail;
mod once_body;
mod outcome;
mod own_gate;
mod request;
mod target;
mod tls;

pub use address::not_public;
pub use allow::{AllowanceError, PrivateAllowance};
pub use caller::{Caller, Options, SetupError};
pub use guard::Refusal;
pub use link::{other_page, with_parameter};
pub use mail::{Mailer, OutgoingMail, Security, Smtp, mailbox};
pub use outcome::{Answer, CallOutcome, Failure};
pub use own_gate::{certificate_life, gate_client, outside_client};
pub use request::OutgoingRequest;
pub use target::TargetName;
