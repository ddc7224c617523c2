//! What becomes of a schedule's slots: which one runs now, which do not, and where the schedule stands after it. What
//! it says is written down in one transaction with the run.

use serde::{Deserialize, Serialize};

use super::{Missed, Overlap, Schedule, Slot};
use crate::limits;
use crate::notice::NoticeKind;
use crate::time::Timestamp;

/// Where a schedule stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// What was declared, in words.
    pub rhythm: String,
    /// Until when its slots were dealt with.
    pub until: Timestamp,
    /// The last that was run.
    #[serde(default)]
    pub last: Option<Slot>,
    /// The one that runs when the last is over.
    #[serde(default)]
    pub waiting: Option<Slot>,
}

impl Position {
    /// Reads what was stored. `None`: of a poll, which the source was before.
    ///
    /// # Errors
    /// It is neither.
    pub fn read(json: &str) -> Result<Option<Self>, String> {
        let value: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
        match value.get("poll") {
            Some(_) => Ok(None),
            None => serde_json::from_value(value).map(Some).map_err(|e| e.to_string()),
        }
    }
}

/// What is to be written down and done, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it stands then.
    pub position: Position,
    /// What runs.
    pub run: Option<Slot>,
    /// What a person shall know.
    pub told: Vec<Told>,
}

/// What did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nobody looked in time.
    Missed {
        /// How many, of those of the last [`limits::SLOTS_LOOKED_BACK`].
        count: usize,
        /// The first.
        from: Slot,
        /// The last.
        to: Slot,
        /// The one after them, which runs, or waits to.
        instead: Option<Slot>,
    },
    /// It came while another was not over.
    Skipped {
        /// Which.
        slot: Slot,
        /// What was not over.
        busy_with: Slot,
    },
    /// It waited for another to be over, and a newer one came.
    Replaced {
        /// Which.
        slot: Slot,
        /// The newer one.
        by: Slot,
    },
}

impl Told {
    /// Under which kind it is listed, and in words.
    pub fn notice(&self, source: &str) -> (NoticeKind, String) {
        let words = match self {
            Self::Missed { count, from, to, instead } => {
                let instead = match instead {
                    Some(slot) => format!("`{}`, which came after, stands in", slot.slot),
                    None => "nothing stands in for what came too late".to_owned(),
                };
                let which = match count {
                    1 => format!("its slot `{}`", from.slot),
                    _ => format!("{count} of its slots, `{}` to `{}`", from.slot, to.slot),
                };
                format!(
                    "`{source}` did not run {which}: the gate did not look in time, e.g. because it was down; {instead}"
                )
            }
            Self::Skipped { slot, busy_with } => format!(
                "`{source}` did not run its slot `{}`: that of `{}` is not over; let it run less often, or look at \
                 what keeps it",
                slot.slot, busy_with.slot
            ),
            Self::Replaced { slot, by } => format!(
                "`{source}` did not run its slot `{}`: it waited for an earlier run to be over until `{}` came, which \
                 takes its place",
                slot.slot, by.slot
            ),
        };
        let kind = match self {
            Self::Missed { .. } => NoticeKind::MissedSlots,
            Self::Skipped { .. } | Self::Replaced { .. } => NoticeKind::SkippedSlots,
        };
        (kind, words)
    }
}

/// What a schedule asks for at `now`; `None`: nothing. `began` is when whoever asks began to look, and `is_busy`
/// whether its last run is not over.
///
/// A schedule that is new, or was declared otherwise before, counts from when it was first looked at: what it would
/// have run before that was never asked for.
pub fn step(
    schedule: &Schedule,
    position: Option<&Position>,
    began: Timestamp,
    now: Timestamp,
    is_busy: bool,
) -> Option<Step> {
    let rhythm = schedule.rhythm.to_string();
    let Some(before) = position else {
        let position = Position { rhythm, until: now, last: None, waiting: None };
        return Some(Step { position, run: None, told: vec![] });
    };
    let is_other = before.rhythm != rhythm;
    // Two nodes that were told different things take turns while one of them is being restarted: each counts on from
    // where the other stood, and neither from before it began itself.
    let from = if is_other { before.until.max(began) } else { before.until };
    let begins = is_other && before.until < began;
    // A clock that was wrong by years must not keep the next slot away for as long. What ran already has its key.
    let is_ahead = before.until.since(now) > limits::CLOCK_SLACK;
    let mut passed: Vec<Slot> = match is_ahead {
        true => vec![],
        false => {
            let from = from.max(now.before(limits::SLOTS_LOOKED_BACK));
            schedule.rhythm.after(from).take_while(|slot| slot.instant <= now).collect()
        }
    };
    let mut position = Position { rhythm, until: now, ..before.clone() };
    let ready = position.waiting.is_some() && !is_busy;
    if passed.is_empty() && !ready {
        return (begins || is_ahead).then(|| Step { position, run: None, told: vec![] });
    }
    let made_up_within = match schedule.missed {
        Missed::Run => limits::SLOT_MADE_UP_WITHIN,
        Missed::Skip => limits::SLOT_ON_TIME_WITHIN,
    };
    let newest = passed.pop_if(|slot| now.since(slot.instant) <= made_up_within);
    let busy_with = position.last.clone().filter(|_| is_busy);
    let mut told = vec![];
    if let (Some(from), Some(to)) = (passed.first(), passed.last()) {
        let (from, to) = (from.clone(), to.clone());
        let instead = newest.clone().filter(|_| busy_with.is_none() || schedule.waits());
        told.push(Told::Missed { count: passed.len(), from, to, instead });
    }
    let mut replaces = |older: Option<Slot>, by: &Slot| {
        told.extend(older.map(|slot| Told::Replaced { slot, by: by.clone() }));
    };
    let run = match (busy_with, newest, schedule.overlap) {
        (None, Some(newest), _) => {
            replaces(position.waiting.take(), &newest);
            Some(newest)
        }
        (None, None, _) => position.waiting.take(),
        (Some(_), Some(newest), Overlap::Queue) => {
            replaces(position.waiting.replace(newest.clone()), &newest);
            None
        }
        (Some(busy_with), Some(slot), Overlap::Skip) => {
            told.push(Told::Skipped { slot, busy_with });
            None
        }
        (Some(_), None, _) => None,
    };
    position.last = run.clone().or(position.last);
    Some(Step { position, run, told })
}
