//! Automations that have been seen.
