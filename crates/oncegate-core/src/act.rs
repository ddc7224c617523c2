//! What [`act`](crate::reset::act) is asked and why it refuses: what a person may want of a claim.

/// What a person wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Back to `none` with fresh retries.
    Reset {
        /// Start it at once, where oncegate itself holds the work.
        run_now: bool,
        /// The name of the live holder, to confirm that its work may be cut off ([`crate::claim::Claim::holder_name`]).
        confirm_holder: Option<String>,
        /// Needed for `done`: somebody verified that the effect must happen again.
        verified: bool,
    },
    /// Back to `none` like [`Act::Reset`], and steps that were sent are sent again.
    FromStart {
        /// As for a reset.
        run_now: bool,
        /// As for a reset.
        confirm_holder: Option<String>,
        /// As for a reset.
        verified: bool,
        /// The steps that were sent, named by somebody who means to send them again
        /// ([`crate::reset::confirms_sent`]).
        confirm_sent: Vec<String>,
        /// Receivers see new keys; under the old ones those that remember them answer as before and do nothing.
        new_keys: bool,
    },
    /// To `error`, with a tag, e.g. for mass duplicates.
    MarkError {
        /// The tag and note.
        note: String,
    },
    /// From `error` to `done`: it did happen.
    MarkDone,
    /// It shall not happen; or, for `done`, the mark in the inbox has been looked at.
    Dismiss,
    /// Yes, to the question of a `review` step: it goes on.
    Approve,
    /// No: it shall not happen.
    Decline,
}

/// Why not; the caller is told how to go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Somebody is alive on it.
    #[error(
        "{holder} is working on this claim (attempt {attempt}); resetting it can make the effect happen twice. \
         If you are sure that it is dead, repeat with confirm_holder: \"{holder}\""
    )]
    LiveHolder {
        /// What to repeat.
        holder: String,
        /// Its attempt.
        attempt: u32,
    },
    /// Somebody is alive on it, and this act has no confirmation.
    #[error("{0} is working on this claim; wait for it, or reset it first")]
    Busy(String),
    /// The effect happened.
    #[error(
        "the effect is done; only `verified: true` (somebody checked that it must happen again) resets it"
    )]
    Done,
    /// Steps were sent that would be sent again.
    #[error(
        "{} sent already and would be sent again. If that is meant, repeat with confirm_sent: {}",
        was_sent(.0),
        serde_json::json!(.0)
    )]
    Sent(Vec<String>),
    /// Our runner would have nothing to run it from.
    #[error(
        "the payload of this claim was removed after its payload_retention, so it cannot run again from here; send the \
         event anew where it came from under another key, or do it by hand"
    )]
    PayloadRemoved,
    /// Nothing to do.
    #[error("the claim is {0} already")]
    Nothing(&'static str),
    /// Nobody asked.
    #[error(
        "no step of this claim waits for an answer; only one that stands in `parked` as `review` can be approved or declined"
    )]
    NotInReview,
    /// Only an error can be declared done.
    #[error("only a claim in error can be marked done; this one is {0}")]
    NotAnError(&'static str),
}

fn was_sent(steps: &[String]) -> String {
    let names: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
    format!("{} {}", names.join(", "), if steps.len() == 1 { "was" } else { "were" })
}
