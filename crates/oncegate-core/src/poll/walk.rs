//! One poll on its way through the pages: what is taken of each, whether it goes on, where the cursor stands.

use std::collections::HashSet;

use super::{Fault, Mark, Onward, Order, Page, Poll, Position};
use crate::key::sha256;
use crate::limits;
use crate::time::Timestamp;

/// A poll that is under way.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Where the cursor stood when it began.
    base: Mark,
    /// What lies before is history, which nobody asked for.
    from: Mark,
    highest: Option<Mark>,
    /// No item stood before one that came earlier.
    is_sorted: bool,
    pages: usize,
    /// Pages that came, and what led to them.
    met: HashSet<[u8; 32]>,
}

impl Walk {
    /// One that begins where a poll stands.
    pub fn new(poll: &Poll, position: &Position) -> Self {
        Self {
            base: position.cursor,
            from: position.from.before(poll.overlap),
            highest: None,
            is_sorted: true,
            pages: 0,
            met: HashSet::new(),
        }
    }

    /// What the API is asked for: everything from there on.
    pub fn asks(&self, poll: &Poll) -> String {
        poll.form.write(self.base.before(poll.overlap))
    }

    /// Goes over a page. Of its items those may be taken that [`Walk::takes`].
    ///
    /// # Errors
    /// It was here before; nothing of it is new.
    pub fn over(&mut self, page: &Page) -> Result<(), Fault> {
        self.pages += 1;
        if page.print.is_some_and(|print| !self.met.insert(print)) {
            return Err(Fault::Repeats);
        }
        for mark in page.items.iter().filter_map(|item| item.mark) {
            self.is_sorted &= self.highest.is_none_or(|highest| highest <= mark);
            self.highest = self.highest.max(Some(mark));
        }
        Ok(())
    }

    /// Whether an item is news: it does not lie before where the poll began. One that does not say is believed,
    /// because it was asked for.
    pub fn takes(&self, mark: Option<Mark>) -> bool {
        mark.is_none_or(|mark| mark >= self.from)
    }

    /// What leads to the next page, if there is one and it may be read.
    ///
    /// # Errors
    /// It leads to where this came from, or there were too many.
    pub fn onward(&mut self, page: &Page) -> Result<Option<Onward>, Fault> {
        let Some(next) = &page.next else { return Ok(None) };
        let (Onward::Link(text) | Onward::Token(text)) = next;
        if !self.met.insert(sha256(text.as_bytes())) {
            return Err(Fault::Repeats);
        }
        match self.pages >= limits::POLL_PAGES_MAX {
            true => Err(Fault::TooManyPages),
            false => Ok(Some(next.clone())),
        }
    }

    /// Where the cursor stands once what came so far is admitted. It never goes back, and never beyond `now`: an item
    /// that is dated in the future must not keep away what is dated before it.
    ///
    /// Before the last page it only moves where the order is declared and holds: what is on the pages to come may lie
    /// anywhere else.
    pub fn cursor(&self, poll: &Poll, now: Timestamp, is_last: bool) -> Mark {
        let moves = is_last || (poll.order == Order::Ascending && self.is_sorted);
        let highest = self.highest.filter(|_| moves).map(|mark| match poll.form.is_time() {
            true => mark.min(now.into()),
            false => mark,
        });
        highest.map_or(self.base, |highest| highest.max(self.base))
    }

    /// Whether the next poll would go on behind what this one has read.
    pub fn has_moved(&self, poll: &Poll, now: Timestamp) -> bool {
        self.cursor(poll, now, false) > self.base
    }
}
