//! How the store is doing.

use oncegate_core::claim::Boot;
use oncegate_core::time::Now;

use super::error::Fault;
use super::pool::Connection;
use crate::vitals::Vitals;

pub(super) async fn read(_db: &Connection, _now: Now, _boot: Boot) -> Result<Vitals, Fault> {
    Err(super::not_yet().into())
}
