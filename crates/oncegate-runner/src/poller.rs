//! Polls: asks an API what is new, page by page, and has the store admit it like any other event, in the transaction
//! in which the poll moves on. Every node looks; the store lets one of them begin. Should two be under way all the
//! same, the keys of their items keep each to one run.

mod call;
mod known;
mod under;

use std::sync::Arc;

use oncegate_connect::Caller;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::poll::{Poll, Position, Walk};
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{EventEnvironment, EventRules};
use oncegate_store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gatekeeper::Gatekeeper;
use crate::looked_at::{ALONE, COOL, LOOK, stands};
pub use call::PollCall;
use known::Known;
use under::Under;

/// A declared poll, and whose it is.
#[derive(Clone, Debug)]
pub struct Polled {
    /// Whose.
    pub workspace: Workspace,
    /// The name of the source.
    pub source: String,
    /// The automation that its items run.
    pub automation: AutomationName,
    /// What is read of the answers, and how often.
    pub poll: Poll,
    /// How it is asked.
    pub call: PollCall,
    /// What names its items, and what makes two of them one.
    pub rules: EventRules,
    /// What its items must say to be run.
    pub environment: Option<EventEnvironment>,
}

impl Polled {
    /// Where it stands; `None`: it was never looked at.
    ///
    /// # Errors
    /// The store's, or what it holds cannot be read.
    pub async fn position(&self, gate: &Gatekeeper) -> Result<Option<Position>, StoreError> {
        Ok(self.stands(gate).await?.and_then(|(_, position)| position))
    }

    async fn stands(&self, gate: &Gatekeeper) -> Result<Option<(i64, Option<Position>)>, StoreError> {
        stands(gate, (self.workspace, &self.source), Position::read).await
    }

    /// Does what is due, and says until when nothing is, if nobody else moves it.
    async fn look(
        &self,
        gate: &Gatekeeper,
        caller: &Caller,
        known: &mut Known,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<Timestamp, StoreError> {
        let now = gate.store().now().wall;
        let (version, stored) = self.stands(gate).await?.unzip();
        let position = Position::of(&self.poll, stored.flatten(), now);
        let due = position.due(&self.poll, now);
        if due > now {
            return Ok(due.min(now.after(ALONE)));
        }
        let walk = Walk::new(&self.poll, &position);
        let asked = match self.call.begin(gate, self, &walk).await {
            Ok(asked) => asked,
            // Its target has no room, or is down: nothing is written for it, and it failed at nothing.
            Err(wait) => return Ok(now.after(wait.clamp(LOOK, ALONE))),
        };
        let mut under = Under::new(self, gate, version, position, walk);
        if under.begins(now).await? {
            under.walks(asked, caller, known, stopped).await?;
        }
        Ok(now)
    }

    /// Looks again and again; each poll does so by itself, so that an API that takes long holds up no other.
    async fn run(self, gate: Arc<Gatekeeper>, caller: Caller, mut stopped: watch::Receiver<bool>) {
        let mut known = Known::default();
        let began = gate.store().now().wall;
        let mut alone = (began, began);
        while !*stopped.borrow() {
            let now = gate.store().now().wall;
            let (from, until) = alone;
            if !(from < until && (from..until).contains(&now)) {
                let until = match self.look(&gate, &caller, &mut known, &mut stopped).await {
                    Ok(until) => until,
                    Err(error) => {
                        tracing::error!(source = self.source, %error, "could not poll a source");
                        now.after(COOL)
                    }
                };
                alone = (now, until);
            }
            tokio::select! {
                () = gate.clock().sleep(LOOK) => {}
                _ = stopped.changed() => return,
            }
        }
    }
}

pub(crate) async fn run(
    gate: Arc<Gatekeeper>,
    caller: Caller,
    polls: Arc<[Polled]>,
    stopped: watch::Receiver<bool>,
) {
    let mut all = JoinSet::new();
    for polled in polls.iter() {
        all.spawn(polled.clone().run(Arc::clone(&gate), caller.clone(), stopped.clone()));
    }
    while let Some(ended) = all.join_next().await {
        if let Err(error) = ended {
            tracing::error!(panicked = error.is_panic(), "a poll ended badly");
        }
    }
}
