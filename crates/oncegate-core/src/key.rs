//! What names an intended effect: `idempotency_key`, automation, record, run id, and their hashes.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::identity::{self, Folded, Part};
use crate::limits;
use crate::short::Short;

/// Why a name was refused; the sentence a user reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing but white space, which would make all events one.
    #[error("{field} is blank; every intended effect needs a name of its own")]
    Blank {
        /// The field as the caller wrote it.
        field: &'static str,
    },
    /// Over the limit of its kind.
    #[error("{field} is {bytes} bytes long; at most {max} are allowed")]
    TooLong {
        /// The field as the caller wrote it.
        field: &'static str,
        /// What was offered.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// A character that prints nothing, so that two names look like one.
    #[error("{field} contains the invisible character U+{code:04X} at byte {at}; remove it")]
    Invisible {
        /// The field as the caller wrote it.
        field: &'static str,
        /// The character's code point.
        code: u32,
        /// Where it stands.
        at: usize,
    },
    /// A control character, which breaks logs, lists and headers.
    #[error("{field} contains the control character U+{code:04X} at byte {at}; remove it or escape it")]
    Control {
        /// The field as the caller wrote it.
        field: &'static str,
        /// The character's code point.
        code: u32,
        /// Where it stands.
        at: usize,
    },
}

/// White space, and the characters that print nothing: a name of those alone would make all events one, and two
/// names that differ only by them look the same.
pub(crate) fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
}

fn check(field: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    if text.chars().all(is_invisible) {
        return Err(NameError::Blank { field });
    }
    if text.len() > max {
        return Err(NameError::TooLong { field, bytes: text.len(), max });
    }
    // Control characters beyond ASCII begin with this byte in UTF-8.
    if text.bytes().all(|b| b >= b' ' && b != 0x7f && b != 0xc2) {
        return Ok(());
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => Err(NameError::Control { field, code: u32::from(c), at }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The text, exactly as accepted.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;
            fn try_from(text: &str) -> Result<Self, NameError> {
                check($field, text, $max)?;
                Ok(Self(text.to_owned()))
            }
        }
    };
}

name!(
    /// Names one intended effect of one automation, e.g. `form_id:submission_id`. Compared byte for byte.
    IdempotencyKey, "idempotency_key", limits::KEY_BYTES_MAX
);
name!(
    /// The business record touched, e.g. `hubspot:contacts:ann@example.com`.
    RecordName, "record", limits::RECORD_BYTES_MAX
);
name!(
    /// Names one item of one run of the caller (execution id + node + item index).
    RunId, "run_id", limits::RUN_ID_BYTES_MAX
);

impl IdempotencyKey {
    /// Joins texts as [`identity::join`] does fields that nothing is declared about.
    ///
    /// # Errors
    /// One is blank (no identity) or has control characters, or the whole is too long.
    pub fn join<S: AsRef<str>>(fields: &[S]) -> Result<Self, NameError> {
        let mut parts = Vec::with_capacity(fields.len());
        for field in fields.iter().map(AsRef::as_ref) {
            if field.chars().all(is_invisible) {
                return Err(NameError::Blank { field: "idempotency_key" });
            }
            parts.push(Part::Value(Folded { folded: field.to_owned(), shown: field.to_owned() }));
        }
        identity::join(parts.iter().map(|part| (None, part)))
    }
}

/// A named flow. Trimmed and case-folded, so that `Welcome ` and `welcome` are one automation (DESIGN §2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AutomationName(String);

impl AutomationName {
    /// The folded name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for AutomationName {
    type Error = NameError;
    fn try_from(text: &str) -> Result<Self, NameError> {
        let folded = text.trim_matches(is_invisible).to_lowercase();
        check("automation", &folded, limits::AUTOMATION_BYTES_MAX)?;
        if let Some((at, c)) = folded.char_indices().find(|(_, c)| is_invisible(*c) && !c.is_whitespace()) {
            return Err(NameError::Invisible { field: "automation", code: u32::from(c), at });
        }
        Ok(Self(folded))
    }
}

impl fmt::Display for AutomationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The 16-byte keyed hash under which a claim is found, and which outlives its text when a claim is pruned.
///
/// Keyed by the store's secret: without it nobody can test whether a guessed address is in a store. It is also
/// the public id of the claim, because it tells nothing and never changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub [u8; 16]);

impl ClaimId {
    /// Reads the 32 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    /// The 32 hexadecimal digits.
    pub fn hex(&self) -> Short<32> {
        let mut digits = [0; 32];
        data_encoding::HEXLOWER.encode_mut(&self.0, &mut digits);
        Short::ascii(digits)
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hex().as_str())
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({self})")
    }
}

impl Serialize for ClaimId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.hex().as_str())
    }
}

/// One client or team, by its number in the store; every key, record, token and list lives in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workspace(pub i64);

impl Workspace {
    /// The workspace that every store has.
    pub const DEFAULT: Self = Self(1);
}

/// A claim and whose it is: an id alone opens nothing, because one workspace never sees another's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimRef {
    /// Whose.
    pub workspace: Workspace,
    /// Which claim.
    pub id: ClaimId,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl Serialize for ClaimRef {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(s)
    }
}

/// HMAC-SHA256 ready to be fed; any key length is legal (RFC 2104).
pub(crate) fn hmac(key: &[u8]) -> Hmac<Sha256> {
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of every length"),
    }
}

/// SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The secret a store makes for itself at its creation; ids, tokens and outgoing keys derive from it.
#[derive(Clone)]
pub struct StoreSecret {
    /// Fed with the key and nothing else: what is hashed for every claim begins there.
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for StoreSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSecret(…)")
    }
}

impl StoreSecret {
    /// From 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { keyed: hmac(&bytes) }
    }

    /// HMAC-SHA256 over length-prefixed parts: no two different lists of parts give the same input.
    fn keyed_hash(&self, domain: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.keyed.clone();
        for part in std::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// The id of the claim for (workspace, automation, key). Automations enter by number: renaming one never
    /// forgets what was done.
    pub fn claim_id(&self, workspace: Workspace, automation: i64, key: &IdempotencyKey) -> ClaimId {
        let parts: [&[u8]; 3] =
            [&workspace.0.to_be_bytes(), &automation.to_be_bytes(), key.as_str().as_bytes()];
        ClaimId(first16(&self.keyed_hash("claim", &parts)))
    }

    /// The number that an automation of this name gets when it is first seen: positive, and the same in every life of a
    /// store. After a restore an automation that the backup does not know gets its old number back, and with it its
    /// claims their ids and the keys that their receivers may remember; another one never does.
    pub fn automation_number(&self, workspace: Workspace, name: &AutomationName) -> i64 {
        let parts: [&[u8]; 2] = [&workspace.0.to_be_bytes(), name.as_str().as_bytes()];
        let hash = first16(&self.keyed_hash("automation", &parts));
        // 62 bits: room for the numbers that are counted on from there.
        let bits = hash[..8].iter().fold(0u64, |bits, byte| (bits << 8) | u64::from(*byte)) >> 2;
        i64::try_from(bits | 1).unwrap_or(i64::MAX / 2)
    }

    /// What one store is told apart from others by: 16 hexadecimal digits, the same on all nodes. Says nothing else.
    pub fn store_label(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.keyed_hash("store label", &[])[..8])
    }

    /// The 16-byte hash under which a record's holder is found.
    pub fn record_hash(&self, workspace: Workspace, record: &RecordName) -> [u8; 16] {
        let parts: [&[u8]; 2] = [&workspace.0.to_be_bytes(), record.as_str().as_bytes()];
        first16(&self.keyed_hash("record", &parts))
    }

    /// The `Idempotency-Key` a step sends: the same on every attempt, another for every step and every key
    /// generation that a person starts. It says nothing about the business key, which may be an address.
    pub fn step_key(&self, claim: ClaimId, step: &str, key_generation: u32) -> String {
        let parts: [&[u8]; 3] = [&claim.0, step.as_bytes(), &key_generation.to_be_bytes()];
        format!("og-{}", data_encoding::HEXLOWER.encode(&first16(&self.keyed_hash("step", &parts))))
    }

    /// A 16-byte hash of parts that belong to a workspace; `domain` keeps different uses apart.
    pub(crate) fn hash_in(&self, workspace: Workspace, domain: &str, parts: &[&[u8]]) -> [u8; 16] {
        let workspace = workspace.0.to_be_bytes();
        let all: Vec<&[u8]> = std::iter::once(&workspace[..]).chain(parts.iter().copied()).collect();
        first16(&self.keyed_hash(domain, &all))
    }

    pub(crate) fn mac(&self, domain: &str, parts: &[&[u8]]) -> [u8; 16] {
        first16(&self.keyed_hash(domain, parts))
    }
}

fn first16(bytes: &[u8; 32]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&bytes[..16]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_ids_join_readably() {
        let key = IdempotencyKey::join(&["typeform", "form_response", "frmDemo7"]).unwrap();
        assert_eq!(key.as_str(), "typeform:form_response:frmDemo7");
    }

    #[test]
    fn blanks_and_control_characters_are_refused() {
        assert!(matches!(IdempotencyKey::join(&["f", " "]), Err(NameError::Blank { .. })));
        for text in ["\u{a0}", "\u{200b}", "\u{feff} \u{2060}"] {
            assert!(matches!(IdempotencyKey::try_from(text), Err(NameError::Blank { .. })), "{text:?}");
        }
        assert!(matches!(IdempotencyKey::try_from("a\nb"), Err(NameError::Control { at: 1, .. })));
        assert!(matches!(RecordName::try_from("x".repeat(513).as_str()), Err(NameError::TooLong { .. })));
    }

    #[test]
    fn automation_names_are_folded() {
        for text in ["  WelCome ", "\u{feff}welcome\u{200b}"] {
            assert_eq!(AutomationName::try_from(text).unwrap().as_str(), "welcome");
        }
        for text in ["wel\u{ad}come", "wel\u{202e}come", "wel\u{200d}come"] {
            assert!(
                matches!(AutomationName::try_from(text), Err(NameError::Invisible { at: 3, .. })),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn joining_is_injective(
            a in prop::collection::vec("[a:\\\\b]{1,4}", 1..4),
            b in prop::collection::vec("[a:\\\\b]{1,4}", 1..4),
        ) {
            let (ka, kb) = (IdempotencyKey::join(&a).unwrap(), IdempotencyKey::join(&b).unwrap());
            prop_assert_eq!(a == b, ka == kb);
        }
    }
}
