//! Tokens that were seen, so that not every call asks the store; and when they were last used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use oncegate_core::time::Timestamp;
use oncegate_store::access::ApiToken;

/// What is known of tokens in this process. One process owns a SQLite store, so that what it revokes it forgets here.
#[derive(Debug, Default)]
pub(crate) struct KnownTokens {
    by_hash: RwLock<HashMap<[u8; 32], Arc<ApiToken>>>,
    used: Mutex<HashMap<i64, Timestamp>>,
}

impl KnownTokens {
    pub(crate) fn known(&self, hash: &[u8; 32]) -> Option<Arc<ApiToken>> {
        self.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    pub(crate) fn remember(&self, hash: [u8; 32], token: ApiToken) -> Arc<ApiToken> {
        let token = Arc::new(token);
        self.by_hash.write().unwrap_or_else(PoisonError::into_inner).insert(hash, Arc::clone(&token));
        token
    }

    /// To be called after a token was revoked, or its workspace deleted.
    #[allow(dead_code, reason = "the calls about tokens need it")]
    pub(crate) fn forget_all(&self) {
        self.by_hash.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn used(&self, id: i64, at: Timestamp) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(id, at);
    }

    /// What was used since the last call.
    pub(crate) fn take_used(&self) -> Vec<(i64, Timestamp)> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}
