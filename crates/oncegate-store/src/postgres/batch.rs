//! Many claims in one transaction, each with a savepoint of its own.
