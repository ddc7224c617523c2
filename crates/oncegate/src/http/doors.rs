//! The webhook endpoints of every workspace.

use std::collections::HashMap;
use std::ops::Deref;

use oncegate_core::access::WorkspaceName;
use oncegate_core::json::told;
use oncegate_core::key::Workspace;

use super::problem::Problem;
use super::recents::Recents;
use crate::config;

/// A declared source, and whose it is.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) workspace: Workspace,
    pub(crate) recents: Recents,
    declared: config::Source,
}

impl Deref for Source {
    type Target = config::Source;
    fn deref(&self) -> &config::Source {
        &self.declared
    }
}

/// Where a request knocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) workspace: Workspace,
    pub(crate) name: String,
    /// What stands behind it, as it was sent: the secret of a sender that signs nothing.
    pub(crate) tail: Option<String>,
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
        let ours = sources.into_iter().map(|(name, declared)| {
            let source = Source { workspace, recents: Recents::default(), declared };
            ((workspace, name), source)
        });
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

    /// The sources of one workspace, by name.
    pub(crate) fn of(&self, workspace: Workspace) -> impl Iterator<Item = (&str, &Source)> {
        let ours = self.sources.iter().filter(move |((of, _), _)| *of == workspace);
        ours.map(|((_, name), source)| (name.as_str(), source))
    }

    /// What a workspace is called in addresses; the default one is not.
    pub(crate) fn name_of(&self, workspace: Workspace) -> Option<&WorkspaceName> {
        let known = self.workspaces.iter().filter(|(_, known)| **known != Workspace::DEFAULT);
        known.into_iter().find(|(_, known)| **known == workspace).map(|(name, _)| name)
    }

    /// The source at a path: `/in/NAME`, `/in/WORKSPACE/NAME`, and either with something behind it.
    pub(crate) fn at(&self, path: &str) -> Result<(Address, &Source), Problem> {
        let way: Vec<&str> = path.strip_prefix("/in/").unwrap_or_default().split('/').collect();
        let (first, second, third) = (way[0], way.get(1).copied(), way.get(2).copied());
        let here = |workspace: Workspace, name: &str, tail: Option<&str>| {
            let source = self.source(workspace, name)?;
            let address = Address { workspace, name: name.to_owned(), tail: tail.map(str::to_owned) };
            Some((address, source))
        };
        let of_workspace = second
            .and_then(|name| Some((self.workspace(first)?, name)))
            .and_then(|(w, name)| here(w, name, third));
        let of_default = || here(Workspace::DEFAULT, first, second).filter(|_| third.is_none());
        if let Some(found) = of_workspace.or_else(of_default) {
            return Ok(found);
        }
        let (name, place) = match second {
            None => (first, "`sources`".to_owned()),
            Some(_) if self.workspace(first).is_none() => {
                return Err(Problem::unknown_source(format!(
                    "no workspace called `{0}` has sources, and no source is called `{0}`; declare them in oncegate.yaml \
                     under `workspaces` or `sources`",
                    told(first)
                )));
            }
            Some(name) => (name, format!("`sources` of the workspace `{}`", told(first))),
        };
        Err(Problem::unknown_source(format!(
            "no source is called `{}`; declare it in oncegate.yaml under {place}",
            told(name)
        )))
    }
}
