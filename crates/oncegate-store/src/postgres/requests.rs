//! Writes that happen once per `Idempotency-Key`: what was answered stands in the same transaction as what was
//! written, so that no crash can part them.

use oncegate_core::time::Now;
use tokio_postgres::Row;

use super::connection::Connection;
use super::context::Context;
use super::error::Fault;
use super::queries;
use super::row::storable;
use crate::api::Acted;
use crate::people::{Kept, Known, Once, Request, Write, Written, Wrote};

const KNOWN: &str = "SELECT fingerprint, status, answer FROM api_requests \
    WHERE workspace_id = $1 AND idempotency_key = $2 AND at >= $3";

/// When a request that is just forgotten was made.
fn oldest(now: Now) -> i64 {
    now.wall.before(oncegate_core::limits::REQUESTS_KEPT_FOR).as_millis()
}

fn read(r: &Row, request: &Request) -> Known {
    match r.get::<_, &[u8]>(0) == &request.fingerprint[..] {
        true => {
            Known::Answered(Kept { status: u16::try_from(r.get::<_, i32>(1)).unwrap_or(200), body: r.get(2) })
        }
        false => Known::Reused,
    }
}

/// What is known about a request; its key is free again once its time is over.
pub(super) async fn known(db: &Connection, request: &Request, now: Now) -> Result<Option<Known>, Fault> {
    let found =
        queries::row_opt(db, KNOWN, &[&request.workspace.0, &request.key.as_str(), &oldest(now)]).await?;
    Ok(found.map(|r| read(&r, request)))
}

impl Context<'_> {
    /// The key is taken before anything is looked at: of two nodes with the same request at once, the second waits here
    /// until the first has committed, and then finds its answer. If it looked at the claim first, it would see what
    /// the first one did to it, and refuse what its sender should be told was done.
    pub(super) async fn write_once(&self, write: &Write, once: Option<&Once>) -> Result<Wrote, Fault> {
        let Some(Once { request, answering }) = once else {
            return Ok(Wrote::Now(self.write(write).await?, self.now));
        };
        let (workspace, key, oldest) = (request.workspace.0, request.key.as_str(), oldest(self.now));
        let taken = self
            .execute(
                "INSERT INTO api_requests (workspace_id, idempotency_key, fingerprint, status, answer, at) \
                 VALUES ($1, $2, $3, 200, NULL, $4) ON CONFLICT (workspace_id, idempotency_key) DO UPDATE \
                 SET fingerprint = excluded.fingerprint, status = excluded.status, answer = NULL, at = excluded.at \
                 WHERE api_requests.at < $5",
                &[&workspace, &key, &&request.fingerprint[..], &self.now.wall.as_millis(), &oldest],
            )
            .await?;
        if taken == 0 {
            return match self.query_opt(KNOWN, &[&workspace, &key, &oldest]).await? {
                Some(r) => Ok(Wrote::Before(read(&r, request))),
                None => Err(Fault::Again("a request was forgotten as it was looked at".into())),
            };
        }
        let written = self.write(write).await?;
        match answering(&written, self.now) {
            Some(Kept { status, body }) => {
                let body = body.as_deref().map(storable);
                self.execute(
                    "UPDATE api_requests SET status = $3, answer = $4 \
                     WHERE workspace_id = $1 AND idempotency_key = $2",
                    &[&workspace, &key, &i32::from(status), &body],
                )
                .await?;
            }
            // It was refused: a repeat is judged anew.
            None => {
                self.execute(
                    "DELETE FROM api_requests WHERE workspace_id = $1 AND idempotency_key = $2",
                    &[&workspace, &key],
                )
                .await?;
            }
        }
        Ok(Wrote::Now(written, self.now))
    }

    async fn write(&self, write: &Write) -> Result<Written, Fault> {
        Ok(match write {
            Write::Act { call, tag } => {
                let acted = self.act(call).await?;
                match (acted, tag) {
                    (Acted::Written(_), Some(tag)) => {
                        Written::Act(Acted::Written(Box::new(self.filed(call.id, Some(tag)).await?)))
                    }
                    (acted, _) => Written::Act(acted),
                }
            }
            Write::Tag { id, tag, reason, actor } => {
                Written::Tagged(self.tag(*id, tag.as_deref(), reason, actor).await?)
            }
            Write::Release(call) => Written::Released(self.admit(call).await?),
            Write::SetPaused { workspace, automation, paused, reason, actor } => {
                Written::SetPaused(self.set_paused(*workspace, automation, *paused, reason, actor).await?)
            }
            Write::Rename { workspace, from, to, reason, actor } => {
                Written::Renamed(self.rename_automation(*workspace, from, to, reason, actor).await?)
            }
            Write::Bulk(call) => Written::Bulk(self.begin_bulk(call).await?),
            Write::UndoBulk { workspace, id, reason, actor, token_id } => {
                Written::UndoBulk(self.begin_undo((*workspace, *id), reason, actor, *token_id).await?)
            }
            Write::AddToken(token) => Written::AddedToken(self.add_token(token).await?),
            Write::RevokeToken { workspace, id, although_last, reason, actor } => Written::RevokedToken(
                self.revoke_token(*workspace, *id, *although_last, reason, actor).await?,
            ),
        })
    }
}
