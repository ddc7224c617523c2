//! How a step finds out whether its effect has happened.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::policy::show_duration;
use oncegate_runner::flow::{Body, Lookup};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::file::Period;
use super::json::Json;
use super::secrets::Secrets;
use super::steps::{HttpFile, expression, http};
use super::template::Sees;
use super::{At, ConfigError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookupFile {
    url: Spanned<String>,
    #[serde(default)]
    method: Option<Spanned<String>>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    json: Option<Spanned<Json>>,
    found: Spanned<String>,
    #[serde(default)]
    answer: Option<Spanned<String>>,
    #[serde(default)]
    settle: Option<Spanned<Period>>,
}

/// How long a call may still be at work after it was given up, or its trace unseen by searches.
const SETTLE: Duration = Duration::from_secs(30);

pub(super) fn lookup(
    declared: &LookupFile,
    sees: Sees<'_>,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<Lookup, ConfigError> {
    let file = HttpFile {
        method: declared.method.clone(),
        url: declared.url.clone(),
        headers: declared.headers.clone(),
        json: declared.json.clone(),
        body: None,
        idempotency_header: None,
    };
    let mut request = http(&file, sees, secrets, at)?;
    // Nothing is meant to come of it, so what changes something must be asked for.
    if declared.method.is_none() && declared.json.is_none() {
        request.method = http::Method::GET;
    }
    if declared.json.is_none() {
        request.body = Body::Empty;
    }
    let of_response = sees.of_a_response();
    let settle = declared.settle.as_ref().map_or(SETTLE, |settle| settle.value.0);
    if let Some(place) = declared.settle.as_ref().filter(|_| settle > limits::LOOKUP_SETTLE_MAX) {
        let message = format!("lookup.settle must be at most {}", show_duration(limits::LOOKUP_SETTLE_MAX));
        return Err(at(place.referenced, message));
    }
    Ok(Lookup {
        request,
        found: expression("lookup.found", &declared.found, of_response, at)?,
        answer: declared
            .answer
            .as_ref()
            .map(|answer| expression("lookup.answer", answer, of_response, at))
            .transpose()?,
        settle,
        secret_url: Secrets::is_reference(&declared.url.value),
    })
}
