//! The filters that lists, groups, exports and acts on many claims share, and the cursors of pages.

use std::time::Duration;

use oncegate_core::claim::{ErrorCause, Parked, ProcessingState};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{RecordName, RunId, Workspace, sha256};
use oncegate_core::limits;
use oncegate_core::policy::parse_duration;
use oncegate_core::time::{Now, Timestamp};
use oncegate_store::api::Filter;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::acts::tag_text;
use super::auth::Caller;
use super::claims::named;
use super::input::Fields;
use super::problem::Problem;

/// What every filter takes, for refusals.
pub(crate) const TAKES: &str =
    "inbox, state, automation, record, run_id, tag, error_cause, parked, q, older_than, newer_than";

const STATES: &str = "none, processing, done or error";
const CAUSES: &str =
    "failed, outcome_unknown, stale, shutdown, asked_to_wait, marked, marked_after_done or restored";
const REASONS: &str = "needs_replay, loop_suspected, incident, reset, restored, repeat or review";

/// A filter, and how it was asked.
pub(crate) struct Asked {
    pub(crate) filter: Filter,
    pub(crate) told: Map<String, Value>,
}

fn word<T: DeserializeOwned>(text: &str, field: &str, words: &str) -> Result<T, Problem> {
    serde_json::from_value(text.into()).map_err(|_| Problem::field(field, format!("must be {words}")))
}

fn age(text: &str, field: &str, now: Now) -> Result<Timestamp, Problem> {
    let age = parse_duration(text).map_err(|e| Problem::field(field, e))?;
    match age > Duration::from_secs(100 * 366 * 86_400) {
        true => Err(Problem::field(field, "is longer than a hundred years")),
        false => Ok(now.wall.before(age)),
    }
}

/// Reads a filter; a token that is bound to automations finds only theirs.
pub(crate) fn read(fields: &mut Fields, caller: &Caller, now: Now) -> Result<Asked, Problem> {
    let mut told = Map::new();
    let mut text = |name: &str| -> Result<Option<String>, Problem> {
        let text = fields.text(name)?;
        if let Some(text) = &text {
            told.insert(name.to_owned(), text.as_str().into());
        }
        Ok(text)
    };
    let inbox = text("inbox")?
        .map(|t| {
            InboxList::parse(&t)
                .filter(|list| *list != InboxList::Rejected)
                .ok_or_else(|| Problem::field("inbox", "must be stuck, error, mismatch, parked or late"))
        })
        .transpose()?;
    let state = text("state")?.map(|t| word::<ProcessingState>(&t, "state", STATES)).transpose()?;
    let automation = text("automation")?.map(|t| named(&t, "automation")).transpose()?;
    let record = text("record")?
        .map(|t| RecordName::try_from(t.as_str()).map_err(|e| Problem::field("record", e)))
        .transpose()?;
    let run_id = text("run_id")?
        .map(|t| RunId::try_from(t.as_str()).map_err(|e| Problem::field("run_id", e)))
        .transpose()?;
    let tag = text("tag")?.map(|t| tag_text(&t)).transpose()?;
    let cause = text("error_cause")?.map(|t| word::<ErrorCause>(&t, "error_cause", CAUSES)).transpose()?;
    let parked = text("parked")?.map(|t| word::<Parked>(&t, "parked", REASONS)).transpose()?;
    let q = text("q")?;
    if q.as_ref().is_some_and(|q| q.len() > limits::SEARCH_TEXT_BYTES_MAX) {
        return Err(Problem::field("q", format!("is longer than {} bytes", limits::SEARCH_TEXT_BYTES_MAX)));
    }
    let since_before = text("older_than")?.map(|t| age(&t, "older_than", now)).transpose()?;
    let since_after = text("newer_than")?.map(|t| age(&t, "newer_than", now)).transpose()?;
    let only = caller.automations.as_ref().map(|bound| bound.to_vec());
    let filter = Filter {
        inbox,
        state,
        automation,
        only,
        record,
        run_id,
        tag,
        cause,
        parked,
        text: q,
        since_before,
        since_after,
        ..Filter::default()
    };
    Ok(Asked { filter, told })
}

/// Makes and reads the cursors of one list: opaque, and good for that list, filter and workspace only.
#[derive(Clone, Debug)]
pub(crate) struct Cursors(String);

impl Cursors {
    /// Of a list that is named by what was asked of it.
    pub(crate) fn new(list: &str, workspace: Workspace, told: &Map<String, Value>) -> Self {
        Self(format!("{list}\n{}\n{}", workspace.0, Value::from(told.clone())))
    }

    fn check(&self, position: i64) -> [u8; 8] {
        let mut check = [0; 8];
        let hash = sha256(&[self.0.as_bytes(), &position.to_be_bytes()].concat());
        check.copy_from_slice(&hash[..8]);
        check
    }

    pub(crate) fn write(&self, position: i64) -> String {
        let bytes = [position.to_be_bytes(), self.check(position)].concat();
        data_encoding::BASE64URL_NOPAD.encode(&bytes)
    }

    /// # Errors
    /// It is garbage, or was given for another list.
    pub(crate) fn read(&self, text: &str) -> Result<i64, Problem> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(text.as_bytes()).unwrap_or_default();
        let position = bytes.first_chunk::<8>().map(|p| i64::from_be_bytes(*p));
        position.filter(|p| bytes[8..] == self.check(*p)).ok_or_else(|| {
            Problem::field("cursor", "is not one that this server gave for this list with these filters")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_refusal_names_every_word_that_fits() {
        fn taken<T: DeserializeOwned>() -> BTreeSet<String> {
            let said = serde_json::from_value::<T>("no such word".into()).err().unwrap().to_string();
            let (_, words) = said.split_once("expected one of ").unwrap();
            words.split(", ").map(|word| word.trim_matches('`').to_owned()).collect()
        }
        let told = |sentence: &str| sentence.replace(" or ", ", ").split(", ").map(str::to_owned).collect();
        assert_eq!(taken::<ProcessingState>(), told(STATES));
        assert_eq!(taken::<ErrorCause>(), told(CAUSES));
        assert_eq!(taken::<Parked>(), told(REASONS));
    }
}
