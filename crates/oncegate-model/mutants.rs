// The guards of the rules, each with the change that takes it out. `line` is the line of DESIGN §3's table, or the
// paragraph below it; `scope` is where the search must notice, and `breaks` the promise that it must see broken.
//
// `build.rs` makes each change in the real source text, which must hold it exactly once.
//
// Not here, because no state that a gate can reach tells them apart from the rule as it is; the table of every cell
// (`oncegate-core/tests/it/decide_table.rs`) has them:
// - line 7, incidents, and line 9, the flag home: the store does not load them yet;
// - line 3, `holds_record`: a record is only taken from a stale holder, and only its own word, which is void by then,
//   could make that lease fresh again;
// - line 5, parking a caller that is stopped while backing off: the claim stands in the error list all the same;
// - line 8, what a person reset runs past the limit: without it the claim would be parked again, and stand in the list;
// - line 10, that what has begun, or has passed its SLA, waits for nobody's turn: without it two would wait for each
//   other, until an SLA that no scope has in reach;
// - line 10, an orphan past its TTL lets its record go: without it others would wait longer, and nothing else;
// - `retry_after`, notes and the words of a stop: they change no state.
/// A rule with one guard taken out.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The line of DESIGN §3's table, or the paragraph, that the guard stands for.
    pub line: &'static str,
    /// What it does wrong.
    pub name: &'static str,
    /// The file of the core that is changed.
    pub file: &'static str,
    /// Where the search must notice.
    pub scope: &'static str,
    /// The promise that must be seen broken.
    pub breaks: &'static str,
    /// The text that is changed; it must stand there once.
    pub find: &'static str,
    /// What it is changed to.
    pub put: &'static str,
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        line: "1", name: "another payload passes", file: "decide", scope: "two payloads", breaks: "OnePayload",
        find: "if policy.on_mismatch == OnMismatch::Stop && mismatches(claim, request) {",
        put: "if false && mismatches(claim, request) {",
    },
    Mutant {
        line: "1", name: "nobody need offer a correction", file: "decide", scope: "two payloads",
        breaks: "PersonsWord",
        find: "if !(request.correction && open && claim.progress.is_clean()) {",
        put: "if !(open && claim.progress.is_clean()) {",
    },
    Mutant {
        line: "1", name: "a correction opens what runs or is done", file: "decide", scope: "two payloads",
        breaks: "OnePayload",
        find: "if !(request.correction && open && claim.progress.is_clean()) {",
        put: "if !(request.correction && claim.progress.is_clean()) {",
    },
    Mutant {
        line: "1", name: "a correction opens what was marked after done", file: "decide", scope: "two payloads",
        breaks: "DoneOnce",
        find: "matches!(claim.state, State::None { .. } | State::Error { .. }) && !has_happened(claim)",
        put: "matches!(claim.state, State::None { .. } | State::Error { .. })",
    },
    Mutant {
        line: "1", name: "a correction forgets steps", file: "decide", scope: "two payloads", breaks: "OnePayload",
        find: "if !(request.correction && open && claim.progress.is_clean()) {",
        put: "if !(request.correction && open) {",
    },
    Mutant {
        line: "2", name: "dismissed runs", file: "decide", scope: "all retries", breaks: "PersonsWord",
        find: "if claim.dismissed {", put: "if false {",
    },
    Mutant {
        line: "2", name: "done runs again", file: "decide", scope: "together", breaks: "DoneOnce",
        find: "State::Done { .. } => Err(duplicate(claim, request, now)),",
        put: "State::Done { .. } => candidate(claim.clone(), RunReason::First),",
    },
    Mutant {
        line: "2", name: "memory ends with the lease", file: "decide", scope: "together", breaks: "DoneOnce",
        find: "&& *retain_until <= now.wall", put: "&& (true || *retain_until <= now.wall)",
    },
    Mutant {
        line: "2", name: "a leaping clock forgets", file: "decide", scope: "memory", breaks: "DoneOnce",
        find: "&& !facts.clock_is_doubtful", put: "",
    },
    Mutant {
        line: "2", name: "a forgotten key's tokens fit again", file: "decide", scope: "memory", breaks: "OneToken",
        find: "claim.generation = u32::try_from(done_at.as_secs()).unwrap_or(u32::MAX / 2);",
        put: "let _ = done_at;",
    },
    Mutant {
        line: "3", name: "same_run for another run", file: "decide", scope: "together", breaks: "OneToken",
        find: "asked == held && !facts.run_id_is_constant && may_be_lost",
        put: "!facts.run_id_is_constant && may_be_lost",
    },
    Mutant {
        line: "3", name: "same_run under a constant run id", file: "decide", scope: "a constant run id",
        breaks: "OneToken",
        find: "asked == held && !facts.run_id_is_constant && may_be_lost", put: "asked == held && may_be_lost",
    },
    Mutant {
        line: "3", name: "same_run without end", file: "decide", scope: "all retries", breaks: "BoundedRuns",
        find: "&& lease.same_runs < limits::SAME_RUN_MAX", put: "",
    },
    Mutant {
        line: "3", name: "same_run is not counted", file: "decide", scope: "all retries", breaks: "BoundedRuns",
        find: "lease.same_runs += 1;", put: "",
    },
    Mutant {
        line: "3", name: "same_run after a heartbeat", file: "decide", scope: "all retries", breaks: "OneToken",
        find: "!lease.heard_from && lease.holds_record", put: "lease.holds_record",
    },
    Mutant {
        line: "4", name: "a live attempt is taken over", file: "decide", scope: "together",
        breaks: "LiveIsLeftAlone",
        find: "Err(stop(StopReason::InProgress, Some(left.max(MOMENT)), note, None))",
        put: "{ let _ = (left, note); candidate(RunReason::StaleRetry, false) }",
    },
    Mutant {
        line: "4", name: "a deferred attempt is anybody's", file: "decide", scope: "all resumes", breaks: "NotYet",
        find: "Duration::ZERO if runner => candidate(RunReason::Resumed, false),",
        put: "Duration::ZERO => { let _ = runner; candidate(RunReason::Resumed, false) }",
    },
    Mutant {
        line: "4", name: "a deferred attempt does not wait", file: "decide", scope: "all resumes", breaks: "NotYet",
        find: "Duration::ZERO if runner => candidate(RunReason::Resumed, false),",
        put: "_ if !until.since(now.wall).is_zero() => candidate(RunReason::Resumed, false),\n\
              Duration::ZERO if runner => candidate(RunReason::Resumed, false),",
    },
    Mutant {
        line: "5", name: "a retry does not wait", file: "decide", scope: "together", breaks: "NotYet",
        find: "Err(stop(StopReason::BackingOff, Some(wait), None, waiting))",
        put: "let _ = (wait, waiting); candidate(claim.clone(), RunReason::Retry)",
    },
    Mutant {
        line: "6", name: "an error for a person retries", file: "decide", scope: "together", breaks: "PersonsWord",
        find: "Err(stop(StopReason::NeedsReview, None, Some(note.clone()), None))",
        put: "{ let _ = note; candidate(claim.clone(), RunReason::Retry) }",
    },
    Mutant {
        line: "6", name: "an edited policy forgets what was spent", file: "decide", scope: "an edited policy",
        breaks: "BoundedRuns",
        find: "if *cause == ErrorCause::Failed && claim.retries_used >= policy.retries.count() =>",
        put: "if false =>",
    },
    Mutant {
        line: "6", name: "a second stale retry", file: "decide", scope: "together", breaks: "BoundedRuns",
        find: "} else if claim.stale_retries_used > 0 {", put: "} else if false {",
    },
    Mutant {
        line: "6", name: "on_stale: hold is not kept", file: "decide", scope: "hold when stale",
        breaks: "PersonsWord",
        find: "let note = if policy.on_stale == OnStale::Hold {", put: "let note = if false {",
    },
    Mutant {
        line: "6", name: "callers that never finish are retried", file: "decide", scope: "a streak of silence",
        breaks: "PersonsWord",
        find: "} else if by_caller && facts.stale_streak >= limits::STALE_STREAK_MAX {", put: "} else if false {",
    },
    Mutant {
        line: "6", name: "silence is not counted", file: "decide", scope: "a streak of silence",
        breaks: "PersonsWord",
        find: "return candidate(RunReason::StaleRetry, by_caller);",
        put: "return candidate(RunReason::StaleRetry, false);",
    },
    Mutant {
        line: "Restart", name: "resumes without end", file: "decide", scope: "all resumes", breaks: "BoundedRuns",
        find: "Liveness::Orphaned if claim.resumes_used < limits::RESUMES_MAX => {",
        put: "Liveness::Orphaned if true => {",
    },
    Mutant {
        line: "Restart", name: "another node's attempt is resumed", file: "decide", scope: "two nodes",
        breaks: "LiveIsLeftAlone",
        find: "match lease.liveness(now, facts.boot) {",
        put: "match lease.liveness(now, match &lease.holder {\n\
              Holder::Runner { boot } => crate::claim::Boot { node: boot.node, ..facts.boot },\n\
              Holder::Caller { .. } => facts.boot,\n\
              }) {",
    },
    Mutant {
        line: "Restart", name: "hand-backs without end", file: "decide", scope: "all resumes",
        breaks: "BoundedRuns",
        find: "Duration::ZERO if *cause == ErrorCause::Shutdown && claim.resumes_used >= limits::RESUMES_MAX => {",
        put: "Duration::ZERO if false => {",
    },
    Mutant {
        line: "7", name: "pausing stops nothing", file: "decide", scope: "together", breaks: "NotYet",
        find: "Some(Hold::Paused) => return Some((StopReason::Paused, None, None)),",
        put: "Some(Hold::Paused) => {}",
    },
    Mutant {
        line: "7", name: "who is stopped by a pause is forgotten", file: "decide", scope: "together",
        breaks: "NothingIsLost",
        find: "None if caller && !claim.flow => call_back(&mut claim, policy, now.wall.after(LOOK_AGAIN)),",
        put: "None if caller && !claim.flow => {}",
    },
    Mutant {
        line: "7", name: "the runner does not come back", file: "decide", scope: "a loop", breaks: "NothingIsLost",
        find: "State::None { due } => *due = Some(until),", put: "State::None { due } => *due = None,",
    },
    Mutant {
        line: "8", name: "a loop goes on", file: "decide", scope: "a loop", breaks: "NoLoop",
        find: "if unseen && claim.record.is_some() && facts.first_runs_of_record >= policy.loop_limit.runs {",
        put: "if false {",
    },
    Mutant {
        line: "8", name: "first runs are not counted", file: "decide", scope: "a loop", breaks: "NoLoop",
        find: "            first_run: first,", put: "            first_run: false,",
    },
    Mutant {
        line: "8", name: "a loop is not parked", file: "decide", scope: "a loop", breaks: "NothingIsLost",
        find: "(claim.parked, claim.nudge) = (Some(parked), None);", put: "let _ = parked;",
    },
    Mutant {
        line: "8", name: "a loop keeps its due time", file: "decide", scope: "a loop", breaks: "PersonsWord",
        find: "*due = None;", put: "let _ = due;",
    },
    Mutant {
        line: "8", name: "the next event starts a parked loop", file: "decide", scope: "a loop",
        breaks: "PersonsWord",
        find: "if matches!(claim.parked, Some(Parked::LoopSuspected | Parked::Incident | Parked::Restored)) {",
        put: "if false {",
    },
    Mutant {
        line: "10", name: "two claims on a record", file: "decide", scope: "together", breaks: "LiveIsLeftAlone",
        find: "Liveness::Fresh { left } => Some(left.max(MOMENT)),", put: "Liveness::Fresh { .. } => None,",
    },
    Mutant {
        line: "10", name: "a record is not taken, only shared", file: "decide", scope: "together",
        breaks: "OneClaimPerRecord",
        find: "Some(holder) if claim.record.is_some() => Some(holder.id),",
        put: "Some(holder) if claim.record.is_some() && false => Some(holder.id),",
    },
    Mutant {
        line: "10", name: "a live claim takes on a record", file: "decide", scope: "a record named later",
        breaks: "OneClaimPerRecord",
        find: "        if matches!(claim.state, State::Processing(_)) {\n            (claim.fingerprint, claim.record, claim.identity)",
        put: "        if false {\n            (claim.fingerprint, claim.record, claim.identity)",
    },
    Mutant {
        line: "10", name: "an orphan's record is anybody's", file: "decide", scope: "together",
        breaks: "LiveIsLeftAlone",
        find: "Liveness::Orphaned => Some(MOMENT),", put: "Liveness::Orphaned => None,",
    },
    Mutant {
        line: "10", name: "a later event overtakes", file: "decide", scope: "two flows on a record",
        breaks: "InOrder",
        find: "busy.or_else(its_turn).map(", put: "busy.map(",
    },
    Mutant {
        line: "Steps", name: "a question is waited for no longer than a unit", file: "finish", scope: "a question",
        breaks: "PersonsWord",
        find: "deferred_until: Some(Timestamp::NEVER),", put: "deferred_until: Some(now.wall),",
    },
    Mutant {
        line: "Steps", name: "a question stands in no list", file: "finish", scope: "a question",
        breaks: "NothingIsLost",
        find: "Call::Review { .. } => Some(Parked::Review),", put: "Call::Review { .. } => None,",
    },
    Mutant {
        line: "Records", name: "who lost its record keeps its token", file: "decide", scope: "together",
        breaks: "OldTokenIsVoid",
        find: "    claim.generation += 1;\n    if let State::Processing(lease) = &mut claim.state {",
        put: "    if let State::Processing(lease) = &mut claim.state {",
    },
    Mutant {
        line: "Records", name: "who lost its record keeps it", file: "decide", scope: "together",
        breaks: "OneClaimPerRecord",
        find: "lease.holds_record = false;", put: "let _ = lease;",
    },
    Mutant {
        line: "11", name: "a new attempt has the old token", file: "decide", scope: "together", breaks: "OneToken",
        find: "    claim.attempt += 1;\n", put: "",
    },
    Mutant {
        line: "11", name: "retries are not counted", file: "decide", scope: "all retries", breaks: "BoundedRuns",
        find: "RunReason::Retry => claim.retries_used += 1,", put: "RunReason::Retry => {}",
    },
    Mutant {
        line: "11", name: "stale retries are not counted", file: "decide", scope: "together",
        breaks: "BoundedRuns",
        find: "RunReason::StaleRetry => claim.stale_retries_used += 1,", put: "RunReason::StaleRetry => {}",
    },
    Mutant {
        line: "11", name: "resumes are not counted", file: "decide", scope: "all resumes", breaks: "BoundedRuns",
        find: "RunReason::Resumed => claim.resumes_used += 1,", put: "RunReason::Resumed => {}",
    },
    Mutant {
        line: "11", name: "what runs stays parked", file: "decide", scope: "together", breaks: "NothingIsLost",
        find: "    (claim.parked, claim.nudge) = (None, None);\n    let ttl =", put: "    let ttl =",
    },
    Mutant {
        line: "Callers", name: "finish: at_claim is not done", file: "decide", scope: "finish at claim",
        breaks: "DoneOnce",
        find: "(Finish::AtClaim, Holder::Caller { run_id }) => State::Done {",
        put: "(Finish::AtClaim, Holder::Caller { run_id }) if false => State::Done {",
    },
    Mutant {
        line: "Steps", name: "a caller goes on with our steps", file: "decide", scope: "all resumes",
        breaks: "OwnSteps",
        find: "Ok(candidate) if is_half_done_elsewhere(&candidate.claim, request) => {",
        put: "Ok(candidate) if false && is_half_done_elsewhere(&candidate.claim, request) => {",
    },
    Mutant {
        line: "Finishing", name: "any token finishes", file: "finish", scope: "together", breaks: "NothingIsLost",
        find: "if fence != claim.fence() {", put: "if false {",
    },
    Mutant {
        line: "Finishing", name: "attempts are not compared", file: "finish", scope: "together",
        breaks: "OldTokenIsVoid",
        find: "if fence != claim.fence() {", put: "if fence.generation != claim.generation {",
    },
    Mutant {
        line: "Finishing", name: "generations are not compared", file: "finish", scope: "together",
        breaks: "NothingIsLost",
        find: "if fence != claim.fence() {", put: "if fence.attempt != claim.attempt {",
    },
    Mutant {
        line: "Finishing", name: "late calls are not listed", file: "finish", scope: "together",
        breaks: "NothingIsLost",
        find: "Claim { late_at: Some(now.wall), ..claim.clone() }", put: "claim.clone()",
    },
    Mutant {
        line: "Finishing", name: "only a fresh lease can be done", file: "finish", scope: "together",
        breaks: "CurrentTokenHolds",
        find: "(State::Done { .. }, call) => {",
        put: "(State::Processing(lease), Call::Done) if now.lease >= lease.expires() => unchanged(Answer::LostClaim),\n\
              (State::Done { .. }, call) => {",
    },
    Mutant {
        line: "Finishing", name: "done cannot be repeated", file: "finish", scope: "together",
        breaks: "CurrentTokenHolds",
        find: "if *call == Call::Done { Answer::Unchanged }", put: "if *call == Call::Done { Answer::LostClaim }",
    },
    Mutant {
        line: "Finishing", name: "a final failure retries", file: "finish", scope: "together",
        breaks: "PersonsWord",
        find: "Call::Error { failure: Failed::Final, note } => error(None, cause(claim, None), note),",
        put: "Call::Error { failure: Failed::Final, note } => error(Some(now.wall), cause(claim, None), note),",
    },
    Mutant {
        line: "Finishing", name: "an unknown outcome retries", file: "finish", scope: "together",
        breaks: "PersonsWord",
        find: "Call::Error { failure: Failed::Unknown, note } => error(None, ErrorCause::OutcomeUnknown, note),",
        put: "Call::Error { failure: Failed::Unknown, note } => error(Some(now.wall), ErrorCause::Failed, note),",
    },
    Mutant {
        line: "Finishing", name: "who is back at work stays parked", file: "finish", scope: "together",
        breaks: "NothingIsLost",
        find: "Call::Heartbeat => claim.parked.filter(|parked| *parked == Parked::Review),",
        put: "Call::Heartbeat => claim.parked,",
    },
    Mutant {
        line: "Reset", name: "done needs no verification", file: "reset", scope: "together", breaks: "DoneOnce",
        find: "if !verified && has_happened(claim) {", put: "if false {",
    },
    Mutant {
        line: "Reset", name: "a mark makes it unhappened", file: "reset", scope: "all retries", breaks: "DoneOnce",
        find: "let cause = if has_happened(claim) {", put: "let cause = if false {",
    },
    Mutant {
        line: "Reset", name: "a live holder need not be named", file: "reset", scope: "together",
        breaks: "LiveIsLeftAlone",
        find: "if confirm == Some(holder.as_str()) {", put: "if true {",
    },
    Mutant {
        line: "Reset", name: "a live holder is taken for dead", file: "reset", scope: "together",
        breaks: "LiveIsLeftAlone",
        find: "Liveness::Fresh { .. } => !claim.is_in_review(),", put: "Liveness::Fresh { .. } => false,",
    },
    Mutant {
        line: "Reset", name: "a live holder's claim is dismissed", file: "reset", scope: "all retries",
        breaks: "LiveIsLeftAlone",
        find: "State::Processing(_) if is_alive(claim, now, boot) => {",
        put: "State::Processing(_) if false && is_alive(claim, now, boot) => {",
    },
    Mutant {
        line: "Reset", name: "a reset voids no token", file: "reset", scope: "together", breaks: "NothingIsLost",
        find: "    claim.generation += 1;\n    claim.retries_used = 0;", put: "    claim.retries_used = 0;",
    },
    Mutant {
        line: "Reset", name: "marking done voids no token", file: "reset", scope: "all retries",
        breaks: "OldTokenIsVoid",
        find: "done.generation += 1;", put: "",
    },
    Mutant {
        line: "Reset", name: "dismissing forgets that it happened", file: "reset", scope: "finish at claim",
        breaks: "DoneOnce",
        find: "    if has_happened(claim) {\n        return Ok(Claim { dismissed: true",
        put: "    if false {\n        return Ok(Claim { dismissed: true",
    },
    Mutant {
        line: "Reset", name: "what is reset is not listed", file: "reset", scope: "together",
        breaks: "NothingIsLost",
        find: "(false, _) => (Some(Parked::NeedsReplay), None),", put: "(false, _) => (None, None),",
    },
    Mutant {
        line: "Reset", name: "our own work that is reset is not listed", file: "reset", scope: "all resumes",
        breaks: "NothingIsLost",
        find: "(true, false) => (Some(Parked::Reset), None),", put: "(true, false) => (None, None),",
    },
];
