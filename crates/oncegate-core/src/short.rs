//! Short texts of a known length that lie on the stack: ids and times are written several times in every answer.

/// `N` ASCII characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<const N: usize>([u8; N]);

impl<const N: usize> Short<N> {
    /// Of bytes that are all ASCII; anything else reads as nothing.
    pub(crate) fn ascii(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}
