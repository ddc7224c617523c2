//! How a store is doing: numbers for those who watch it, across all workspaces.

use std::time::Duration;

use oncegate_core::inbox::InboxList;
use oncegate_core::time::Timestamp;

/// A store's state at one moment.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// How many stand in each inbox list, and since when the oldest of them has.
    pub inbox: Vec<Standing>,
    /// Work of the runner that is due, or lost its holder.
    pub due: u64,
    /// Since when the oldest of it has been.
    pub due_since: Option<Timestamp>,
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Bytes of its write-ahead log; `None` where the store cannot know: a database server's.
    pub wal_bytes: Option<u64>,
    /// Bytes that this process may still write to the disk they are on; `None` where the store cannot know.
    pub free_bytes: Option<u64>,
    /// The wall clock.
    pub now: Timestamp,
    /// The wall clock when the store last ticked.
    pub ticked_at: Option<Timestamp>,
    /// Whether the wall clock has leapt forward lately, so that nothing is forgotten on its word.
    pub clock_is_doubtful: bool,
    /// When the newest backup was finished; `None` if there is none.
    pub backed_up_at: Option<Timestamp>,
}

/// One inbox list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub list: InboxList,
    /// How many.
    pub count: u64,
    /// Since when the oldest needs somebody; `None` if it is empty.
    pub since: Option<Timestamp>,
}

impl Vitals {
    /// How long something has lasted; zero for what has not begun, or lies ahead of a clock that was set back.
    pub fn age(&self, since: Option<Timestamp>) -> Duration {
        since.map(|since| self.now.since(since)).unwrap_or_default()
    }
}
