//! What a search has reached: a check that never sees a case says nothing about it.

use std::collections::BTreeMap;

use oncegate_core::decide::{Decision, RunReason, StopReason};
use oncegate_core::finish::Answer;

/// How often each answer was given.
#[derive(Clone, Debug, Default)]
pub struct Tally(pub BTreeMap<&'static str, u64>);

impl Tally {
    /// Counts one.
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn decided(&mut self, decision: &Decision) {
        self.count(match decision {
            Decision::Run(reason) => run_word(*reason),
            Decision::Queued(_) => "queued",
            Decision::Stop { reason, .. } => stop_word(*reason),
        });
    }

    pub(crate) fn answered(&mut self, answer: Answer) {
        self.count(match answer {
            Answer::Accepted => "finish accepted",
            Answer::Unchanged => "finish unchanged",
            Answer::AlreadyDone => "finish already_done",
            Answer::NotProcessing => "finish not_processing",
            Answer::LostClaim => "finish lost_claim",
        });
    }

    /// Adds another search's.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// As it is counted.
pub fn run_word(reason: RunReason) -> &'static str {
    match reason {
        RunReason::First => "run first",
        RunReason::FirstAfterRetention => "run first_after_retention",
        RunReason::Retry => "run retry",
        RunReason::StaleRetry => "run stale_retry",
        RunReason::Resumed => "run resumed",
        RunReason::SameRun => "run same_run",
    }
}

/// As it is counted.
pub fn stop_word(reason: StopReason) -> &'static str {
    match reason {
        StopReason::PayloadMismatch => "stop payload_mismatch",
        StopReason::Duplicate => "stop duplicate",
        StopReason::Dismissed => "stop dismissed",
        StopReason::InProgress => "stop in_progress",
        StopReason::BackingOff => "stop backing_off",
        StopReason::NeedsReview => "stop needs_review",
        StopReason::Paused => "stop paused",
        StopReason::Incident => "stop incident",
        StopReason::Repeat => "stop repeat",
        StopReason::LoopSuspected => "stop loop_suspected",
        StopReason::FlagBusy => "stop flag_busy",
        StopReason::FlagUnreadable => "stop flag_unreadable",
        StopReason::RecordBusy => "stop record_busy",
    }
}
