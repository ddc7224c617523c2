//! Items of which this process knows that they were admitted: what a poll reads anew each time need not be stopped
//! anew, with a line of history for each. What is not known here is stopped by its key.

use std::collections::HashSet;

use oncegate_core::key::sha256;
use oncegate_core::limits::POLL_ITEMS_KNOWN_MAX;

/// Of one source.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Of the last poll that came to its end, and of those since.
    before: HashSet<[u8; 16]>,
    /// Of the one under way.
    now: HashSet<[u8; 16]>,
}

/// Tells an item from every other, and from itself once it has changed.
pub(super) fn print(json: &str) -> [u8; 16] {
    let mut print = [0; 16];
    print.copy_from_slice(&sha256(json.as_bytes())[..16]);
    print
}

impl Known {
    /// Whether it was admitted lately; it was seen again now.
    pub(super) fn knows(&mut self, print: [u8; 16]) -> bool {
        let knows = self.now.contains(&print) || self.before.contains(&print);
        if knows {
            self.admitted([print]);
        }
        knows
    }

    /// They are in the store.
    pub(super) fn admitted(&mut self, prints: impl IntoIterator<Item = [u8; 16]>) {
        for print in prints {
            if self.now.len() < POLL_ITEMS_KNOWN_MAX {
                self.now.insert(print);
            }
        }
    }

    /// A poll ended. What one did not see again that came to its end, no other will.
    pub(super) fn ended(&mut self, well: bool) {
        let now = std::mem::take(&mut self.now);
        match well {
            true => self.before = now,
            false => self.before.extend(now),
        }
        if self.before.len() > POLL_ITEMS_KNOWN_MAX {
            self.before.clear();
        }
    }
}
