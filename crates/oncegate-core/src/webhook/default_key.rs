//! What a key is made of where the source does not say.

use serde_json::Value;

use super::field::FieldPath;

/// The provider's name, perhaps the source's, then words and fields.
pub(super) struct DefaultKey {
    /// Instead of the provider's name.
    pub(super) begins: Option<&'static str>,
    /// For ids that are unique only within one source.
    pub(super) with_source: bool,
    pub(super) parts: Vec<KeyPart>,
}

/// One part of a default key.
pub(super) enum KeyPart {
    /// The same for all events of a kind.
    Word(&'static str),
    /// What stands in a field.
    Field(FieldPath),
    /// The same, where the provider sends `0` for "nothing is stored": that is no id.
    Id(FieldPath),
    /// What the provider's rules read out of a field that is no plain value.
    Read { at: FieldPath, value: Option<Value> },
}

impl DefaultKey {
    /// Of fields alone.
    pub(super) fn of(fields: impl IntoIterator<Item = FieldPath>) -> Self {
        Self::from(fields.into_iter().map(KeyPart::Field).collect::<Vec<_>>())
    }

    /// Of fields of the body, each named by its way through it, dots between the names.
    pub(super) fn body<const N: usize>(fields: [&str; N]) -> Self {
        Self::of(fields.map(path))
    }

    pub(super) fn with_source(self) -> Self {
        Self { with_source: true, ..self }
    }

    pub(super) fn begins(self, word: &'static str) -> Self {
        Self { begins: Some(word), ..self }
    }
}

impl From<Vec<KeyPart>> for DefaultKey {
    fn from(parts: Vec<KeyPart>) -> Self {
        Self { begins: None, with_source: false, parts }
    }
}

/// A field of the body, by its way through it. For names without dots.
pub(super) fn path(way: &str) -> FieldPath {
    FieldPath::body(&way.split('.').collect::<Vec<_>>())
}

/// The first of several fields that has a value; the first of all if none has.
pub(super) fn first_of(payload: &Value, ways: &[&str]) -> FieldPath {
    let has = |way: &&&str| path(way).find_in(payload).is_some_and(|value| !is_nothing(value));
    path(ways.iter().find(has).or(ways.first()).copied().unwrap_or_default())
}

/// What forms send where a field was left empty.
pub(super) fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
}
