//! Every claim that fits, one after the other.
