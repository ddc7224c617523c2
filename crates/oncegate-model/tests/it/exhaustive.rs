//! Every state that the scopes can reach, under the rules as they are.

use oncegate_core::decide::{RunReason, StopReason};
use oncegate_model::scope::scopes;
use oncegate_model::search::search;
use oncegate_model::tally::{Tally, run_word, stop_word};
use oncegate_store::transition::Rules;

/// More than any scope has: a search that comes to it has lost its bounds.
const STATES_MAX: usize = 2_000_000;

/// What the search must come by at least once, or it would say nothing about it. Incidents and the flag home are not
/// loaded by the store yet.
const RUNS: [RunReason; 6] = [
    RunReason::First,
    RunReason::FirstAfterRetention,
    RunReason::Retry,
    RunReason::StaleRetry,
    RunReason::Resumed,
    RunReason::SameRun,
];
const STOPS: [StopReason; 9] = [
    StopReason::PayloadMismatch,
    StopReason::Duplicate,
    StopReason::Dismissed,
    StopReason::InProgress,
    StopReason::BackingOff,
    StopReason::NeedsReview,
    StopReason::Paused,
    StopReason::LoopSuspected,
    StopReason::RecordBusy,
];
const OTHERS: [&str; 12] = [
    "queued",
    "finish accepted",
    "finish unchanged",
    "finish already_done",
    "finish not_processing",
    "finish lost_claim",
    "reset",
    "reset_and_run",
    "mark_error",
    "mark_done",
    "dismiss",
    "act refused",
];

#[test]
fn nothing_that_can_happen_breaks_a_promise() {
    let (mut states, mut tally) = (0, Tally::default());
    for scope in scopes() {
        let found = search(&scope, Rules::CORE, STATES_MAX);
        println!("{}: {} states, {} moves, {} deep", scope.name, found.states, found.moves, found.depth);
        if let Some(trace) = &found.broken {
            panic!("\"{}\", {} states:\n{trace}", scope.name, found.states);
        }
        assert!(found.exhausted, "\"{}\" has more than {STATES_MAX} states: bound it", scope.name);
        states += found.states;
        tally.add(&found.tally);
    }
    println!("{states} states; reached: {:#?}", tally.0);
    assert!(states >= 100_000, "only {states} states");
    let words = RUNS.map(run_word).into_iter().chain(STOPS.map(stop_word)).chain(OTHERS);
    let never: Vec<_> = words.filter(|word| !tally.0.contains_key(word)).collect();
    assert!(never.is_empty(), "never reached: {never:?}");
}
