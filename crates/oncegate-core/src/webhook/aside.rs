//! What a guard at the door of a source sets aside: an event that is genuine and has nothing wrong with it, and is
//! kept for a person all the same. It takes no key.

/// Which guard it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aside {
    /// It is of another environment than its source.
    OtherEnvironment,
    /// A mail that no person wrote.
    MachineMail,
    /// Its sender has sent more than its source lets run.
    Sender,
}

impl Aside {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::OtherEnvironment, Self::MachineMail, Self::Sender];

    /// The word stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherEnvironment => "other_environment",
            Self::MachineMail => "machine_mail",
            Self::Sender => "sender",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// What its sender is told; 200 either way.
    pub const fn answer(self) -> &'static str {
        match self {
            Self::OtherEnvironment => "stored, not run: other environment",
            Self::MachineMail => "stored, not run: machine mail",
            Self::Sender => "stored, not run: too many of its sender",
        }
    }

    /// What one of them is, after its number.
    pub const fn described(self) -> &'static str {
        match self {
            Self::OtherEnvironment => "of another environment",
            Self::MachineMail => "a mail that no person wrote",
            Self::Sender => "one too many of its sender",
        }
    }
}

/// An event that is set aside, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// By which guard.
    pub kind: Aside,
    /// In words, for a person.
    pub why: String,
}
