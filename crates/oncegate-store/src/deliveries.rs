//! What comes in from webhook sources: requests with their events, what became of them, and what was kept.

use oncegate_core::decide::StopReason;
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::identity::{IdentityPrint, Likeness};
use oncegate_core::key::{AutomationName, ClaimRef, IdempotencyKey, RecordName, Workspace};
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{Aside, Sender, SetAside};

/// A verified request of a webhook source, with its events.
#[derive(Clone, Debug)]
pub struct AdmitCall {
    /// Whose.
    pub workspace: Workspace,
    /// Which source.
    pub source: String,
    /// Which automation its events run.
    pub automation: AutomationName,
    /// Header names and values as JSON, signatures left out.
    pub headers: String,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// Its events, in order.
    pub events: Vec<AdmitEvent>,
    /// The rejected delivery that this releases, which is settled with it.
    pub releases: Option<Release>,
    /// For the history.
    pub actor: String,
}

impl AdmitCall {
    /// What is stored of an event as it came: the request's body, or its own part of it.
    pub(crate) fn body_of<'a>(&'a self, event: &'a AdmitEvent) -> &'a [u8] {
        match event.of_batch {
            true => event.json.as_bytes(),
            false => &self.body,
        }
    }
}

/// A person's release of a delivery that waited.
#[derive(Clone, Debug)]
pub struct Release {
    /// Which delivery.
    pub delivery: i64,
    /// Why now.
    pub reason: String,
}

/// One event of a request.
#[derive(Clone, Debug)]
pub struct AdmitEvent {
    /// Its key, or why it has none.
    pub identity: Result<IdempotencyKey, String>,
    /// Of its payload.
    pub fingerprint: Fingerprint,
    /// What it agrees in with a claim that it may repeat.
    pub likeness: Option<Likeness>,
    /// What it says about its record.
    pub about: Option<IdentityPrint>,
    /// What names this sending of it.
    pub delivery_id: Option<String>,
    /// Its payload as JSON.
    pub json: String,
    /// It is one part of its request: its JSON is stored in place of the body.
    pub of_batch: bool,
    /// The record it touches.
    pub record: Option<RecordName>,
    /// Why a guard at the door sets it aside: then it takes no key, and is kept for a person.
    pub aside: Option<SetAside>,
    /// Who sent it, if its source lets only so many of one sender run.
    pub sender: Option<Sender>,
    /// When it happened, if it says.
    pub dated: Option<Timestamp>,
}

/// What became of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Stored; the runner has it.
    Accepted {
        /// Its claim.
        id: ClaimRef,
    },
    /// Known already; nothing new starts.
    Stopped {
        /// Its claim.
        id: ClaimRef,
        /// Why.
        reason: StopReason,
    },
    /// Kept with its body; a guard at the door set it aside.
    SetAside {
        /// Which one.
        kind: Aside,
        /// Where to find it.
        delivery: i64,
    },
    /// Kept with its body; has no identity.
    Rejected {
        /// Where to find it.
        delivery: i64,
    },
}

/// A body whose signature did not verify; kept apart, a bounded number and size of them per source. The same body
/// again is only counted.
#[derive(Clone, Debug)]
pub struct UnverifiedCall {
    /// Whose.
    pub workspace: Workspace,
    /// Which source.
    pub source: String,
    /// Which automation it would have run.
    pub automation: AutomationName,
    /// Header names and values as JSON, with the signatures: they are needed to verify again. Those that do not fit
    /// into 32 KiB are left out, which the stored reason then says.
    pub headers: String,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// What was wrong.
    pub reason: String,
}

impl UnverifiedCall {
    /// By what the same request is known again: its body, and the secret that it showed. A guess must not stand in the
    /// way of a genuine one with the same body.
    pub(crate) fn hash(&self) -> [u8; 32] {
        let headers: Vec<(String, String)> = serde_json::from_str(&self.headers).unwrap_or_default();
        let shown = headers.iter().filter(|(name, _)| name == ":secret").map(|(_, print)| print.as_str());
        let shown: String = shown.collect();
        match shown.is_empty() {
            true => oncegate_core::key::sha256(&self.body),
            false => oncegate_core::key::sha256(&[shown.as_bytes(), &self.body[..]].concat()),
        }
    }
}

/// One arrival of an event, and how often the same request came again.
#[derive(Clone, Debug)]
pub struct DeliveryRow {
    /// Rises with time.
    pub id: i64,
    /// Which source.
    pub source: String,
    /// Which automation.
    pub automation: AutomationName,
    /// When it came first; signatures are judged as of then.
    pub received_at: Timestamp,
    /// How often the same came again; it is stored once.
    pub repeats: u64,
    /// When it came last.
    pub last_at: Timestamp,
    /// What named this sending of it; of equal requests the first.
    pub delivery_id: Option<String>,
    /// `accepted`, `duplicate`, `mismatch`, `rejected`, `unverified`, `released`, or why it was set aside ([`Aside`]).
    pub verdict: String,
    /// Why.
    pub reason: Option<String>,
    /// Header names and values as JSON; dropped some time after the release.
    pub headers: Option<String>,
    /// The body; dropped with them.
    pub body: Option<Vec<u8>>,
    /// When it was released.
    pub settled_at: Option<Timestamp>,
}
