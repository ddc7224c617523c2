//! How many events of one sender were accepted, counted in the transaction that accepts them. Whoever counts holds
//! the sender's row until the end: of two nodes to which its events come at once, the second finds what the first
//! accepted.

use oncegate_core::key::IdempotencyKey;
use oncegate_core::notice::NoticeKind;
use oncegate_core::webhook::{Sender, SenderCount};

use super::context::Context;
use super::error::Fault;
use crate::api::AdmitCall;

impl Context<'_> {
    /// What is remembered of an event's sender, before it is admitted; `None`: it is one too many, and a person was
    /// told. What a person releases begins anew, and what is known by its key starts nothing, whoever sent it.
    pub(super) async fn sender_count(
        &self,
        call: &AdmitCall,
        sender: &Sender,
        key: &IdempotencyKey,
    ) -> Result<Option<SenderCount>, Fault> {
        // Written, though nothing changes, so that it is held even where it is new.
        let held = self
            .query_one(
                "INSERT INTO senders AS s (workspace_id, sender_hash, counted, at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (workspace_id, sender_hash) DO UPDATE SET at = s.at RETURNING counted",
                &[
                    &call.workspace.0,
                    &&sender.hash[..],
                    &SenderCount::default().written(),
                    &self.now.wall.as_millis(),
                ],
            )
            .await?;
        if call.releases.is_some() {
            return Ok(Some(SenderCount::default()));
        }
        let mut count = SenderCount::read(held.get(0));
        if count.has_room(sender.limit, self.now.wall) || self.knows_key(call, key).await? {
            return Ok(Some(count));
        }
        if count.is_news() {
            let (subject, detail) = (call.automation.as_str(), sender.notice(&call.source));
            self.notice(call.workspace, NoticeKind::SenderLimit, subject, &detail).await?;
            self.keep_sender_count(call, sender, &count).await?;
        }
        Ok(None)
    }

    /// One of its events was accepted.
    pub(super) async fn sender_ran(
        &self,
        call: &AdmitCall,
        sender: &Sender,
        mut count: SenderCount,
    ) -> Result<(), Fault> {
        count.ran(self.now.wall);
        self.keep_sender_count(call, sender, &count).await
    }

    async fn keep_sender_count(
        &self,
        call: &AdmitCall,
        sender: &Sender,
        count: &SenderCount,
    ) -> Result<(), Fault> {
        self.execute(
            "UPDATE senders SET counted = $3, at = $4 WHERE workspace_id = $1 AND sender_hash = $2",
            &[&call.workspace.0, &&sender.hash[..], &count.written(), &self.now.wall.as_millis()],
        )
        .await?;
        Ok(())
    }

    async fn knows_key(&self, call: &AdmitCall, key: &IdempotencyKey) -> Result<bool, Fault> {
        let sql = "SELECT id FROM automations WHERE workspace_id = $1 AND name = $2";
        let Some(found) = self.query_opt(sql, &[&call.workspace.0, &call.automation.as_str()]).await? else {
            return Ok(false);
        };
        let id = self.shared.secret.claim_id(call.workspace, found.get(0), key);
        let known = self
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM claims WHERE workspace_id = $1 AND claim_id = $2) \
                 OR EXISTS (SELECT 1 FROM pruned WHERE workspace_id = $1 AND claim_id = $2)",
                &[&call.workspace.0, &&id.0[..]],
            )
            .await?;
        Ok(known.get(0))
    }
}
