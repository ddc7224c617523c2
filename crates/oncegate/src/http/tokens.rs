//! Tokens that were seen, so that not every call asks the store; and when they were last used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use oncegate_core::time::Timestamp;
use oncegate_store::access::ApiToken;

/// Rises with every forgetting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

#[derive(Debug, Default)]
struct Known {
    epoch: Epoch,
    by_hash: HashMap<[u8; 32], Arc<ApiToken>>,
}

/// What is known of tokens in this process. One process owns a SQLite store, so that what it revokes it forgets here.
#[derive(Debug, Default)]
pub(crate) struct KnownTokens {
    known: RwLock<Known>,
    used: Mutex<HashMap<i64, Timestamp>>,
}

impl KnownTokens {
    /// The token, or when it was looked for in vain.
    pub(crate) fn known(&self, hash: &[u8; 32]) -> Result<Arc<ApiToken>, Epoch> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_hash.get(hash).cloned().ok_or(known.epoch)
    }

    /// Keeps what the store said, unless a token was revoked since it was asked: the answer may be from before.
    pub(crate) fn remember(&self, asked_in: Epoch, hash: [u8; 32], token: ApiToken) -> Arc<ApiToken> {
        let token = Arc::new(token);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.epoch == asked_in {
            known.by_hash.insert(hash, Arc::clone(&token));
        }
        token
    }

    /// To be called after a token was revoked, or its workspace deleted.
    pub(crate) fn forget_all(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.epoch.0 += 1;
        known.by_hash.clear();
    }

    pub(crate) fn used(&self, id: i64, at: Timestamp) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(id, at);
    }

    /// What was used since the last call.
    pub(crate) fn take_used(&self) -> Vec<(i64, Timestamp)> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

#[cfg(test)]
mod tests {
    use oncegate_core::access::Role;
    use oncegate_core::key::Workspace;

    use super::*;

    #[test]
    fn what_was_read_before_a_revocation_is_not_believed_after_it() {
        let tokens = KnownTokens::default();
        let token = ApiToken {
            id: 1,
            workspace: Workspace::DEFAULT,
            name: "a".into(),
            role: Role::Admin,
            automations: None,
            created_at: Timestamp::from_secs(0),
            created_by: "start".into(),
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
        };
        let asked_in = tokens.known(&[1; 32]).unwrap_err();
        tokens.forget_all();
        tokens.remember(asked_in, [1; 32], token.clone());
        let asked_in = tokens.known(&[1; 32]).unwrap_err();
        tokens.remember(asked_in, [1; 32], token);
        assert!(tokens.known(&[1; 32]).is_ok());
    }
}
