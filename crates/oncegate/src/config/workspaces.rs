//! The workspaces that a configuration declares besides the default one, and the proxies that it trusts.

use ipnet::IpNet;
use oncegate_core::access::WorkspaceName;
use serde_saphyr::Spanned;

use super::file::{Members, WorkspaceFile};
use super::{Around, At, ConfigError, Declared, declared};

pub(super) fn workspaces(
    file: &Members<WorkspaceFile>,
    around: Around<'_>,
    at: At<'_>,
) -> Result<Vec<(WorkspaceName, Declared)>, ConfigError> {
    let mut workspaces: Vec<(WorkspaceName, Declared)> = vec![];
    for (name, workspace) in file {
        let wrong = |why: &str| at(name.referenced, format!("the workspace `{}` {why}", name.value));
        let read = WorkspaceName::try_from(name.value.as_str()).map_err(|e| wrong(&e.to_string()))?;
        if read.as_str() == WorkspaceName::DEFAULT {
            return Err(wrong("is the top of the file; move its sources and automations there"));
        }
        if workspaces.iter().any(|(known, _)| *known == read) {
            return Err(wrong("is declared twice; merge the two"));
        }
        let parts = (&workspace.sources, &workspace.automations, &workspace.targets);
        let declared = declared(parts, around, at)
            .map_err(|e| ConfigError { message: format!("workspace `{read}`: {}", e.message), ..e })?;
        workspaces.push((read, declared));
    }
    Ok(workspaces)
}

pub(super) fn networks(file: &[Spanned<String>], at: At<'_>) -> Result<Vec<IpNet>, ConfigError> {
    let read = |text: &str| -> Option<IpNet> {
        text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
    };
    file.iter()
        .map(|entry| {
            read(entry.value.trim()).ok_or_else(|| {
                let message = format!(
                    "`{}` is not an address or a network; write e.g. 127.0.0.1 or 10.0.0.0/8",
                    entry.value
                );
                at(entry.referenced, message)
            })
        })
        .collect()
}
