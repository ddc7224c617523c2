//! The fencing token: the secret that proves one holds an attempt. A later attempt, a takeover or a reset
//! voids every earlier one, because the numbers inside no longer match the claim's.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::key::{ClaimId, StoreSecret, sha256};

/// Which attempt a token was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The attempt, numbered from 1.
    pub attempt: u32,
    /// Raised by whatever voids a token without starting an attempt: a reset, a record taken over.
    pub generation: u32,
}

/// A token as text. Anyone who has it can finish the attempt: it is never logged, and `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

const PREFIX: &str = "ogt_";
/// 16 bytes of id, two numbers of 4 bytes, 16 bytes of HMAC.
const BYTES: usize = 40;

impl Token {
    /// The text itself, for the one who may have it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl StoreSecret {
    /// The token of one attempt: an HMAC of the store's secret over claim, attempt and generation.
    pub fn token(&self, claim: ClaimId, fence: Fence) -> Token {
        let mut bytes = [0u8; BYTES];
        bytes[..16].copy_from_slice(&claim.0);
        bytes[16..20].copy_from_slice(&fence.attempt.to_be_bytes());
        bytes[20..24].copy_from_slice(&fence.generation.to_be_bytes());
        bytes[24..].copy_from_slice(&self.token_mac(claim, fence));
        Token(format!("{PREFIX}{}", data_encoding::BASE64URL_NOPAD.encode(&bytes)))
    }

    /// Reads a token that this store made, whether or not it still holds. `None` for anything else.
    ///
    /// Only SHA-256 hashes are compared, in constant time.
    pub fn read_token(&self, text: &str) -> Option<(ClaimId, Fence)> {
        let encoded = text.strip_prefix(PREFIX)?;
        let bytes = data_encoding::BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()?;
        let bytes: [u8; BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[..16]);
        let claim = ClaimId(id);
        let fence = Fence { attempt: word(16), generation: word(20) };
        let expected = sha256(&self.token_mac(claim, fence));
        bool::from(expected.ct_eq(&sha256(&bytes[24..]))).then_some((claim, fence))
    }

    fn token_mac(&self, claim: ClaimId, fence: Fence) -> [u8; 16] {
        self.mac("token", &[&claim.0, &fence.attempt.to_be_bytes(), &fence.generation.to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_stores_tokens_are_read() {
        let (ours, theirs) = (StoreSecret::new([1; 32]), StoreSecret::new([2; 32]));
        let fence = Fence { attempt: 3, generation: 1 };
        let token = ours.token(ClaimId([7; 16]), fence);
        assert_eq!(ours.read_token(token.expose()), Some((ClaimId([7; 16]), fence)));
        assert_eq!(theirs.read_token(token.expose()), None);
        assert_eq!(ours.read_token(""), None);
        for at in 0..token.expose().len() {
            let mut bytes = token.expose().as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(ours.read_token(std::str::from_utf8(&bytes).unwrap()), None, "byte {at}");
        }
        assert!(!format!("{token:?}").contains(token.expose()));
    }
}
