//! Schedules: looks whose slot has come, asks the core what becomes of it, and has the store admit it like any other
//! event, in the transaction in which the schedule moves on. Every node looks; the store lets one of them move.

use std::sync::Arc;

use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::schedule::{Position, Schedule, Slot, step};
use oncegate_core::time::Timestamp;
use oncegate_store::StoreError;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted};
use oncegate_store::positions::Advance;
use tokio::sync::watch;

use crate::flow;
use crate::gatekeeper::Gatekeeper;
use crate::looked_at::{ALONE, COOL, LOOK, stands};

/// A declared schedule, and whose it is.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// Whose.
    pub workspace: Workspace,
    /// The name of the source.
    pub source: String,
    /// The automation that its slots run.
    pub automation: AutomationName,
    /// When.
    pub schedule: Schedule,
}

impl Scheduled {
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

    /// The claim of a slot, if it is still there.
    ///
    /// # Errors
    /// The store's.
    pub async fn claim_of(&self, gate: &Gatekeeper, slot: &Slot) -> Result<Option<ClaimRef>, StoreError> {
        match slot.key(&self.source) {
            Ok(key) => gate.store().find(self.workspace, self.automation.clone(), key).await,
            Err(_) => Ok(None),
        }
    }

    async fn is_busy(&self, gate: &Gatekeeper, last: &Slot) -> Result<bool, StoreError> {
        let Some(id) = self.claim_of(gate, last).await? else { return Ok(false) };
        Ok(gate.store().show(id).await?.is_some_and(|view| view.claim.is_under_way()))
    }

    fn event(&self, gate: &Gatekeeper, slot: &Slot) -> AdmitEvent {
        let payload = slot.payload(&self.source);
        let template = gate.book().automation(self.workspace, &self.automation).record;
        let record = template.map(|template| flow::record(&template, &payload)).transpose();
        let key = slot.key(&self.source).map_err(|e| e.to_string());
        let (identity, record) = match record {
            Ok(record) => (key, record),
            Err(why) => (Err(why), None),
        };
        AdmitEvent {
            identity,
            fingerprint: slot.fingerprint(&self.source),
            likeness: None,
            about: None,
            delivery_id: None,
            json: payload.to_string(),
            of_batch: true,
            record,
            aside: None,
            sender: None,
            dated: Some(slot.instant),
        }
    }

    /// Does what is due. `false`: somebody else did just now.
    async fn look(&self, gate: &Gatekeeper, began: Timestamp, now: Timestamp) -> Result<bool, StoreError> {
        let (seen, position) = self.stands(gate).await?.unzip();
        let position = position.flatten();
        let decide = |is_busy| step(&self.schedule, position.as_ref(), began, now, is_busy);
        let Some(mut step) = decide(false) else { return Ok(true) };
        let last = position.as_ref().and_then(|position| position.last.as_ref());
        if let (Some(_), Some(last)) = (&step.run, last)
            && self.is_busy(gate, last).await?
        {
            let Some(busy) = decide(true) else { return Ok(true) };
            step = busy;
        }
        let admit = step.run.as_ref().map(|slot| AdmitCall {
            workspace: self.workspace,
            source: self.source.clone(),
            automation: self.automation.clone(),
            headers: "[]".to_owned(),
            body: vec![],
            events: vec![self.event(gate, slot)],
            releases: None,
            actor: format!("source:{}", self.source),
        });
        let notices: Vec<_> = step.told.iter().map(|told| told.notice(&self.source)).collect();
        let call = Advance {
            workspace: self.workspace,
            source: self.source.clone(),
            seen,
            value: serde_json::to_string(&step.position)
                .map_err(|e| StoreError::Inconsistent(e.to_string()))?,
            admit,
            automation: self.automation.clone(),
            notices: notices.clone(),
            over: None,
        };
        let Some(admitted) = gate.advance(call).await? else { return Ok(false) };
        for (_, words) in notices {
            tracing::warn!("{words}");
        }
        if let Some(slot) = &step.run {
            let is_new = admitted.iter().all(|one| matches!(one, Admitted::Accepted { .. }));
            tracing::info!(source = self.source, slot = slot.slot, is_new, "a slot has come");
        }
        Ok(true)
    }

    /// Until when nothing can be due, if nobody else moves it.
    fn alone_until(&self, now: Timestamp) -> Timestamp {
        // A run may be over any moment, and another one wait for that.
        if self.schedule.waits() {
            return now;
        }
        let next = self.schedule.rhythm.after(now).next().map(|slot| slot.instant);
        next.map_or(now.after(ALONE), |next| next.min(now.after(ALONE)))
    }
}

/// When one of them was looked at.
struct Looked {
    began: Timestamp,
    /// From when until when it is left alone.
    alone: (Timestamp, Timestamp),
}

pub(crate) async fn run(
    gate: Arc<Gatekeeper>,
    schedules: Arc<[Scheduled]>,
    mut stopped: watch::Receiver<bool>,
) {
    let began = gate.store().now().wall;
    let mut looked: Vec<Looked> = schedules.iter().map(|_| Looked { began, alone: (began, began) }).collect();
    while !*stopped.borrow() {
        for (scheduled, looked) in schedules.iter().zip(&mut looked) {
            let now = gate.store().now().wall;
            let (from, until) = looked.alone;
            if from < until && (from..until).contains(&now) {
                continue;
            }
            let until = match scheduled.look(&gate, looked.began, now).await {
                Ok(true) => scheduled.alone_until(now),
                Ok(false) => now,
                Err(error) => {
                    tracing::error!(source = scheduled.source, %error, "could not look at a schedule");
                    now.after(COOL)
                }
            };
            looked.alone = (now, until);
        }
        tokio::select! {
            () = gate.clock().sleep(LOOK) => {}
            _ = stopped.changed() => return,
        }
    }
}
