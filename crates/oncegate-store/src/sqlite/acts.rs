//! What people do to claims and automations, each with its audit row in the same transaction.

use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::reset::{self, Act, Refusal};
use rusqlite::params;

use super::row::{self, Extra};
use super::transition::{Context, gone};
use crate::StoreError;
use crate::api::{ActCall, Acted, ClaimView, Renamed};
use crate::observer;
use crate::transition::bulk::lacks_payload;
use crate::transition::{Line, Rules, act};

impl Context<'_> {
    /// A person's act, with its audit row.
    pub(super) fn act(&self, call: &ActCall) -> Result<Acted, StoreError> {
        let Some(stored) = row::load(self.db, call.id)? else { return Ok(Acted::NotFound) };
        let policy = self.policies.policy(call.id.workspace, &stored.view.automation);
        let before = &stored.view.claim;
        if let Act::FromStart { .. } = call.act {
            let sent = super::steps::sent(self.db, stored.row, before.steps_since)?;
            if let Err(refusal) = reset::confirms_sent(&call.act, &sent) {
                return Ok(Acted::Refused(refusal));
            }
        }
        let mut writes = match act::act(&Rules::CORE, before, call, &policy, self.now, self.boot) {
            Ok(writes) => writes,
            Err(refusal) => return Ok(Acted::Refused(refusal)),
        };
        if lacks_payload(&call.act, &stored.view, &policy) {
            return Ok(Acted::Refused(Refusal::PayloadRemoved));
        }
        if writes.give_up_steps && self.give_up_in_flight(stored.row)? {
            writes.steps_were_given_up();
        }
        self.update(&stored, &writes.claim, &Extra::default(), None, &call.actor)?;
        if let Some(answer) = act::answer(call, self.now) {
            self.answered(stored.row, &answer, before.steps_since)?;
        }
        let line = &writes.line;
        self.history(stored.row, line, &call.actor)?;
        let subject = call.id.to_string();
        self.audit(call.id.workspace, &call.actor, line.kind, &subject, &call.reason, line.reason)?;
        self.journal.note(observer::acted(&call.act));
        Ok(Acted::Written(Box::new(self.view(call.id)?.ok_or_else(|| gone(call.id))?)))
    }

    pub(super) fn set_paused(
        &self,
        workspace: Workspace,
        name: &AutomationName,
        paused: bool,
        reason: &str,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let id = self.automation(workspace, name)?;
        let at = paused.then_some(self.now.wall.as_millis());
        let changed = self.db.execute(
            "UPDATE automations SET paused_at = ?2 WHERE id = ?1 AND (paused_at IS NOT NULL) <> (?2 IS NOT NULL)",
            params![id, at],
        )?;
        let action = if paused { "pause" } else { "resume" };
        if changed > 0 {
            self.audit(workspace, actor, action, name.as_str(), reason, None)?;
        }
        Ok(changed > 0)
    }

    pub(super) fn rename_automation(
        &self,
        workspace: Workspace,
        from: &AutomationName,
        to: &AutomationName,
        reason: &str,
        actor: &str,
    ) -> Result<Renamed, StoreError> {
        let Some(id) = super::queries::automation(self.db, workspace, from)? else {
            return Ok(Renamed::Nothing);
        };
        if super::queries::automation(self.db, workspace, to)?.is_some() {
            return Ok(Renamed::BothKnown);
        }
        // Claims know their automation by number, so their ids and keys stay as they are.
        self.db.execute("UPDATE automations SET name = ?2 WHERE id = ?1", params![id, to.as_str()])?;
        self.audit(workspace, actor, "rename", from.as_str(), reason, Some(to.as_str()))?;
        Ok(Renamed::Written)
    }

    /// Files a claim under a tag, with history and audit if that is another than before.
    pub(super) fn tag(
        &self,
        id: ClaimRef,
        tag: Option<&str>,
        reason: &str,
        actor: &str,
    ) -> Result<Option<(Box<ClaimView>, bool)>, StoreError> {
        let Some(view) = self.view(id)? else { return Ok(None) };
        if view.tag.as_deref() == tag {
            return Ok(Some((Box::new(view), false)));
        }
        let filed = self.filed(id, tag)?;
        let note = Some(format!("{}: {reason}", tag.unwrap_or("no tag")).into());
        let line = Line { kind: "tag", reason: None, attempt: view.claim.attempt, note };
        self.history(view.row, &line, actor)?;
        self.audit(id.workspace, actor, "tag", &id.to_string(), reason, tag)?;
        Ok(Some((Box::new(filed), true)))
    }

    /// A tag is a person's word about a claim, no part of what is decided; the row's version stays as it is.
    pub(super) fn filed(&self, id: ClaimRef, tag: Option<&str>) -> Result<ClaimView, StoreError> {
        self.db
            .prepare_cached("UPDATE claims SET tag = ?3 WHERE claim_id = ?1 AND workspace_id = ?2")?
            .execute(params![&id.id.0[..], id.workspace.0, tag])?;
        self.view(id)?.ok_or_else(|| gone(id))
    }
}
