//! The reasons why a claim waits for a person although nothing failed.

use serde::{Deserialize, Serialize};

/// Why a claim stands in the parked list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parked {
    /// A caller was stopped for a passing reason; its run must be replayed where it came from.
    NeedsReplay,
    /// Too many first runs of one record.
    LoopSuspected,
    /// Its record is part of an open incident.
    Incident,
    /// A person reset work of our own without starting it: it waits for "run now" or for its next event.
    Reset,
    /// Unknown to the backup that the store was restored from, and perhaps done between the two.
    Restored,
    /// It is the same effect as another claim by the automation's repeat rule ([`crate::claim::Claim::repeat_of`]).
    Repeat,
    /// Its step asks a person, and its attempt is suspended until somebody answers: the one reason that stands beside
    /// `processing`.
    Review,
}

impl Parked {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::NeedsReplay,
        Self::LoopSuspected,
        Self::Incident,
        Self::Reset,
        Self::Restored,
        Self::Repeat,
        Self::Review,
    ];

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|parked| parked.as_str() == word)
    }

    /// The word stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeedsReplay => "needs_replay",
            Self::LoopSuspected => "loop_suspected",
            Self::Incident => "incident",
            Self::Reset => "reset",
            Self::Restored => "restored",
            Self::Repeat => "repeat",
            Self::Review => "review",
        }
    }
}
