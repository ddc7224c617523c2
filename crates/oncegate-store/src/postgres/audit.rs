//! What people and their tokens did.
