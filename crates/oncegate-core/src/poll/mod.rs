//! Polls: sources that oncegate itself asks what is new. What an API answers and where a poll stands give the items
//! that are taken, whether there is another page, and where the cursor stands then. An item is an event like any
//! other, with a key of its own, so that what is read twice runs once (C63).

mod cursor;
mod page;
mod position;
mod walk;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::webhook::FieldPath;

pub use cursor::{Form, Mark};
pub use page::{Item, Onward, Page};
pub use position::{Failing, Position, Taken, failure_is_told};
pub use walk::Walk;

/// What is declared of a poll, but for the call itself.
#[derive(Clone, Debug)]
pub struct Poll {
    /// How long from one look to the next.
    pub every: Duration,
    /// Where a page lists its items; `None`: the answer is the list.
    pub items: Option<FieldPath>,
    /// What leads to the next page; `None`: there is one page.
    pub next: Option<Next>,
    /// What stands in each item and grows from one change to the next.
    pub cursor: FieldPath,
    /// How it is written.
    pub form: Form,
    /// How far before the cursor each poll begins to read; zero for numbers, at least a second else.
    pub overlap: Duration,
    /// In which order items come.
    pub order: Order,
    /// Where a poll begins that never ran.
    pub start: Start,
}

/// What leads from one page to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A field holds the address of the next page.
    Link(FieldPath),
    /// A field holds a word, which is sent along with the same address.
    Token {
        /// Where it stands.
        field: FieldPath,
        /// The parameter of the query that carries it.
        query: String,
    },
}

/// In which order the items of all pages come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Nobody says: the cursor moves when all pages were read, and not before.
    #[default]
    Any,
    /// The oldest change first, over all pages: the cursor moves with each page.
    Ascending,
}

/// Where a poll begins that never ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the moment at which it is first looked at: what was before does not run.
    Now,
    /// There.
    At(Mark),
}

/// Why a poll did not come to its end; the sentence a user reads. None holds anything of an item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The call itself failed; in the caller's words.
    #[error("{0}")]
    Call(String),
    /// Its body is too long, or broke off.
    #[error(
        "the answer broke off, or has more than {max} bytes; ask for fewer items at a time",
        max = crate::limits::POLL_ANSWER_BYTES_MAX
    )]
    Cut,
    /// Not JSON.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// No list where there should be one.
    #[error("the answer has no list {place}; check `items` against a real answer")]
    NoItems {
        /// Where it was looked for.
        place: String,
    },
    /// None of the items says where it stands.
    #[error("none of the {items} items of a page has a `{field}` that is {form}; check `cursor` and `form`")]
    NoCursor {
        /// The field.
        field: String,
        /// What it should be.
        form: &'static str,
        /// How many there are.
        items: usize,
    },
    /// What leads to the next page is neither a word nor a number.
    #[error("`{field}` should lead to the next page, and is neither a text nor a number; check `next`")]
    NoWay {
        /// The field.
        field: String,
    },
    /// The next page is on another server.
    #[error("the next page is on another server, which must not get the headers of this one; check `next`")]
    Elsewhere,
    /// Pages that lead in a circle.
    #[error("a page came a second time, so that its pages would never end; check `next`")]
    Repeats,
    /// More pages than one poll reads.
    #[error(
        "there are more than {max} pages; ask for more items at a time, or declare `order: ascending` if the oldest \
         changes come first, so that each poll goes on where the last one ended",
        max = crate::limits::POLL_PAGES_MAX
    )]
    TooManyPages,
}
