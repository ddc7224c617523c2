//! `POST /v1/claims/batch`: many claims, answered in order, each as if alone.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use oncegate_core::limits;
use oncegate_store::StoreError;
use oncegate_store::api::{ClaimCall, Claimed};
use serde::Serialize;
use serde_json::Value;

use super::answer::{Decided, Json};
use super::auth::Caller;
use super::claims::{Asked, asked, parent_lost};
use super::form::gathered;
use super::input::{Fields, Reading, kind};
use super::problem::Problem;
use super::{AppState, answer};

pub(crate) async fn claims(
    State(state): State<Arc<AppState>>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let mut fields = Fields::read_up_to(request, limits::BATCH_BODY_BYTES_MAX).await?;
    let items = match fields.value("claims") {
        Some(Value::Array(items)) => items,
        Some(other) => {
            return Err(Problem::field("claims", format!("must be a list of claims, not {}", kind(&other))));
        }
        None => return Err(Problem::field("claims", "is missing; send a JSON list of claims")),
    };
    fields.finish("claims")?;
    if items.is_empty() || items.len() > limits::BATCH_CLAIMS_MAX {
        let rule = format!("must hold 1 to {} claims; it holds {}", limits::BATCH_CLAIMS_MAX, items.len());
        return Err(Problem::field("claims", rule));
    }
    let (mut calls, mut keys) = (vec![], vec![]);
    for item in items {
        keys.push(one(item, &state, &caller).map(|(call, key)| {
            calls.push(call);
            key
        }));
    }
    let mut claimed = state.gate.claim_batch(calls).await?.into_iter();
    let judged: Vec<Judged> = keys.into_iter().map(|key| judged(key, &mut claimed)).collect();
    let results = judged.iter().map(|judged| shown(judged, &state.base_url)).collect();
    let mut response = Json(Results { results }).into_response();
    // The tokens in it are secrets of this caller.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn one(item: Value, state: &AppState, caller: &Caller) -> Result<(ClaimCall, String), Problem> {
    let Value::Object(mut members) = item else {
        return Err(Problem::field("claims", format!("holds {} where a claim belongs", kind(&item))));
    };
    for name in ["wait", "stop_status"] {
        if members.remove(name).is_some_and(|value| !value.is_null()) {
            return Err(Problem::field(
                name,
                "has no meaning in a batch: all of it is answered at once, with 200",
            ));
        }
    }
    let Asked { call, shown_key, .. } =
        asked(Fields::of(gathered(members, Reading::Strict)?), state, caller)?;
    Ok((call, shown_key))
}

/// One item's claim and its key, or its problem document.
type Judged = Result<(Claimed, String), Value>;

fn judged(
    key: Result<String, Problem>,
    claimed: &mut impl Iterator<Item = Result<Option<Claimed>, StoreError>>,
) -> Judged {
    let problem = match key.map(|key| (claimed.next(), key)) {
        Ok((Some(Ok(Some(claimed))), key)) => return Ok((claimed, key)),
        Ok((Some(Ok(None)), _)) => parent_lost(),
        Ok((Some(Err(error)), _)) => error.into(),
        Ok((None, _)) => Problem::internal("the store answered fewer claims than it was asked"),
        Err(problem) => problem,
    };
    Err(problem.document())
}

#[derive(Serialize)]
struct Results<'a> {
    results: Vec<Shown<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Decided(Box<Decided<'a>>),
    Refused(&'a Value),
}

fn shown<'a>(judged: &'a Judged, base_url: &str) -> Shown<'a> {
    match judged {
        Ok((claimed, key)) => {
            let mut decided = answer::decision(claimed, key, base_url);
            decided.status = Some(200);
            Shown::Decided(Box::new(decided))
        }
        Err(problem) => Shown::Refused(problem),
    }
}
