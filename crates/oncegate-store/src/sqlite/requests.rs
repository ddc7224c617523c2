//! Writes that happen once per `Idempotency-Key`: what was answered stands in the same transaction as what was
//! written, so that no crash can part them.

use oncegate_core::time::Now;
use rusqlite::{Connection, OptionalExtension, params};

use super::transition::Context;
use crate::StoreError;
use crate::api::Acted;
use crate::people::{Kept, Known, Once, Request, Write, Written, Wrote};

/// What is known about a request; its key is free again once its time is over.
pub(super) fn known(db: &Connection, request: &Request, now: Now) -> Result<Option<Known>, StoreError> {
    let oldest = now.wall.before(oncegate_core::limits::REQUESTS_KEPT_FOR).as_millis();
    let found: Option<([u8; 32], u16, Option<String>)> = db
        .prepare_cached(
            "SELECT fingerprint, status, answer FROM api_requests \
             WHERE workspace_id = ?1 AND idempotency_key = ?2 AND at >= ?3",
        )?
        .query_row(params![request.workspace.0, request.key.as_str(), oldest], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?))
        })
        .optional()?;
    Ok(found.map(|(fingerprint, status, body)| match fingerprint == request.fingerprint {
        true => Known::Answered(Kept { status, body }),
        false => Known::Reused,
    }))
}

impl Context<'_> {
    pub(super) fn write_once(&self, write: &Write, once: Option<&Once>) -> Result<Wrote, StoreError> {
        let Some(Once { request, answering }) = once else {
            return Ok(Wrote::Now(self.write(write)?, self.now));
        };
        if let Some(known) = known(self.db, request, self.now)? {
            return Ok(Wrote::Before(known));
        }
        let written = self.write(write)?;
        if let Some(Kept { status, body }) = answering(&written, self.now) {
            self.db
                .prepare_cached(
                    "INSERT OR REPLACE INTO api_requests \
                     (workspace_id, idempotency_key, fingerprint, status, answer, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    request.workspace.0,
                    request.key.as_str(),
                    &request.fingerprint[..],
                    status,
                    body,
                    self.now.wall.as_millis()
                ])?;
        }
        Ok(Wrote::Now(written, self.now))
    }

    fn write(&self, write: &Write) -> Result<Written, StoreError> {
        Ok(match write {
            Write::Act { call, tag } => {
                let acted = self.act(call)?;
                match (acted, tag) {
                    (Acted::Written(_), Some(tag)) => {
                        Written::Act(Acted::Written(Box::new(self.filed(call.id, Some(tag))?)))
                    }
                    (acted, _) => Written::Act(acted),
                }
            }
            Write::Tag { id, tag, reason, actor } => {
                Written::Tagged(self.tag(*id, tag.as_deref(), reason, actor)?)
            }
            Write::Release(call) => Written::Released(self.admit(call)?),
            Write::SetPaused { workspace, automation, paused, reason, actor } => {
                Written::SetPaused(self.set_paused(*workspace, automation, *paused, reason, actor)?)
            }
            Write::Rename { workspace, from, to, reason, actor } => {
                Written::Renamed(self.rename_automation(*workspace, from, to, reason, actor)?)
            }
            Write::Bulk(call) => Written::Bulk(self.begin_bulk(call)?),
            Write::UndoBulk { workspace, id, reason, actor, token_id } => {
                Written::UndoBulk(self.begin_undo((*workspace, *id), reason, actor, *token_id)?)
            }
            Write::AddToken(token) => Written::AddedToken(self.add_token(token)?),
            Write::RevokeToken { workspace, id, although_last, reason, actor } => {
                Written::RevokedToken(self.revoke_token(*workspace, *id, *although_last, reason, actor)?)
            }
        })
    }
}
