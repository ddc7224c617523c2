//! Looking for claims.

use oncegate_core::claim::Boot;
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, Workspace};
use oncegate_core::time::Now;

use super::error::Fault;
use super::pool::Connection;
use crate::search::{Filter, Found};

pub(super) async fn search(
    _db: &Connection,
    _workspace: Workspace,
    _filter: &Filter,
    _now: Now,
    _boot: Boot,
) -> Result<Found, Fault> {
    Err(super::not_yet().into())
}

pub(super) async fn counts(
    _db: &Connection,
    _workspace: Workspace,
    _only: Option<&[AutomationName]>,
    _now: Now,
) -> Result<Vec<(InboxList, u64)>, Fault> {
    Err(super::not_yet().into())
}
