//! The sources of every workspace: webhook endpoints, those that run by the clock, and those that ask for news.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use oncegate_core::access::WorkspaceName;
use oncegate_core::json::told;
use oncegate_core::key::Workspace;
use oncegate_runner::poller::Polled;
use oncegate_runner::scheduler::Scheduled;

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
    /// Those that nobody knocks at, by name within a workspace.
    pub(crate) schedules: Arc<[Scheduled]>,
    /// The same of those that ask.
    pub(crate) polls: Arc<[Polled]>,
    /// What names the items of those that ask. Apart from `sources`, so that nobody can knock there.
    polled: HashMap<(Workspace, String), Source>,
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

    /// Adds what names the items of a poll.
    pub(crate) fn add_polled(&mut self, workspace: Workspace, name: String, declared: config::Source) {
        self.polled.insert((workspace, name), Source { workspace, recents: Recents::default(), declared });
    }

    /// The source whose events a workspace has stored under a name, whoever brought them.
    pub(crate) fn brings(&self, workspace: Workspace, name: &str) -> Option<&Source> {
        self.source(workspace, name).or_else(|| self.polled.get(&(workspace, name.to_owned())))
    }

    /// The source that a workspace has under a name, and at which senders knock.
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

    /// The source at a path: `/in/NAME`, `/in/WORKSPACE/NAME`, and whatever behind it. Senders disable for good what
    /// answers 404 (webhooks/README.md §1.3), so slashes too many and capitals do not matter.
    pub(crate) fn at(&self, path: &str) -> Result<(Address, &Source), Problem> {
        let way = path.strip_prefix("/in/").unwrap_or_default();
        let (first, behind) = segment(way);
        let here = |workspace: Workspace, name: &str, tail: &str| {
            let source = self.source(workspace, name)?;
            let tail = tail.trim_matches('/');
            let tail = (!tail.is_empty()).then(|| tail.to_owned());
            Some((Address { workspace, name: name.to_owned(), tail }, source))
        };
        let workspace = self.workspace(&first);
        let of_workspace = || {
            let (name, behind) = segment(behind);
            here(workspace?, &name, behind)
        };
        if let Some(found) = of_workspace().or_else(|| here(Workspace::DEFAULT, &first, behind)) {
            return Ok(found);
        }
        let (second, _) = segment(behind);
        Err(Problem::unknown_source(match (workspace, second.is_empty()) {
            (Some(_), false) => format!(
                "no source of the workspace `{}` is called `{}`; declare it in oncegate.yaml under its `sources`",
                told(&first),
                told(&second)
            ),
            (_, true) => {
                format!("no source is called `{}`; declare it in oncegate.yaml under `sources`", told(&first))
            }
            (None, false) => format!(
                "no workspace called `{0}` has sources, and no source is called `{0}`; declare them in oncegate.yaml \
                 under `workspaces` or `sources`",
                told(&first)
            ),
        }))
    }
}

/// The first name of a way, as sources are called, and what stands behind it.
fn segment(way: &str) -> (String, &str) {
    let way = way.trim_start_matches('/');
    let (first, behind) = way.split_once('/').unwrap_or((way, ""));
    (percent_encoding::percent_decode_str(first).decode_utf8_lossy().to_lowercase(), behind)
}
