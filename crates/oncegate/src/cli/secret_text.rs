//! A secret among a command's settings; does not print.

use oncegate_core::secret::Secret;

/// What the environment, or an argument, says.
#[derive(Clone)]
pub(super) struct SecretText(pub(super) Secret);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl std::str::FromStr for SecretText {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Secret::new(text.trim())))
    }
}
