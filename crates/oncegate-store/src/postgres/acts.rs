//! What people do to claims and automations, each with its audit row in the same transaction.

use oncegate_core::key::{AutomationName, ClaimRef, Workspace};
use oncegate_core::reset::{self, Act, Refusal};

use super::context::Context;
use super::error::Fault;
use super::row::Extra;
use super::transition::gone;
use crate::api::{ActCall, Acted, ClaimView, Renamed};
use crate::observer;
use crate::transition::bulk::lacks_payload;
use crate::transition::{Line, Rules, act};

impl Context<'_> {
    /// A person's act, with its audit row.
    pub(super) async fn act(&self, call: &ActCall) -> Result<Acted, Fault> {
        let Some(stored) = self.lock(call.id).await? else { return Ok(Acted::NotFound) };
        let policy = self.shared.policies.policy(call.id.workspace, &stored.view.automation);
        let before = &stored.view.claim;
        if let Act::FromStart { .. } = call.act {
            let sent = self.sent(call.id, before.steps_since).await?;
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
        if writes.give_up_steps && self.give_up_in_flight(call.id).await? {
            writes.steps_were_given_up();
        }
        self.update(&stored, &writes.claim, &Extra::default(), None, &call.actor).await?;
        if let Some(answer) = act::answer(call, self.now) {
            self.answered(call.id, &answer, before.steps_since).await?;
        }
        let line = &writes.line;
        self.history(call.id, line, &call.actor).await?;
        let subject = call.id.to_string();
        self.audit(call.id.workspace, &call.actor, line.kind, &subject, &call.reason, line.reason).await?;
        self.journal.note(observer::acted(&call.act));
        Ok(Acted::Written(Box::new(self.view(call.id).await?.ok_or_else(|| gone(call.id))?)))
    }

    pub(super) async fn set_paused(
        &self,
        workspace: Workspace,
        name: &AutomationName,
        paused: bool,
        reason: &str,
        actor: &str,
    ) -> Result<bool, Fault> {
        let id = self.automation(workspace, name).await?;
        let at = paused.then_some(self.now.wall.as_millis());
        let changed = self
            .execute(
                "UPDATE automations SET paused_at = $3 WHERE workspace_id = $1 AND id = $2 \
                 AND (paused_at IS NOT NULL) <> ($3::bigint IS NOT NULL)",
                &[&workspace.0, &id, &at],
            )
            .await?;
        let action = if paused { "pause" } else { "resume" };
        if changed > 0 {
            self.audit(workspace, actor, action, name.as_str(), reason, None).await?;
        }
        Ok(changed > 0)
    }

    pub(super) async fn rename_automation(
        &self,
        workspace: Workspace,
        from: &AutomationName,
        to: &AutomationName,
        reason: &str,
        actor: &str,
    ) -> Result<Renamed, Fault> {
        let Some(id) = self.known_automation(workspace, from).await? else {
            return Ok(Renamed::Nothing);
        };
        if self.known_automation(workspace, to).await?.is_some() {
            return Ok(Renamed::BothKnown);
        }
        // Claims know their automation by number, so their ids and keys stay as they are. If another node took the
        // name meanwhile, the unique index has this looked at again.
        let written = self
            .execute(
                "UPDATE automations SET name = $3 WHERE workspace_id = $1 AND id = $2 AND name = $4",
                &[&workspace.0, &id, &to.as_str(), &from.as_str()],
            )
            .await?;
        if written == 0 {
            return Ok(Renamed::Nothing);
        }
        self.audit(workspace, actor, "rename", from.as_str(), reason, Some(to.as_str())).await?;
        Ok(Renamed::Written)
    }

    /// Files a claim under a tag, with history and audit if that is another than before.
    pub(super) async fn tag(
        &self,
        id: ClaimRef,
        tag: Option<&str>,
        reason: &str,
        actor: &str,
    ) -> Result<Option<(Box<ClaimView>, bool)>, Fault> {
        let Some(stored) = self.lock(id).await? else { return Ok(None) };
        let view = super::row::judged(stored, self.now, self.boot);
        if view.tag.as_deref() == tag {
            return Ok(Some((Box::new(view), false)));
        }
        let filed = self.filed(id, tag).await?;
        let note = Some(format!("{}: {reason}", tag.unwrap_or("no tag")).into());
        let line = Line { kind: "tag", reason: None, attempt: view.claim.attempt, note };
        self.history(id, &line, actor).await?;
        self.audit(id.workspace, actor, "tag", &id.to_string(), reason, tag).await?;
        Ok(Some((Box::new(filed), true)))
    }

    /// A tag is a person's word about a claim, no part of what is decided; the row's version stays as it is.
    pub(super) async fn filed(&self, id: ClaimRef, tag: Option<&str>) -> Result<ClaimView, Fault> {
        self.execute(
            "UPDATE claims SET tag = $3 WHERE workspace_id = $1 AND claim_id = $2",
            &[&id.workspace.0, &&id.id.0[..], &tag.map(super::row::storable)],
        )
        .await?;
        Ok(self.view(id).await?.ok_or_else(|| gone(id))?)
    }
}
