//! The words that the cells of the table of `decide` are made of.

use crate::finish_table::Held;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    None,
    Same,
    Differs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    None,
    Free,
    /// Only the row names it.
    OfRow,
    /// The row names none; the request names one that another claim is working on.
    NewAndHeld,
    /// The row names one, the request another.
    Changed,
    /// Row and request agree; another claim holds it.
    HeldBy(Held),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Caller,
    CallerRun1 { looks_constant: bool },
    CallerRun2,
    Runner,
    Queue,
}

pub(crate) const YES_NO: [bool; 2] = [false, true];
pub(crate) const PAYLOADS: [Payload; 3] = [Payload::None, Payload::Same, Payload::Differs];
pub(crate) const ASKS: [Asks; 6] = [
    Asks::Caller,
    Asks::CallerRun1 { looks_constant: false },
    Asks::CallerRun1 { looks_constant: true },
    Asks::CallerRun2,
    Asks::Runner,
    Asks::Queue,
];
