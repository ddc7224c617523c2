//! Which claims somebody looks for, what is found, and what is counted.

use oncegate_core::claim::{ErrorCause, Parked, ProcessingState};
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, RecordName, RunId};
use oncegate_core::time::Timestamp;

use crate::api::ClaimView;

/// Which claims; every part that is given must fit.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those in this list.
    pub inbox: Option<InboxList>,
    /// Only those in this state.
    pub state: Option<ProcessingState>,
    /// Only those of this automation.
    pub automation: Option<AutomationName>,
    /// Only those of one of these automations: all that the asker may see.
    pub only: Option<Vec<AutomationName>>,
    /// Only those that name this record.
    pub record: Option<RecordName>,
    /// Only the one that runs, or ran last, under this.
    pub run_id: Option<RunId>,
    /// Only those filed under this tag.
    pub tag: Option<String>,
    /// Only errors of this cause.
    pub cause: Option<ErrorCause>,
    /// Only those parked for this reason.
    pub parked: Option<Parked>,
    /// Only those whose key, record, run_url or note has this text in it; the case of ASCII letters does not count.
    pub text: Option<String>,
    /// Only those that have stood in their state since before this.
    pub since_before: Option<Timestamp>,
    /// Only those that have stood in their state since this or later.
    pub since_after: Option<Timestamp>,
    /// The oldest first, instead of the newest.
    pub oldest_first: bool,
    /// Only rows after this position, in the order of the list; `None` starts at its beginning.
    pub before: Option<i64>,
    /// Rows at most.
    pub limit: u32,
}

impl Filter {
    /// Whether it says more than whose claims are meant.
    pub fn names_something(&self) -> bool {
        self.inbox.is_some()
            || self.state.is_some()
            || self.automation.is_some()
            || self.record.is_some()
            || self.run_id.is_some()
            || self.tag.is_some()
            || self.cause.is_some()
            || self.parked.is_some()
            || self.text.is_some()
    }
}

/// A page of what was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows.
    pub rows: Vec<ClaimView>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<i64>,
    /// The page ended before it was full, because enough rows had been looked at: this old was the last of them.
    pub searched_until: Option<Timestamp>,
}

/// How long a claim has stood in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    /// Less than an hour.
    Hour,
    /// Less than a day.
    Day,
    /// Less than a week.
    Week,
    /// Less than 30 days.
    Month,
    /// Longer.
    Older,
}

impl Age {
    /// The words in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "<1h",
            Self::Day => "1h-1d",
            Self::Week => "1d-7d",
            Self::Month => "7d-30d",
            Self::Older => ">30d",
        }
    }

    /// Where each but the first begins, in milliseconds.
    pub(crate) const BEGIN_MS: [i64; 4] = [3_600_000, 86_400_000, 604_800_000, 2_592_000_000];

    /// Of a time in milliseconds; what lies in the future is new.
    pub const fn of_millis(ms: i64) -> Self {
        let [day, week, month, older] = Self::BEGIN_MS;
        match ms {
            ms if ms < day => Self::Hour,
            ms if ms < week => Self::Day,
            ms if ms < month => Self::Week,
            ms if ms < older => Self::Month,
            _ => Self::Older,
        }
    }
}

/// By what claims are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// By automation.
    pub automation: bool,
    /// By age.
    pub age: bool,
}

/// Claims that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Of this automation, if they are grouped by it.
    pub automation: Option<AutomationName>,
    /// This old, if they are grouped by it.
    pub age: Option<Age>,
    /// How many.
    pub count: u64,
    /// Since when the oldest of them has stood in its state.
    pub oldest_at: Timestamp,
}

/// Claims, counted.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The largest first.
    pub groups: Vec<Group>,
    /// All of them.
    pub total: u64,
    /// There are more claims than are counted at a time: those before this are not in it.
    pub counted_until: Option<Timestamp>,
}

/// The order in which groups are shown.
pub(crate) fn sort(groups: &mut [Group]) {
    groups.sort_by(|a, b| {
        b.count.cmp(&a.count).then_with(|| a.automation.cmp(&b.automation)).then_with(|| b.age.cmp(&a.age))
    });
}
