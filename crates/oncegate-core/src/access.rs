//! Who may do what: roles of API tokens, and the rights they give.

use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

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
