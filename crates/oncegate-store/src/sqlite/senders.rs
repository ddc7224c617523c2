//! How many events of one sender were accepted, counted in the transaction that accepts them.

use oncegate_core::key::IdempotencyKey;
use oncegate_core::notice::NoticeKind;
use oncegate_core::webhook::{Sender, SenderCount};
use rusqlite::{OptionalExtension, params};

use super::queries;
use super::transition::Context;
use crate::StoreError;
use crate::api::AdmitCall;

impl Context<'_> {
    /// What is remembered of an event's sender, before it is admitted; `None`: it is one too many, and a person was
    /// told. What a person releases begins anew, and what is known by its key starts nothing, whoever sent it.
    pub(super) fn sender_count(
        &self,
        call: &AdmitCall,
        sender: &Sender,
        key: &IdempotencyKey,
    ) -> Result<Option<SenderCount>, StoreError> {
        if call.releases.is_some() {
            return Ok(Some(SenderCount::default()));
        }
        let stored: Option<String> = self
            .db
            .prepare_cached("SELECT counted FROM senders WHERE workspace_id = ?1 AND sender_hash = ?2")?
            .query_row(params![call.workspace.0, &sender.hash[..]], |r| r.get(0))
            .optional()?;
        let mut count = stored.as_deref().map(SenderCount::read).unwrap_or_default();
        if count.has_room(sender.limit, self.now.wall) || self.knows_key(call, key)? {
            return Ok(Some(count));
        }
        if count.is_news() {
            let (subject, detail) = (call.automation.as_str(), sender.notice(&call.source));
            self.notice(call.workspace, NoticeKind::SenderLimit, subject, &detail)?;
            self.keep_sender_count(call, sender, &count)?;
        }
        Ok(None)
    }

    /// One of its events was accepted.
    pub(super) fn sender_ran(
        &self,
        call: &AdmitCall,
        sender: &Sender,
        mut count: SenderCount,
    ) -> Result<(), StoreError> {
        count.ran(self.now.wall);
        self.keep_sender_count(call, sender, &count)
    }

    fn keep_sender_count(
        &self,
        call: &AdmitCall,
        sender: &Sender,
        count: &SenderCount,
    ) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO senders (workspace_id, sender_hash, counted, at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO UPDATE SET counted = excluded.counted, at = excluded.at",
            )?
            .execute(params![
                call.workspace.0,
                &sender.hash[..],
                count.written(),
                self.now.wall.as_millis()
            ])?;
        Ok(())
    }

    fn knows_key(&self, call: &AdmitCall, key: &IdempotencyKey) -> Result<bool, StoreError> {
        let Some(automation) = queries::automation(self.db, call.workspace, &call.automation)? else {
            return Ok(false);
        };
        let id = self.secret.claim_id(call.workspace, automation, key);
        let known = self
            .db
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM claims WHERE claim_id = ?1) \
                 OR EXISTS (SELECT 1 FROM pruned WHERE claim_id = ?1)",
            )?
            .query_row([&id.0[..]], |r| r.get(0))?;
        Ok(known)
    }
}
