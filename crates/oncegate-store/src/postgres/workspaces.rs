//! Workspaces: made, deleted, and cleared away bit by bit.
