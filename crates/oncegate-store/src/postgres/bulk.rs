//! A person's act on many claims.
