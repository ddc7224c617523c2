//! The webhook endpoints of every workspace.

use std::collections::HashMap;
use std::ops::Deref;

use oncegate_core::access::WorkspaceName;
use oncegate_core::key::Workspace;

use crate::config;

/// A declared source, and whose it is.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) workspace: Workspace,
    declared: config::Source,
}

impl Deref for Source {
    type Target = config::Source;
    fn deref(&self) -> &config::Source {
        &self.declared
    }
}

/// All that are declared.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    sources: HashMap<(Workspace, String), Source>,
    workspaces: HashMap<WorkspaceName, Workspace>,
}

impl Doors {
    /// Adds what one workspace declares.
    pub(crate) fn add(
        &mut self,
        name: WorkspaceName,
        workspace: Workspace,
        sources: HashMap<String, config::Source>,
    ) {
        self.workspaces.insert(name, workspace);
        let ours =
            sources.into_iter().map(|(name, declared)| ((workspace, name), Source { workspace, declared }));
        self.sources.extend(ours);
    }

    /// The source that a workspace has under a name.
    pub(crate) fn source(&self, workspace: Workspace, name: &str) -> Option<&Source> {
        self.sources.get(&(workspace, name.to_owned()))
    }

    /// The workspace of this name, if anything is declared for it.
    pub(crate) fn workspace(&self, name: &str) -> Option<Workspace> {
        WorkspaceName::try_from(name).ok().and_then(|name| self.workspaces.get(&name).copied())
    }
}
