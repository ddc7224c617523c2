//! A secret has a type that does not print (DESIGN §9, law 8).

use std::fmt;

/// Bytes that must reach no log, no error and no page. `Debug` shows only that there is something.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes; the caller's copy, if any, is its own affair.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes themselves, for signing and sending. Named so that a reader of the code stops at it.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_secret_does_not_print() {
        let s = super::Secret::new("hunter2");
        assert!(!format!("{s:?}").contains("hunter2"));
    }
}
