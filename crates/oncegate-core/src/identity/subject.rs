//! What an event or a call is about, besides its key: whether it repeats another one (C15), and which record it means
//! (C82). Both are keyed hashes: the store learns nothing from them but whether two are equal.

use std::time::Duration;

use super::field::KeyField;
use super::part::Part;
use crate::key::{AutomationName, StoreSecret, Workspace, sha256};
use crate::webhook::NoIdentity;

/// The second-level rule: whatever agrees in these fields within this time is one intended effect, whatever its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The fields that must agree; at least one.
    pub fields: Vec<KeyField>,
    /// How long after the first of them was seen.
    pub within: Duration,
}

impl Repeat {
    /// Longest window: shorter than any retention, so that the first one is still there to be found.
    pub const WITHIN_MAX: Duration = Duration::from_secs(24 * 3600);
}

/// What is asked of the store: is there another claim like this one, first seen within the window?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Likeness {
    /// Equal for claims of one automation that agree in the rule's fields.
    pub hash: [u8; 16],
    /// How long one like it counts.
    pub within: Duration,
}

/// What a record said about itself when its key was claimed: the declaration's hash, then the values'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdentityPrint(pub [u8; 16]);

impl IdentityPrint {
    const DECLARATION: usize = 4;

    /// Whether the two are known to speak of different records. Values under another declaration cannot be compared: an
    /// edit of the configuration makes nobody a stranger.
    pub fn differs_from(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.0.split_at(Self::DECLARATION), other.0.split_at(Self::DECLARATION));
        ours.0 == theirs.0 && ours.1 != theirs.1
    }
}

/// Fields with what stands in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject(Vec<(String, Part)>);

impl Subject {
    /// Of fields that all have a value; `None` if one has not: of such a one nothing can be said.
    pub fn of<'a>(
        fields: impl IntoIterator<Item = (&'a KeyField, Result<Part, NoIdentity>)>,
    ) -> Option<Self> {
        let mut parts = vec![];
        for (field, part) in fields {
            match part {
                Ok(part @ Part::Value(_)) => parts.push((field.describe(), part)),
                Ok(part) if field.optional => parts.push((field.describe(), part)),
                Ok(_) | Err(_) => return None,
            }
        }
        // Nothing but kinds of nothing would make all of them one.
        parts.iter().any(|(_, part)| part.folded().is_some()).then_some(Self(parts))
    }

    /// The hash by which a claim of this automation finds those like it.
    pub fn likeness(
        &self,
        secret: &StoreSecret,
        workspace: Workspace,
        automation: &AutomationName,
        within: Duration,
    ) -> Likeness {
        let texts: Vec<String> = self.texts().collect();
        let mut parts: Vec<&[u8]> = vec![automation.as_str().as_bytes()];
        parts.extend(texts.iter().map(String::as_bytes));
        Likeness { hash: secret.hash_in(workspace, "likeness", &parts), within }
    }

    /// The hash by which a record is told from another that has its id.
    pub fn print(&self, secret: &StoreSecret, workspace: Workspace) -> IdentityPrint {
        let texts: Vec<String> = self.texts().collect();
        let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut print = secret.hash_in(workspace, "identity", &parts);
        let declared: Vec<&str> = self.0.iter().map(|(field, _)| field.as_str()).collect();
        let declaration = sha256(declared.join("\n").as_bytes());
        let length = IdentityPrint::DECLARATION;
        print[..length].copy_from_slice(&declaration[..length]);
        IdentityPrint(print)
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|(field, part)| [field.clone(), part.to_string()])
    }
}
