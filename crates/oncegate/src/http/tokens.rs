//! Tokens that were seen, so that not every call asks the store; and when they were last used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use oncegate_core::time::Timestamp;
use oncegate_store::access::ApiToken;

/// Rises with every forgetting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Epoch(u64);

/// When the store is asked about a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    epoch: Epoch,
    /// On the monotonic clock, before it was asked.
    at: Duration,
}

#[derive(Debug, Default)]
struct Known {
    epoch: Epoch,
    /// With when the store was asked, on the monotonic clock.
    by_hash: HashMap<[u8; 32], (Duration, Arc<ApiToken>)>,
}

/// What is known of tokens in this process. Where one process owns the store, what it revokes it forgets here; what
/// another one revokes is only found by asking again, so on a shared store nothing is believed for long.
#[derive(Debug)]
pub(crate) struct KnownTokens {
    /// How long what the store said is believed; `None`: until it is forgotten.
    believed: Option<Duration>,
    known: RwLock<Known>,
    used: Mutex<HashMap<i64, Timestamp>>,
}

impl KnownTokens {
    pub(crate) fn new(believed: Option<Duration>) -> Self {
        Self { believed, known: RwLock::default(), used: Mutex::default() }
    }

    /// The token, or when it was looked for in vain. `now` is the monotonic clock's.
    pub(crate) fn known(&self, hash: &[u8; 32], now: Duration) -> Result<Arc<ApiToken>, Asked> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let asked = Asked { epoch: known.epoch, at: now };
        let (at, token) = known.by_hash.get(hash).ok_or(asked)?;
        match self.believed.is_none_or(|long| now.saturating_sub(*at) < long) {
            true => Ok(Arc::clone(token)),
            false => Err(asked),
        }
    }

    /// Keeps what the store said, unless a token was revoked since it was asked: the answer may be from before.
    pub(crate) fn remember(&self, asked: Asked, hash: [u8; 32], token: ApiToken) -> Arc<ApiToken> {
        let token = Arc::new(token);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Of two that asked, the later knows more.
        let newer = known.by_hash.get(&hash).is_none_or(|(at, _)| *at <= asked.at);
        if known.epoch == asked.epoch && newer {
            known.by_hash.insert(hash, (asked.at, Arc::clone(&token)));
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

    const S: Duration = Duration::from_secs(1);

    fn token(revoked_at: Option<Timestamp>) -> ApiToken {
        ApiToken {
            id: 1,
            workspace: Workspace::DEFAULT,
            name: "a".into(),
            role: Role::Admin,
            automations: None,
            created_at: Timestamp::from_secs(0),
            created_by: "start".into(),
            expires_at: None,
            last_used_at: None,
            revoked_at,
        }
    }

    #[test]
    fn what_was_read_before_a_revocation_is_not_believed_after_it() {
        let tokens = KnownTokens::new(None);
        let asked = tokens.known(&[1; 32], S).unwrap_err();
        tokens.forget_all();
        tokens.remember(asked, [1; 32], token(None));
        let asked = tokens.known(&[1; 32], S).unwrap_err();
        tokens.remember(asked, [1; 32], token(None));
        assert!(tokens.known(&[1; 32], 1_000 * S).is_ok());
    }

    #[test]
    fn on_a_shared_store_another_node_may_have_revoked_it_a_moment_ago() {
        let tokens = KnownTokens::new(Some(S));
        let asked = tokens.known(&[1; 32], 5 * S).unwrap_err();
        tokens.remember(asked, [1; 32], token(None));
        assert!(tokens.known(&[1; 32], 5 * S + S / 2).is_ok());
        let asked_late = tokens.known(&[1; 32], 6 * S).unwrap_err();
        tokens.remember(asked_late, [1; 32], token(Some(Timestamp::from_secs(9))));
        // An answer that was under way for long does not make it good again.
        tokens.remember(asked, [1; 32], token(None));
        assert!(tokens.known(&[1; 32], 6 * S).unwrap().revoked_at.is_some());
        assert!(tokens.known(&[1; 32], 7 * S).is_err(), "what is bad is looked at again, too");
    }
}
