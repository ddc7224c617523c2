//! What sources that oncegate looks at itself have in common: how often they are looked at, and where they stand.

use std::fmt::Display;
use std::time::Duration;

use oncegate_core::key::Workspace;
use oncegate_store::StoreError;

use crate::gatekeeper::Gatekeeper;

/// How often it is looked whose time has come.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// For how long at most one is left alone: another node may have moved it, and clocks are set.
pub(crate) const ALONE: Duration = Duration::from_secs(60);
/// For how long one is left alone that could not be looked at.
pub(crate) const COOL: Duration = Duration::from_secs(5);

/// Where a source stands, with the version of that; `None`: it was never looked at.
pub(crate) async fn stands<P, E: Display>(
    gate: &Gatekeeper,
    (workspace, source): (Workspace, &str),
    read: impl FnOnce(&str) -> Result<P, E>,
) -> Result<Option<(i64, P)>, StoreError> {
    let Some(stored) = gate.store().position(workspace, source.to_owned()).await? else { return Ok(None) };
    let position = read(&stored.value)
        .map_err(|e| StoreError::Inconsistent(format!("where `{source}` stands cannot be read: {e}")))?;
    Ok(Some((stored.version, position)))
}
