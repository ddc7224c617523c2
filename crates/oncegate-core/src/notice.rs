//! What a person should know though nothing waits for them: a name that looks misspelt, callers that are set up
//! wrongly.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::policy::in_words;

/// What a notice is about; there is one of each kind for each subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// An automation that nobody declared was made by its first claim.
    NewAutomation,
    /// A `run_id` came that names no run: it was seen on a claim which ended over an hour ago.
    ConstantRunId,
    /// Callers of an automation go silent, one after another, and none says done.
    CallersNeverCallDone,
    /// The wall clock was set back.
    ClockSetBack,
    /// Work waits that no node can run: its automation's steps are declared nowhere.
    NoRunner,
    /// Slots of a schedule did not run, because nobody looked in time.
    MissedSlots,
    /// Slots of a schedule did not run, because the run before was not over.
    SkippedSlots,
    /// Events of one sender are set aside, because too many came in a short time.
    SenderLimit,
    /// A poll fails again and again; taken away when it does no more.
    PollFails,
}

impl NoticeKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::NewAutomation,
        Self::ConstantRunId,
        Self::CallersNeverCallDone,
        Self::ClockSetBack,
        Self::NoRunner,
        Self::MissedSlots,
        Self::SkippedSlots,
        Self::SenderLimit,
        Self::PollFails,
    ];

    /// The word stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewAutomation => "new_automation",
            Self::ConstantRunId => "constant_run_id",
            Self::CallersNeverCallDone => "callers_never_call_done",
            Self::ClockSetBack => "clock_set_back",
            Self::NoRunner => "no_runner",
            Self::MissedSlots => "missed_slots",
            Self::SkippedSlots => "skipped_slots",
            Self::PollFails => "poll_fails",
            Self::SenderLimit => "sender_limit",
        }
    }

    /// For how long it must not have happened to be told anew after a person dismissed it.
    pub const fn is_over_after(self) -> Duration {
        match self {
            // Told when it begins, and perhaps of another sender.
            Self::SenderLimit => Duration::ZERO,
            _ => limits::NOTICE_IS_OVER_AFTER,
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What an answer, and a notice, say about a `run_id` that names no run.
pub const CONSTANT_RUN_ID: &str = "run_id looks constant: it was seen on a claim that ended over an hour ago, so it \
    counts as absent, and a caller whose answer gets lost is stopped by itself; send what names one item of one run: \
    execution id + node + item index";

/// What a notice says about callers that never call done.
pub const NEVER_DONE: &str = "claims of this automation went stale one after another and none was done: its stale \
    claims are not retried any more; let its last step POST done_url, or declare `finish: at_claim`";

/// What a notice says about a wall clock that was set back by `d`.
pub fn clock_set_back(d: Duration) -> String {
    let by = in_words(d);
    format!("the wall clock was set back by {by}; due times went with it; look at the machine's time service")
}

/// What a notice, and a waiting claim, say about work whose steps are declared nowhere.
pub fn no_runner(automation: &str) -> String {
    format!(
        "no node can run `{automation}`: its steps are not declared; declare them again, and what waits goes on"
    )
}

/// What an answer says about a name that is new and close to one that is known.
pub fn new_automation(name: &str, nearest: &str) -> String {
    format!("new automation `{name}`; the nearest known name is `{nearest}`: if that is meant, mend the name")
}

/// What a notice says about a name that is new.
pub fn new_automation_notice(name: &str, nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => new_automation(name, nearest),
        None => format!("new automation `{name}`; no known name is near"),
    }
}

/// The known name that is most likely meant, if one is close: a few letters off, or the same words in another order or
/// with other marks between them.
pub fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .take(limits::NAMES_COMPARED_MAX)
        .filter(|name| *name != written)
        .filter_map(|name| Some((off(written, name)?, name)))
        .min()
        .map(|(_, name)| name)
}

/// By how much two names differ; `None` if they are not near.
fn off(a: &str, b: &str) -> Option<usize> {
    let (words_a, words_b) = (words(a), words(b));
    if !words_a.is_empty() && words_a == words_b {
        return Some(0);
    }
    let changes = distance(a, b);
    // One letter in three: fewer are another spelling, more are another word.
    (changes <= a.chars().count().max(b.chars().count()).max(3) / 3).then_some(changes)
}

fn words(name: &str) -> Vec<String> {
    let split = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut words: Vec<String> = split.map(str::to_lowercase).collect();
    words.sort();
    words
}

/// How many characters to add, drop, replace, or swap with their neighbour (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            next[j] = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

/// What the deliveries of one claim show about its sources, given with their delivery ids: a retry is sent under the id
/// of the first try, so one event under several ids was sent by several hooks.
pub fn subscribed_twice<'a>(
    deliveries: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Option<String> {
    let mut ids = std::collections::BTreeMap::<&str, std::collections::BTreeSet<&str>>::new();
    for (source, id) in deliveries {
        if let Some(id) = id {
            ids.entry(source).or_default().insert(id);
        }
    }
    let (source, ids) = ids.into_iter().find(|(_, ids)| ids.len() > 1)?;
    Some(format!(
        "the same event came under {} delivery ids: this source may be subscribed more than once; look at the hooks \
         that send to `{source}`",
        ids.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_seen_and_another_one_is_not() {
        let known = || ["welcome-mail", "order to erp", "invoice", "crm sync"].into_iter();
        for (written, meant) in [
            ("welcome-mial", Some("welcome-mail")),
            ("welcome mail", Some("welcome-mail")),
            ("mail_welcome", Some("welcome-mail")),
            ("welcome-mails", Some("welcome-mail")),
            ("invioce", Some("invoice")),
            ("order-to-erp", Some("order to erp")),
            ("goodbye-mail", None),
            ("sync", None),
            ("invoice", None),
            ("--", None),
        ] {
            assert_eq!(nearest(written, known()), meant, "{written}");
        }
        assert_eq!(
            [("", "abc"), ("kitten", "sitting"), ("ab", "ba"), ("mial", "mail")].map(|(a, b)| distance(a, b)),
            [3, 3, 1, 1]
        );
    }
}
