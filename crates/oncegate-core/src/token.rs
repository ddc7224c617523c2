//! The fencing token: the secret that proves one holds an attempt. A later attempt, a takeover or a reset
//! voids every earlier one, because the numbers inside no longer match the claim's.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::key::{ClaimId, ClaimRef, StoreSecret, Workspace, sha256};

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
/// 8 bytes of workspace, 16 of id, two numbers of 4 bytes, 16 bytes of HMAC.
const BYTES: usize = 48;
/// Without a workspace, as tokens were before there were several: attempts that an upgrade finds can still be finished.
const BYTES_BEFORE: usize = BYTES - 8;

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
    pub fn token(&self, claim: ClaimRef, fence: Fence) -> Token {
        let mut bytes = [0u8; BYTES];
        bytes[..8].copy_from_slice(&claim.workspace.0.to_be_bytes());
        bytes[8..24].copy_from_slice(&claim.id.0);
        bytes[24..28].copy_from_slice(&fence.attempt.to_be_bytes());
        bytes[28..32].copy_from_slice(&fence.generation.to_be_bytes());
        bytes[32..].copy_from_slice(&self.token_mac(claim, fence));
        Token(format!("{PREFIX}{}", data_encoding::BASE64URL_NOPAD.encode(&bytes)))
    }

    /// Reads a token that this store made, whether or not it still holds. `None` for anything else.
    ///
    /// Only SHA-256 hashes are compared, in constant time.
    pub fn read_token(&self, text: &str) -> Option<(ClaimRef, Fence)> {
        let encoded = text.strip_prefix(PREFIX)?;
        let bytes = data_encoding::BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()?;
        let (workspace, rest) = match bytes.len() {
            BYTES => {
                bytes.split_first_chunk::<8>().map(|(w, rest)| (Workspace(i64::from_be_bytes(*w)), rest))?
            }
            BYTES_BEFORE => (Workspace::DEFAULT, &bytes[..]),
            _ => return None,
        };
        let (id, rest) = rest.split_first_chunk::<16>()?;
        let (attempt, rest) = rest.split_first_chunk::<4>()?;
        let (generation, mac) = rest.split_first_chunk::<4>()?;
        let claim = ClaimRef { workspace, id: ClaimId(*id) };
        let fence =
            Fence { attempt: u32::from_be_bytes(*attempt), generation: u32::from_be_bytes(*generation) };
        let expected = sha256(&self.token_mac(claim, fence));
        bool::from(expected.ct_eq(&sha256(mac))).then_some((claim, fence))
    }

    fn token_mac(&self, claim: ClaimRef, fence: Fence) -> [u8; 16] {
        let (attempt, generation) = (fence.attempt.to_be_bytes(), fence.generation.to_be_bytes());
        match claim.workspace {
            // As it was before there were several workspaces; no other workspace has parts of this number.
            Workspace::DEFAULT => self.mac("token", &[&claim.id.0, &attempt, &generation]),
            Workspace(number) => {
                self.mac("token", &[&number.to_be_bytes(), &claim.id.0, &attempt, &generation])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_stores_tokens_are_read() {
        let (ours, theirs) = (StoreSecret::new([1; 32]), StoreSecret::new([2; 32]));
        let fence = Fence { attempt: 3, generation: 1 };
        let claim = ClaimRef { workspace: Workspace(5), id: ClaimId([7; 16]) };
        let token = ours.token(claim, fence);
        assert_eq!(ours.read_token(token.expose()), Some((claim, fence)));
        assert_eq!(theirs.read_token(token.expose()), None);
        assert_eq!(ours.read_token(""), None);
        for at in 0..token.expose().len() {
            let mut bytes = token.expose().as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(ours.read_token(std::str::from_utf8(&bytes).unwrap()), None, "byte {at}");
        }
        assert!(!format!("{token:?}").contains(token.expose()));
    }

    #[test]
    fn tokens_from_before_workspaces_are_those_of_the_default_one() {
        let secret = StoreSecret::new([1; 32]);
        let fence = Fence { attempt: 3, generation: 1 };
        let claim = ClaimRef { workspace: Workspace::DEFAULT, id: ClaimId([7; 16]) };
        let bytes = data_encoding::BASE64URL_NOPAD
            .decode(secret.token(claim, fence).expose().strip_prefix(PREFIX).unwrap().as_bytes())
            .unwrap();
        let before = format!("{PREFIX}{}", data_encoding::BASE64URL_NOPAD.encode(&bytes[8..]));
        assert_eq!(secret.read_token(&before), Some((claim, fence)));
        let elsewhere = ClaimRef { workspace: Workspace(2), ..claim };
        let bytes = secret.token(elsewhere, fence);
        let cut = data_encoding::BASE64URL_NOPAD
            .decode(bytes.expose().strip_prefix(PREFIX).unwrap().as_bytes())
            .unwrap();
        let cut = format!("{PREFIX}{}", data_encoding::BASE64URL_NOPAD.encode(&cut[8..]));
        assert_eq!(secret.read_token(&cut), None, "another workspace's token is not the default one's");
    }
}
