//! A claim's row as it reads after it was written, so that it need not be read again for the answer. Builds for tests
//! read it all the same and compare.

use oncegate_core::claim::{Claim, State};
use oncegate_core::key::{AutomationName, IdempotencyKey, Workspace};
use oncegate_core::time::Now;

use super::row::{Extra, Stored};
use crate::api::ClaimView;

/// What [`load`](super::row::load) reads after [`insert`](super::row::insert).
pub(super) fn inserted(
    row: i64,
    (workspace, automation_id, automation, key): (Workspace, i64, AutomationName, IdempotencyKey),
    claim: Claim,
    extra: &Extra<'_>,
    now: Now,
) -> Stored {
    let view = ClaimView {
        workspace,
        row,
        automation,
        key,
        repeat_of: None,
        inbox: None,
        run_url: extra.run_url.map(str::to_owned),
        result: extra.result.filter(|_| matches!(claim.state, State::Done { .. })).map(str::to_owned),
        stops: 0,
        first_stop_at: None,
        last_stop_at: None,
        tag: None,
        created_at: now.wall,
        updated_at: now.wall,
        payload_removed_at: None,
        claim,
    };
    Stored { row, version: 1, automation_id, view }
}

impl Stored {
    /// What [`load`](super::row::load) reads after [`update`](super::row::update).
    pub(super) fn updated(self, claim: Claim, extra: &Extra<'_>, now: Now) -> Self {
        let before = &self.view.claim;
        let was_done = matches!(before.state, State::Done { .. }) && before.attempt == claim.attempt;
        let result = match &claim.state {
            State::Done { .. } if was_done => self.view.result,
            State::Done { .. } => extra.result.map(str::to_owned),
            State::None { .. } | State::Processing(_) | State::Error { .. } => None,
        };
        let run_url = extra.run_url.map(str::to_owned).or(self.view.run_url);
        let repeat_of = self.view.repeat_of.filter(|_| claim.repeat_of.is_some());
        let view = ClaimView { claim, repeat_of, result, run_url, updated_at: now.wall, ..self.view };
        Self { version: self.version + 1, view, ..self }
    }
}
