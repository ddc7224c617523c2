//! Who may do what: roles of API tokens, and the rights they give.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::is_invisible;
use crate::limits;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May only claim: for tokens that stand in somebody else's tool, e.g. in a Zap.
    Caller,
    /// May only look.
    Viewer,
    /// May look, claim, and do what people do: reset, run now, pause.
    Operator,
    /// May do everything in its workspace; that of the default workspace, on the whole server.
    Admin,
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Ask whether something may run.
    Claim,
    /// See claims, lists, payloads, the audit.
    Read,
    /// Reset, mark, dismiss, pause, release.
    Act,
    /// Tokens, forgetting, exports of a person, settings.
    Administer,
}

impl Role {
    /// Every role, from the least to the most.
    pub const ALL: [Self; 4] = [Self::Caller, Self::Viewer, Self::Operator, Self::Admin];

    /// The word in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether it gives a right.
    pub const fn has(self, right: Right) -> bool {
        match (self, right) {
            (Self::Admin, _) => true,
            (Self::Operator, Right::Claim | Right::Read | Right::Act) => true,
            (Self::Viewer, Right::Read) => true,
            (Self::Caller, Right::Claim) => true,
            (Self::Operator, Right::Administer) => false,
            (Self::Viewer, Right::Claim | Right::Act | Right::Administer) => false,
            (Self::Caller, Right::Read | Right::Act | Right::Administer) => false,
        }
    }
}

impl Right {
    /// The least role that has it, to be named in a refusal.
    pub const fn least(self) -> Role {
        match self {
            Self::Claim => Role::Caller,
            Self::Read => Role::Viewer,
            Self::Act => Role::Operator,
            Self::Administer => Role::Admin,
        }
    }
}

/// Why the name of a workspace or of a token was refused; the sentence a user reads after the field's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessNameError {
    /// It stands in URLs and in the configuration.
    #[error("must be 1 to {max} lower-case letters, digits, - and _, because it stands in URLs")]
    Workspace {
        /// Bytes at most.
        max: usize,
    },
    /// It stands in every line of history and audit.
    #[error(
        "must be 1 to {max} bytes of visible text in one line, and must not end in @default, which marks what the \
         server's admins do"
    )]
    Token {
        /// Bytes at most.
        max: usize,
    },
}

/// What people call a workspace, e.g. `acme`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct WorkspaceName(String);

impl WorkspaceName {
    /// The name of the workspace that every store has.
    pub const DEFAULT: &str = "default";

    /// The text, exactly as accepted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for WorkspaceName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl TryFrom<&str> for WorkspaceName {
    type Error = AccessNameError;
    fn try_from(text: &str) -> Result<Self, AccessNameError> {
        let max = limits::WORKSPACE_BYTES_MAX;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        match (1..=max).contains(&text.len()) && text.chars().all(plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(AccessNameError::Workspace { max }),
        }
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What people call a token, e.g. `Zap of the order form`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TokenName(String);

impl TokenName {
    /// The name of the token that the start makes.
    pub fn of_the_start() -> Self {
        Self("admin".to_owned())
    }

    /// The text, without blanks around it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for TokenName {
    type Error = AccessNameError;
    fn try_from(text: &str) -> Result<Self, AccessNameError> {
        let (max, text) = (limits::TOKEN_NAME_BYTES_MAX, text.trim_matches(is_invisible));
        let hidden = |c: char| c.is_control() || (is_invisible(c) && c != ' ');
        // Of the server's admin who acts elsewhere: nobody else's acts may look like that one's.
        let visitor = text.to_lowercase().ends_with(&format!("@{}", WorkspaceName::DEFAULT));
        match (1..=max).contains(&text.len()) && !text.chars().any(hidden) && !visitor {
            true => Ok(Self(text.to_owned())),
            false => Err(AccessNameError::Token { max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_workspaces_stand_in_urls_and_those_of_tokens_in_one_line() {
        for good in ["acme", "client-2", "a_b", "0"] {
            assert_eq!(WorkspaceName::try_from(good).unwrap().as_str(), good);
        }
        for bad in ["", "Acme", "a b", "a/b", "#2", "é", &"x".repeat(65)] {
            assert!(WorkspaceName::try_from(bad).is_err(), "{bad}");
        }
        assert_eq!(TokenName::try_from("  Zap of the form\u{200b} ").unwrap().as_str(), "Zap of the form");
        for bad in [
            "",
            " \u{feff}",
            "a\nb",
            "a\u{202e}b",
            "a\u{7f}",
            "admin@default",
            "x@DEFAULT ",
            &"x".repeat(101),
        ] {
            assert!(TokenName::try_from(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn each_right_has_its_roles() {
        let rights = [Right::Claim, Right::Read, Right::Act, Right::Administer];
        let table: Vec<[bool; 4]> =
            Role::ALL.iter().map(|role| rights.map(|right| role.has(right))).collect();
        assert_eq!(
            table,
            [
                [true, false, false, false],
                [false, true, false, false],
                [true, true, true, false],
                [true, true, true, true]
            ]
        );
        for right in rights {
            assert!(right.least().has(right));
        }
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
    }
}
