//! Whether a request and the claim of its key mean the same: payload, record, what the record says about itself, and
//! who
//! does the work.

use crate::claim::{Claim, Holder, State};
use crate::decision::{Request, Start};

/// Line 1: whether the request means something else than the claim of its key.
pub fn mismatches(claim: &Claim, request: &Request) -> bool {
    let payload =
        matches!((&claim.fingerprint, &request.fingerprint), (Some(a), Some(b)) if a.differs_from(b));
    let record = matches!((&claim.record, &request.record), (Some(a), Some(b)) if a != b);
    // A retry for somebody else would lose the effect that failed. What is `none` a person, or nobody, has opened.
    let is_begun = matches!(claim.state, State::Processing(_) | State::Error { .. });
    payload || record || (is_begun && is_of_another_record(claim, request))
}

/// Told where a key comes for a record that says something else about itself than the one it was claimed for: some
/// platforms give the ids of deleted records away again (C82).
pub const IDENTITY_CHANGED: &str = "record identity changed: the fields that are declared as its identity differ from \
    those of the one that this key was claimed for";

/// Whether both say something about their record, and it differs.
pub fn is_of_another_record(claim: &Claim, request: &Request) -> bool {
    matches!((&claim.identity, &request.identity), (Some(a), Some(b)) if a.differs_from(b))
}

/// What a person is told about a mismatch.
pub fn mismatch_note(claim: &Claim, request: &Request) -> String {
    let note = format!("the key is {} with another payload or record", claim.processing_state());
    match is_of_another_record(claim, request) {
        true => format!("{note}; {IDENTITY_CHANGED}"),
        false => note,
    }
}

/// Told to a caller whose effect the runner is about.
pub const HALF_DONE: &str = "oncegate's own steps have begun this effect; it is theirs to go on with";

/// Only the runner knows which steps have happened; a caller would do them again.
pub fn is_half_done_elsewhere(claim: &Claim, request: &Request) -> bool {
    let by_caller = matches!(request.start, Start::Now(Holder::Caller { .. }));
    by_caller && claim.flow && !claim.progress.is_clean()
}
