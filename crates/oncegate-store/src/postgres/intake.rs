//! Deliveries: verified requests with their events, and those that are kept apart.

use oncegate_core::key::{AutomationName, ClaimRef, Workspace};

use super::context::Context;
use super::error::Fault;
use super::pool::Connection;
use crate::api::{AdmitCall, Admitted, DeliveryRow, Page, UnverifiedCall};

impl Context<'_> {
    pub(super) async fn admit(&self, _call: &AdmitCall) -> Result<Vec<Admitted>, Fault> {
        Err(super::not_yet().into())
    }

    pub(super) async fn keep_unverified(&self, _call: &UnverifiedCall) -> Result<i64, Fault> {
        Err(super::not_yet().into())
    }
}

pub(super) async fn rejected(
    _db: &Connection,
    _workspace: Workspace,
    _only: Option<&[AutomationName]>,
    _before: Option<i64>,
    _limit: u32,
) -> Result<Page<DeliveryRow>, Fault> {
    Err(super::not_yet().into())
}

pub(super) async fn parked(
    _db: &Connection,
    _workspace: Workspace,
    _only: Option<&[AutomationName]>,
    _before: Option<i64>,
    _limit: u32,
) -> Result<Page<DeliveryRow>, Fault> {
    Err(super::not_yet().into())
}

pub(super) async fn deliveries(
    _db: &Connection,
    _id: ClaimRef,
    _limit: u32,
) -> Result<Vec<DeliveryRow>, Fault> {
    Err(super::not_yet().into())
}

pub(super) async fn delivery(
    _db: &Connection,
    _workspace: Workspace,
    _id: i64,
) -> Result<Option<DeliveryRow>, Fault> {
    Err(super::not_yet().into())
}
