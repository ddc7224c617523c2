//! A claim: what has to be looked up for it, and what its decision writes.

use std::borrow::Cow;
use std::sync::Arc;

use oncegate_core::claim::{Boot, Claim, Holder, Parent, Parked, State};
use oncegate_core::decide::{
    self, Changes, Decision, Facts, FlagSeen, Hold, Original, RecordHolder, Request, RunReason, Start,
    StopReason, Verdict,
};
use oncegate_core::identity::Likeness;
use oncegate_core::key::{ClaimId, RecordName, RunId};
use oncegate_core::limits;
use oncegate_core::needs_review;
use oncegate_core::policy::Policy;
use oncegate_core::recovery::Restores;
use oncegate_core::time::{Now, Timestamp};

use super::{Line, Rules};
use crate::api::ClaimCall;

/// What has to be looked up besides the claim's row; the rest cannot matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Whether, and when, a claim of this key was forgotten.
    pub pruned: bool,
    /// Who holds this record, and how often it was run for the first time lately.
    pub record: Option<&'a RecordName>,
    /// Whether another claim with this run id ended before [`run_id_horizon`].
    pub run_id: Option<&'a RunId>,
    /// Whether an earlier one of the same record waits ([`Facts::earlier_waits`]).
    pub order: bool,
    /// Which claim it repeats.
    pub repeat: Repeat,
}

impl Wanted<'_> {
    /// Whether there is anything to look up.
    pub fn asks(&self) -> bool {
        self.pruned || self.record.is_some() || self.run_id.is_some() || self.repeat != Repeat::None
    }
}

/// How the claim that another one repeats is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It repeats none.
    None,
    /// It is known which; only the key is wanted.
    Known(ClaimId),
    /// The first one of the automation that is like it, is no repeat itself, and was first seen before it, but no
    /// longer than `within`. Of several calls at once only one may find none: a store decides them one after the other.
    Like(Likeness),
}

/// What the facts about a call are made of.
pub fn wanted<'a>(request: &'a Request, claim: Option<&'a Claim>) -> Wanted<'a> {
    Wanted {
        pruned: claim.is_none_or(|c| matches!(c.state, State::None { .. })),
        record: request.record.as_ref().or(claim.and_then(|c| c.record.as_ref())),
        // Asked before it matters: that it is wrong must be told before the first answer gets lost.
        run_id: decide::run_id_of(request),
        // Only what has been queued has a place in the line.
        order: claim.is_some_and(|c| c.flow && c.record.is_some()),
        repeat: match (claim, &request.likeness) {
            (Some(Claim { repeat_of: Some(id), .. }), _) => Repeat::Known(*id),
            // Once a person has looked at it, or somebody has begun it, it is judged by its own key alone.
            (Some(c), _) if c.resets > 0 || !matches!(c.state, State::None { .. }) => Repeat::None,
            (_, Some(likeness)) => Repeat::Like(*likeness),
            (_, None) => Repeat::None,
        },
    }
}

/// A run id that was seen on a claim which ended before then names no run (DESIGN §3, `same_run`).
pub fn run_id_horizon(now: Now) -> Timestamp {
    now.wall.before(limits::RUN_ID_LIVES_FOR)
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Loaded<'a> {
    /// The claim's id; its row may not exist yet.
    pub id: ClaimId,
    /// Its row.
    pub claim: Option<&'a Claim>,
    /// How many calls it has stopped so far.
    pub stops: u64,
    /// When a claim of this key that has been forgotten since was done.
    pub pruned_done_at: Option<Timestamp>,
    /// The other claim that holds the wanted record, if it is `processing`.
    pub record_holder: Option<&'a Claim>,
    /// First runs of the wanted record in this automation within the policy's window.
    pub first_runs_of_record: u32,
    /// Whether an earlier one of the wanted record has yet to run.
    pub earlier_waits: bool,
    /// The wanted claim that this one repeats.
    pub repeat_of: Option<Original>,
    /// Whether the automation is paused.
    pub paused: bool,
    /// Stale claims of this automation since its last done.
    pub stale_streak: u32,
    /// Whether the wanted run id names no run.
    pub run_id_is_constant: bool,
    /// Whether the wall clock's word is not enough to forget anything.
    pub clock_is_doubtful: bool,
    /// The attempt of another claim that the call belongs to ([`super::family::tie`]).
    pub parent: Option<Parent>,
    /// The present start of the gate.
    pub boot: Boot,
    /// The restores that the store went through.
    pub restores: &'a Arc<Restores>,
    /// Whether no person has ended the recovery from the last of them.
    pub recovering: bool,
}

impl Loaded<'_> {
    /// What the core decides on.
    pub fn facts(&self) -> Facts {
        let holder = self.record_holder.and_then(|claim| match &claim.state {
            State::Processing(lease) => Some(RecordHolder { id: claim.id, lease: lease.clone() }),
            State::None { .. } | State::Done { .. } | State::Error { .. } => None,
        });
        Facts {
            id: self.id,
            claim: self.claim.cloned(),
            pruned_done_at: self.pruned_done_at,
            record_holder: holder,
            hold: match self.recovering {
                true => Some(Hold::Recovery),
                false => self.paused.then_some(Hold::Paused),
            },
            first_runs_of_record: self.first_runs_of_record,
            earlier_waits: self.earlier_waits,
            repeat_of: self.repeat_of.clone(),
            flag: FlagSeen::Clear,
            stale_streak: self.stale_streak,
            run_id_is_constant: self.run_id_is_constant,
            clock_is_doubtful: self.clock_is_doubtful,
            parent: self.parent.clone(),
            boot: self.boot,
            restores: Arc::clone(self.restores),
        }
    }
}

/// What becomes of the payload that came with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is not the one meant.
    Not,
    /// Unless there is one.
    First,
    /// Instead of the one there is.
    Instead,
}

/// What becomes of the mark that a key was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// It stays as it is.
    Stays,
    /// The key runs again: from now on its row remembers.
    Goes,
    /// The key was done then, and its row no longer says so.
    Comes(Timestamp),
}

/// What is written for a claim, in this order: steps given up, the record's former holder, the claim, its payload,
/// its history; then the rest in any order.
#[derive(Clone, Debug)]
pub struct Writes<'a> {
    /// What the caller is told.
    pub decision: Decision,
    /// The claim's new row, if it changes; a new claim if none was loaded.
    pub claim: Option<Claim>,
    /// A new attempt begins, or none does before a person has looked: calls in flight of earlier ones become unknown;
    /// if there were any, see [`Writes::steps_were_given_up`].
    pub give_up_steps: bool,
    /// The new row of [`Loaded::record_holder`], whose record was taken.
    pub record_taken: Option<(Claim, Line<'static>)>,
    /// What becomes of the call's payload.
    pub payload: Keep,
    /// The claim's history.
    pub lines: Vec<Line<'a>>,
    /// The call counts as a stop.
    pub stopped: bool,
    /// Counts as a first run of the claim's record.
    pub first_run: bool,
    /// A caller of this automation went silent.
    pub went_stale: bool,
    /// The mark that the key was forgotten.
    pub pruned: Pruned,
}

impl Writes<'_> {
    /// What an earlier attempt sent without hearing back is unknown from now on.
    pub fn steps_were_given_up(&mut self) {
        let Some(note) = self.claim.as_mut().and_then(needs_review::left_unknown) else { return };
        for line in &mut self.lines {
            line.note = line.note.take().map(|_| Cow::Owned(note.clone()));
        }
        if let Decision::Stop { note: told, .. } = &mut self.decision {
            *told = Some(note);
        }
    }
}

/// Decides a claim. `name` says which claim this is, for people who look at the one whose record it takes.
pub fn claim<'a>(
    rules: &Rules,
    loaded: &Loaded<'_>,
    call: &'a ClaimCall,
    name: impl Fn() -> String,
    policy: &Policy,
    now: Now,
) -> Writes<'a> {
    let Verdict { decision, changes } = (rules.decide)(&loaded.facts(), &call.request, policy, now);
    let Changes { claim, record_taken_from, went_stale, first_run, corrected } = changes;
    let starts = matches!(decision, Decision::Run(reason) if reason != RunReason::SameRun);
    // What was said of a claim that waits for a person already stays as it is.
    let waits_for_a_person = |c: &Claim| matches!(c.state, State::Error { due: None, .. });
    let ends =
        claim.as_ref().is_some_and(waits_for_a_person) && !loaded.claim.is_some_and(waits_for_a_person);
    let attempt = claim.as_ref().or(loaded.claim).map_or(0, |c| c.attempt);
    let record_taken = record_taken_from.and(loaded.record_holder).map(|holder| {
        let claim = (rules.without_record)(holder.clone());
        let note = Some(format!("record taken by {} at {}", name(), now.wall).into());
        let line = Line { kind: "record_taken", reason: None, attempt: claim.attempt, note };
        (claim, line)
    });
    let mut writes = Writes {
        give_up_steps: (starts || ends) && loaded.claim.is_some(),
        record_taken,
        payload: kept(&decision, claim.is_some(), corrected),
        lines: Vec::new(),
        stopped: false,
        first_run: first_run && claim.as_ref().is_some_and(|c| c.record.is_some()),
        went_stale,
        pruned: pruned(loaded, claim.as_ref(), starts),
        claim,
        decision,
    };
    // A stop of a key that nothing is known of leaves no row, and so no history.
    if writes.claim.is_some() || loaded.claim.is_some() {
        if corrected {
            writes.lines.push(Line { kind: "reset", reason: Some("correction"), attempt, note: None });
        }
        tell(&mut writes, loaded, attempt, call);
    }
    writes
}

/// A payload is kept with the fingerprint that later ones are compared to, or not at all; that of a call that was
/// stopped for its payload is not the one meant.
fn kept(decision: &Decision, changed: bool, corrected: bool) -> Keep {
    match decision {
        Decision::Stop { reason: StopReason::PayloadMismatch | StopReason::Duplicate, .. } => Keep::Not,
        _ if !changed => Keep::Not,
        // A key seen again after its retention brings its own payload; the old one is no longer meant.
        Decision::Run(RunReason::FirstAfterRetention) | Decision::Queued(RunReason::FirstAfterRetention) => {
            Keep::Instead
        }
        _ if corrected => Keep::Instead,
        Decision::Run(_) | Decision::Queued(_) | Decision::Stop { .. } => Keep::First,
    }
}

/// A key that is seen again after its retention is told so when it starts, however long it is held back before.
fn pruned(loaded: &Loaded<'_>, after: Option<&Claim>, starts: bool) -> Pruned {
    match (loaded.claim.map(|c| &c.state), after.map(|c| &c.state)) {
        _ if starts && loaded.pruned_done_at.is_some() => Pruned::Goes,
        (Some(State::Done { at, .. }), Some(State::None { .. })) if !starts => Pruned::Comes(*at),
        _ => Pruned::Stays,
    }
}

/// What the history says about the decision, and whether it counts as a stop.
fn tell<'a>(writes: &mut Writes<'a>, loaded: &Loaded<'_>, attempt: u32, call: &'a ClaimCall) {
    let (changed, stops) = (writes.claim.is_some(), loaded.stops);
    let by_runner = matches!(call.request.start, Start::Now(Holder::Runner { .. }));
    let (reason, note) = match &writes.decision {
        Decision::Run(reason) => {
            writes.lines.push(Line { kind: "run", reason: Some(reason.as_str()), attempt, note: None });
            return;
        }
        Decision::Queued(_) if writes.claim.as_ref().is_some_and(|c| c.parked == Some(Parked::Repeat)) => {
            let note = loaded.repeat_of.as_ref().map(|original| original.note().into());
            writes.lines.push(Line { kind: "parked", reason: Some("repeat"), attempt, note });
            return;
        }
        Decision::Queued(reason) if changed => {
            writes.lines.push(Line { kind: "queued", reason: Some(reason.as_str()), attempt, note: None });
            return;
        }
        // It waits already: this delivery is one too many.
        Decision::Queued(_) => (StopReason::InProgress, None),
        // From now on it waits for a person, who is told since when and why.
        Decision::Stop { reason, note, .. } if by_runner && parks(writes, loaded) => {
            let note = note.clone().map(Cow::Owned);
            writes.lines.push(Line { kind: "parked", reason: Some(reason.as_str()), attempt, note });
            return;
        }
        // The runner asking again whether its own work may start is no refusal of anybody.
        Decision::Stop { reason, .. } if by_runner && *reason != StopReason::NeedsReview => return,
        Decision::Stop { .. } if call.again => return,
        Decision::Stop { reason, note, .. } => (*reason, note.clone().map(Cow::Owned)),
    };
    writes.stopped = true;
    // Every refusal is counted; so that a loop cannot fill the disk, only the first have a row.
    if stops < u64::from(limits::STOP_HISTORY_ROWS_MAX) {
        writes.lines.push(Line { kind: "stop", reason: Some(reason.as_str()), attempt, note });
    }
}

fn parks(writes: &Writes<'_>, loaded: &Loaded<'_>) -> bool {
    let after = writes.claim.as_ref().and_then(|c| c.parked);
    after.is_some() && after != loaded.claim.and_then(|c| c.parked)
}
