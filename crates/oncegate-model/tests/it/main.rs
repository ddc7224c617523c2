//! The model check: nothing that can happen breaks a promise, and a rule that is missing would be noticed.

mod exhaustive;
mod mutations;
