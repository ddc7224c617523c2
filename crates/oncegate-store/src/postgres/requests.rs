//! Writes that a repeat does not repeat.
