//! Claims that come together: each is judged alone, but what they say about each other is looked at first.

use std::collections::HashSet;

use oncegate_core::claim::Holder;
use oncegate_core::decide::Start;
use oncegate_core::key::RunId;

use crate::api::ClaimCall;

/// Of the claims of one batch that carry one `run_id`, the first keeps it: it names one item of one run, so that no two
/// of them can be one claim repeated (DESIGN §3, `same_run`). Says of each whether it lost its own; then
/// [`oncegate_core::notice::RUN_ID_TWICE`] belongs into its answer.
pub fn one_run_id_each(calls: &mut [ClaimCall]) -> Vec<bool> {
    let mut seen: HashSet<RunId> = HashSet::new();
    let lost = |call: &mut ClaimCall| {
        let Start::Now(Holder::Caller { run_id }) = &mut call.request.start else { return false };
        let again = run_id.as_ref().is_some_and(|id| !seen.insert(id.clone()));
        if again {
            *run_id = None;
        }
        again
    };
    calls.iter_mut().map(lost).collect()
}
