//! `POST /v1/claims/batch`: many claims, answered in order, each as if alone.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use oncegate_core::limits;
use oncegate_store::api::{ClaimCall, Claimed};
use serde_json::{Value, json};

use super::answer::Json;
use super::auth::Caller;
use super::claims::{Asked, asked, parent_lost};
use super::input::{Fields, kind};
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
    let read: Vec<Result<(ClaimCall, String), Problem>> =
        items.into_iter().map(|item| one(item, &state, &caller)).collect();
    let calls = read.iter().filter_map(|item| item.as_ref().ok().map(|(call, _)| call.clone())).collect();
    let mut claimed = state.gate.claim_batch(calls).await?.into_iter();
    let results: Vec<Value> = read
        .into_iter()
        .map(|item| {
            let (_, key) = match item {
                Ok(item) => item,
                Err(problem) => return problem.document(),
            };
            match claimed.next() {
                Some(Ok(Some(claimed))) => decided(&claimed, &key, &state.base_url),
                Some(Ok(None)) => parent_lost().document(),
                Some(Err(error)) => Problem::from(error).document(),
                None => Problem::internal("the store answered fewer claims than it was asked").document(),
            }
        })
        .collect();
    let mut response = Json(json!({ "results": results })).into_response();
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
    let Asked { call, shown_key, .. } = asked(Fields::of(members), state, caller)?;
    Ok((call, shown_key))
}

fn decided(claimed: &Claimed, key: &str, base_url: &str) -> Value {
    let mut answer = json!({ "status": 200 });
    if let (Value::Object(members), Value::Object(decision)) =
        (&mut answer, answer::decision(claimed, key, base_url))
    {
        members.extend(decision);
    }
    answer
}
