//! Nodes: the processes that share a store, and what each of them can do. A store that one process owns has one.

use std::collections::HashSet;

use async_trait::async_trait;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Timestamp;
use serde::Serialize;

use crate::StoreError;

/// Automations, each of its workspace.
pub type Names = HashSet<(Workspace, AutomationName)>;

/// What a node can do, by its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Automations that are declared there, and so judged by their own policy.
    pub declares: Names,
    /// Those of them whose steps it can run.
    pub runs: Names,
    /// Those of them whose callers' tools it can call back.
    pub calls_back: Names,
}

/// A node, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeRow {
    /// What it is called (`--node`); `local` where a store has only one.
    pub name: String,
    /// Counts its starts.
    pub start: u32,
    /// When it was last heard of, by the store's clock.
    pub seen_at: Timestamp,
    /// Whether it was heard of lately, and did not say that it ends.
    pub alive: bool,
    /// Its oncegate.
    pub version: String,
    /// Whether it is the one that answers.
    pub is_me: bool,
}

/// The part of the contract that is about nodes.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// Whether other processes may write to the same store. What a process remembers of it is then only good for a
    /// moment.
    fn is_shared(&self) -> bool {
        false
    }

    /// This node says what it can do. From then on `due` lists only work of automations that it runs; before, all.
    async fn hello(&self, can: Abilities) -> Result<(), StoreError>;
    /// What the other nodes that are alive can do, all together.
    async fn elsewhere(&self) -> Result<Abilities, StoreError>;
    /// Automations that are not among `runnable`, not paused, and have work that is due: it stays as it is. At most
    /// 100.
    async fn stranded(&self, runnable: Names) -> Result<Vec<(Workspace, AutomationName)>, StoreError>;
    /// Every node that is known, by name.
    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError>;
}

/// Automations that [`Nodes::stranded`] names at most.
pub const STRANDED_MAX: u32 = 100;
