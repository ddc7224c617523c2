//! What stands in the file about others that call or are called: the hook of a stopped caller's tool, and the
//! environment that a source's events must be of.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use oncegate_core::secret::Secret;
use oncegate_core::webhook::{EventEnvironment, as_text};
use oncegate_runner::flow::HeaderText;
use oncegate_runner::nudger::Hook;
use serde_saphyr::Spanned;

use super::file::{AutomationFile, EnvironmentFile};
use super::secrets::{self, Secrets};
use super::steps::wrong_url;
use super::{At, ConfigError};

/// The declared `retrigger`, if any.
pub(super) fn retrigger(
    declared: &AutomationFile,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<Option<Arc<Hook>>, ConfigError> {
    let Some(hook) = &declared.retrigger else { return Ok(None) };
    let place = hook.url.referenced;
    if !declared.steps.is_empty() {
        let message =
            "declares `steps` and `retrigger`; oncegate starts its own steps itself, so remove one of them";
        return Err(at(place, message.to_owned()));
    }
    let url = match Secrets::is_reference(&hook.url.value) {
        true => secrets.resolve(&hook.url.value).map_err(|e| at(place, e))?,
        false => Secret::new(hook.url.value.as_str()),
    };
    let text = String::from_utf8_lossy(url.expose()).trim().to_owned();
    if text.contains("{{") || text.contains("{%") {
        let message = "the hook has one address for all claims; a template is not filled in here";
        return Err(at(place, message.to_owned()));
    }
    if let Some(why) = wrong_url(&text) {
        // It is named by its reference: it may be secret itself.
        return Err(at(place, format!("`{}` {why}", hook.url.value)));
    }
    let headers = headers(&hook.headers, secrets, at)?;
    Ok(Some(Arc::new(Hook { url: Secret::new(text.as_str()), headers })))
}

/// Headers whose values are sent as they are.
pub(super) fn headers(
    declared: &BTreeMap<String, Spanned<String>>,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<Vec<(String, HeaderText)>, ConfigError> {
    let mut headers = vec![];
    for (name, value) in declared {
        let here = |message: String| at(value.referenced, message);
        if name.parse::<HeaderName>().is_err() {
            return Err(here(format!("`{name}` cannot be the name of a header; write e.g. `X-Api-Key`")));
        }
        let text = match Secrets::is_reference(&value.value) {
            true => HeaderText::Secret(secrets.resolve(&value.value).map_err(here)?),
            false if value.value.contains("{{") => {
                return Err(here(format!(
                    "the value of `{name}` is sent as it is; a template is not filled in here"
                )));
            }
            false => {
                secrets::refuse_clear_text(name, &value.value).map_err(here)?;
                HeaderText::Template(value.value.clone())
            }
        };
        headers.push((name.clone(), text));
    }
    Ok(headers)
}

/// The environment that events of a source must be of.
pub(super) fn environment(declared: &EnvironmentFile, at: At<'_>) -> Result<EventEnvironment, ConfigError> {
    match as_text(&declared.is.value.value).filter(|text| !text.is_empty()) {
        Some(is) => Ok(EventEnvironment { field: declared.field.clone(), is }),
        None => Err(at(
            declared.is.referenced,
            "environment.is must be true, false, a word or a number: what `field` says in events meant for here".to_owned(),
        )),
    }
}
