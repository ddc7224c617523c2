//! What a claim shows about how its callers are set up: told in its answer, and noticed once for each automation.

use oncegate_core::key::AutomationName;
use oncegate_core::limits;
use oncegate_core::notice::{self, NoticeKind};

use super::claim::{Loaded, Writes};

/// One notice to be written; seen before, it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What kind.
    pub kind: NoticeKind,
    /// About what: an automation.
    pub subject: String,
    /// In words, and how to mend it.
    pub detail: String,
    /// Also told to the caller, in its answer's `note`.
    pub told: Option<String>,
}

/// An automation that this claim made, though nobody declared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The known name that may have been meant.
    pub nearest: Option<String>,
}

/// What is to be noticed about a claim of `automation`.
pub fn of_claim(
    automation: &AutomationName,
    made: Option<&Made>,
    loaded: &Loaded<'_>,
    writes: &Writes<'_>,
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |kind, detail, told| {
        notices.push(Notice { kind, subject: automation.to_string(), detail, told });
    };
    if let Some(Made { nearest }) = made {
        let nearest = nearest.as_deref();
        let told = nearest.map(|nearest| notice::new_automation(automation.as_str(), nearest));
        add(NoticeKind::NewAutomation, notice::new_automation_notice(automation.as_str(), nearest), told);
    }
    if loaded.run_id_is_constant {
        let words = notice::CONSTANT_RUN_ID.to_owned();
        add(NoticeKind::ConstantRunId, words.clone(), Some(words));
    }
    if writes.went_stale && loaded.stale_streak + 1 >= limits::STALE_STREAK_MAX {
        add(NoticeKind::CallersNeverCallDone, notice::NEVER_DONE.to_owned(), None);
    }
    notices
}

/// What of it the caller is told.
pub fn told(notices: &[Notice]) -> Option<String> {
    let told: Vec<&str> = notices.iter().filter_map(|n| n.told.as_deref()).collect();
    (!told.is_empty()).then(|| told.join("; "))
}
