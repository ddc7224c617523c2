//! What the steps of a claim have sent, as it is remembered.

use oncegate_core::key::ClaimRef;
use oncegate_core::time::Timestamp;
use oncegate_core::token::Fence;
use serde::Serialize;

/// The target of a step that waits: nothing was sent there.
pub const WAIT: &str = "wait";
/// The target of a step that asks a person. The first row of it has the question as its note, the second the answer.
pub const REVIEW: &str = "review";

/// What the target of a look begins with, which is made to see whether a step's effect is there.
pub const LOOKUP: &str = "lookup ";

/// Whether a call only looked.
pub fn is_lookup(call: &StepCall) -> bool {
    call.target.starts_with(LOOKUP)
}

/// The name under which an item of a step's list is sent: `mail[3]`, counted from 0.
pub fn item_name(step: &str, index: usize) -> String {
    format!("{step}[{index}]")
}

/// Which item of a step's list a name stands for, if it is one of that step.
pub fn item_of(name: &str, step: &str) -> Option<usize> {
    name.strip_prefix(step)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The step that a name belongs to: itself, or the step of which it is an item.
pub fn step_of(name: &str) -> &str {
    let item = name.rsplit_once('[').filter(|(_, rest)| {
        rest.strip_suffix(']').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    });
    item.map_or(name, |(step, _)| step)
}

/// The steps of names under which something was sent, each once, in order.
pub(crate) fn steps_of(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for name in names {
        if !steps.iter().any(|step| step == step_of(&name)) {
            steps.push(step_of(&name).to_owned());
        }
    }
    steps
}

/// A call that a step is about to send.
#[derive(Clone, Debug)]
pub struct StepBegin {
    /// Which claim.
    pub id: ClaimRef,
    /// The attempt that sends it.
    pub fence: Fence,
    /// Which step.
    pub step: String,
    /// The key it sends.
    pub idempotency_key: String,
    /// Method and URL without query, for people.
    pub target: String,
}

/// What is known about a sent call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// Written down, sent or about to be; no answer yet.
    InFlight,
    /// It happened.
    Succeeded,
    /// Surely not done.
    Failed,
    /// Sent, and nobody knows.
    Unknown,
}

/// How a sent call ended.
#[derive(Clone, Debug)]
pub struct StepEnd {
    /// Which claim.
    pub id: ClaimRef,
    /// The attempt that sent it.
    pub fence: Fence,
    /// Which call.
    pub call: i64,
    /// What is known; not `InFlight`.
    pub outcome: StepOutcome,
    /// HTTP status.
    pub status: Option<u16>,
    /// The answer's body, cut to its limit.
    pub answer: Option<Vec<u8>>,
    /// In words.
    pub note: Option<String>,
}

/// One call of a step, as remembered.
#[derive(Clone, Debug, Serialize)]
pub struct StepCall {
    /// Its number in the store.
    pub id: i64,
    /// Which step.
    pub step: String,
    /// The attempt that sent it.
    pub attempt: u32,
    /// The claim's resets at that time.
    #[serde(skip)]
    pub resets: u32,
    /// The key it sent.
    pub idempotency_key: String,
    /// Method and URL without query.
    pub target: String,
    /// When it was written down, just before it was sent.
    pub sent_at: Timestamp,
    /// What is known.
    pub outcome: StepOutcome,
    /// HTTP status.
    pub status: Option<u16>,
    /// The answer's body.
    #[serde(skip)]
    pub answer: Option<Vec<u8>>,
    /// In words.
    pub note: Option<String>,
    /// When that became known.
    pub finished_at: Option<Timestamp>,
}
