//! Payloads, and what steps were answered, go some time after done.
