//! Random calls on three keys and two records, compared with a plain model that asks the core itself.

use std::collections::BTreeMap;

use oncegate_core::claim::{Claim, Lease, NodeNumber, State};
use oncegate_core::decide::{
    self, Changes, Decision, Facts, FlagSeen, Hold, RecordHolder, StopReason, Verdict,
};
use oncegate_core::finish::finish;
use oncegate_core::key::RunId;
use oncegate_core::needs_review;
use oncegate_core::reset;
use oncegate_core::time::Now;
use oncegate_core::token::Fence;
use oncegate_store::api::{StepBegin, StepEnd, StepOutcome};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;

mod ops;

use ops::{Op, Who, ops};

/// Two automations; records cross them.
const KEYS: [(&str, &str); 3] = [("welcome", "k1"), ("welcome", "k2"), ("hold", "k1")];

struct Row {
    claim: Claim,
    /// Rows made later have higher ones.
    position: usize,
    /// Of the last attempt, also after its end.
    run_id: Option<RunId>,
    result: Option<String>,
    stops: u64,
    payload: Option<Payload>,
    /// Call number, who sent it, what is known.
    steps: Vec<(i64, Fence, StepOutcome)>,
}

impl Row {
    fn new(claim: Claim, position: usize) -> Self {
        Self { claim, position, run_id: None, result: None, stops: 0, payload: None, steps: Vec::new() }
    }

    fn put(&mut self, claim: Claim, result: Option<String>) {
        match &claim.state {
            State::Processing(lease) => self.run_id = lease.holder.run_id().cloned(),
            State::Done { at_claim: Some(asked), .. } => self.run_id = Some(asked.run_id.clone()),
            _ => {}
        }
        let kept = matches!(self.claim.state, State::Done { .. }) && self.claim.attempt == claim.attempt;
        self.result = match claim.state {
            State::Done { .. } if kept => self.result.take(),
            State::Done { .. } => result,
            _ => None,
        };
        self.claim = claim;
    }

    fn ended(&self) -> Option<Timestamp> {
        match self.claim.state {
            State::Done { at, .. } | State::Error { at, .. } => Some(at),
            State::None { .. } | State::Processing(_) => None,
        }
    }
}

#[derive(Default)]
struct Model {
    rows: BTreeMap<usize, Row>,
    ids: BTreeMap<usize, ClaimRef>,
    tokens: BTreeMap<usize, Vec<Token>>,
    pruned: BTreeMap<usize, Timestamp>,
    first_runs: Vec<(RecordName, &'static str, Timestamp)>,
    streak: BTreeMap<&'static str, u32>,
    paused: bool,
    made: usize,
}

impl Model {
    fn token(&self, key: usize, back: usize) -> Option<Token> {
        self.tokens.get(&key)?.iter().rev().nth(back).cloned()
    }

    /// An event that came earlier and names the same record holds it, is queued, or backs off.
    fn earlier_waits(&self, key: usize) -> bool {
        let Some(mine) = self.rows.get(&key).filter(|r| r.claim.flow && r.claim.record.is_some()) else {
            return false;
        };
        let earlier =
            |r: &Row| r.claim.flow && r.claim.record == mine.claim.record && r.position < mine.position;
        self.rows.iter().filter(|(_, r)| earlier(r)).any(|(k, r)| match &r.claim.state {
            State::Processing(lease) => lease.holds_record,
            State::None { due } | State::Error { due, .. } => {
                due.is_some() && !(self.paused && KEYS[*k].0 == "welcome")
            }
            State::Done { .. } => false,
        })
    }

    fn facts(&self, key: usize, id: ClaimRef, request: &Request, now: Now, boot: Boot) -> Facts {
        let (of, _) = KEYS[key];
        let claim = self.rows.get(&key).map(|r| r.claim.clone());
        let record = request.record.clone().or(claim.as_ref().and_then(|c| c.record.clone()));
        let others = || self.rows.iter().filter(|(k, _)| **k != key).map(|(_, r)| r);
        let holder = others().find_map(|r| match &r.claim.state {
            State::Processing(lease)
                if lease.holds_record && record.is_some() && r.claim.record == record =>
            {
                Some(RecordHolder { id: r.claim.id, lease: lease.clone() })
            }
            _ => None,
        });
        let since = now.wall.before(Policy::default().loop_limit.within);
        let runs = self
            .first_runs
            .iter()
            .filter(|(r, a, at)| Some(r) == record.as_ref() && *a == of && *at > since && *at <= now.wall);
        let open = |claim: &Claim| matches!(claim.state, State::None { .. });
        let asked = decide::run_id_of(request).cloned();
        let constant = asked.is_some()
            && others().any(|r| r.run_id == asked && r.ended().is_some_and(|at| at < now.wall.before(HOUR)));
        Facts {
            earlier_waits: self.earlier_waits(key),
            id: id.id,
            pruned_done_at: self.pruned.get(&key).copied().filter(|_| claim.as_ref().is_none_or(open)),
            claim,
            record_holder: holder,
            hold: (self.paused && of == "welcome").then_some(Hold::Paused),
            first_runs_of_record: u32::try_from(runs.count()).unwrap(),
            repeat_of: None,
            flag: FlagSeen::Clear,
            stale_streak: self.streak.get(of).copied().unwrap_or_default(),
            run_id_is_constant: constant,
            clock_is_doubtful: false,
            parent: None,
            boot,
            restores: std::sync::Arc::default(),
        }
    }

    /// What the process before held is, to the first node of a cluster, from before its own first start.
    fn moved(&mut self) {
        for row in self.rows.values_mut() {
            if let State::Processing(Lease { holder: Holder::Runner { boot }, .. }) = &mut row.claim.state {
                *boot = Boot { node: NodeNumber(1), start: 0 };
            }
        }
    }

    fn decide(&mut self, key: usize, id: ClaimRef, call: &ClaimCall, now: Now, boot: Boot) -> Decision {
        let (of, _) = KEYS[key];
        let facts = self.facts(key, id, &call.request, now, boot);
        let policy = Policies.policy(WS, &automation(of));
        let Verdict { mut decision, changes } = decide::decide(&facts, &call.request, &policy, now);
        let Changes { mut claim, record_taken_from, went_stale, first_run, corrected } = changes;
        let starts = matches!(decision, Decision::Run(reason) if reason != decide::RunReason::SameRun);
        let waits = |c: &Claim| matches!(c.state, State::Error { due: None, .. });
        let waited = self.rows.get(&key).is_some_and(|row| waits(&row.claim));
        let ends = claim.as_ref().is_some_and(waits) && !waited;
        if let (true, Some(claim), Some(row)) = (starts || ends, &mut claim, self.rows.get_mut(&key)) {
            for step in row.steps.iter_mut().filter(|s| s.2 == StepOutcome::InFlight) {
                step.2 = StepOutcome::Unknown;
                let note = needs_review::left_unknown(claim);
                if let (Decision::Stop { note: told, .. }, Some(note)) = (&mut decision, note) {
                    *told = Some(note);
                }
            }
        }
        if let Some(taken) = record_taken_from {
            let row = self.rows.values_mut().find(|r| r.claim.id == taken).unwrap();
            row.claim = decide::without_record(row.claim.clone());
        }
        let changed = claim.is_some();
        let expired = match self.rows.get(&key).map(|r| &r.claim.state) {
            Some(State::Done { at, retain_until, .. }) if *retain_until <= now.wall => Some(*at),
            _ => None,
        };
        if let (Some(done_at), false) = (expired, starts) {
            self.pruned.insert(key, done_at);
        }
        if let Some(claim) = claim {
            if first_run && let Some(record) = &claim.record {
                self.first_runs.push((record.clone(), of, now.wall));
            }
            self.made += 1;
            self.rows.entry(key).or_insert_with(|| Row::new(claim.clone(), self.made)).put(claim, None);
        }
        *self.streak.entry(of).or_default() += u32::from(went_stale);
        if starts {
            self.pruned.remove(&key);
        }
        let row = self.rows.get_mut(&key).unwrap();
        let anew = ["run first_after_retention", "queued first_after_retention"]
            .contains(&words(&decision).as_str());
        if changed
            && !matches!(decision, Decision::Stop { reason: StopReason::PayloadMismatch, .. })
            && let Some(payload) = &call.payload
            && (corrected || anew || row.payload.is_none())
        {
            row.payload = Some(payload.clone());
        }
        match &decision {
            Decision::Stop { reason, .. } => {
                row.stops += u64::from(call.actor != RUNNER || *reason == StopReason::NeedsReview);
            }
            Decision::Queued(_) => row.stops += u64::from(!changed),
            Decision::Run(_) => {}
        }
        decision
    }

    fn finish(&mut self, key: usize, call: &FinishCall, now: Now) -> Option<Answer> {
        let (of, _) = KEYS[key];
        let row = self.rows.get_mut(&key)?;
        let policy = Policies.policy(WS, &automation(of));
        let finished = finish(&row.claim, call.fence, &call.call, &policy, now, call.jitter);
        if let Some(claim) = finished.claim {
            row.put(claim, call.result.clone());
        }
        if finished.answer == Answer::Accepted && call.call == Call::Done {
            self.streak.insert(of, 0);
        }
        Some(finished.answer)
    }

    fn end(&mut self, key: usize, nth: usize, outcome: StepOutcome, now: Now) -> Option<bool> {
        let row = self.rows.get_mut(&key)?;
        let (_, fence, known) = row.steps.get_mut(nth)?;
        let (fence, open) = (*fence, matches!(known, StepOutcome::InFlight | StepOutcome::Unknown));
        let holds = fence == row.claim.fence() && matches!(row.claim.state, State::Processing(_));
        if open {
            *known = outcome;
            let any = |known| row.steps.iter().any(|s| s.2 == known);
            // All are of one step: one that succeeded makes the others' outcomes known.
            let others = !any(StepOutcome::Succeeded) && any(StepOutcome::Unknown);
            let claim = &mut row.claim;
            if outcome == StepOutcome::Succeeded {
                claim.progress.succeeded = true;
                claim.resumes_used = 0;
            }
            claim.progress.unknown = outcome == StepOutcome::Unknown || (claim.progress.unknown && others);
            if let (true, State::Processing(lease)) = (holds, &mut claim.state) {
                lease.renewed = lease.renewed.max(now.lease);
            } else if fence != claim.fence() && outcome != StepOutcome::Failed {
                claim.late_at = claim.late_at.or(Some(now.wall));
            }
        }
        Some(holds)
    }

    fn reap(&mut self, now: Now) {
        for (key, row) in std::mem::take(&mut self.rows) {
            match row.claim.state {
                State::Done { at, retain_until, .. }
                    if retain_until <= now.wall
                        && row.claim.mismatch_at.is_none()
                        && row.claim.late_at.is_none() =>
                {
                    self.pruned.insert(key, at);
                }
                _ => {
                    self.rows.insert(key, row);
                }
            }
        }
    }
}

fn adopt_due(ours: &mut State, theirs: &State) {
    match (ours, theirs) {
        (State::None { due: ours }, State::None { due: theirs })
        | (State::Error { due: ours, .. }, State::Error { due: theirs, .. }) => *ours = *theirs,
        (State::Processing(ours), State::Processing(theirs)) => ours.deferred_until = theirs.deferred_until,
        _ => {}
    }
}

async fn play(bench: &mut Bench, ops: Vec<Op>) {
    let (mut model, mut set_back) = (Model::default(), false);
    for op in ops {
        set_back |= matches!(op, Op::SetBack(_));
        step(bench, &mut model, &op).await;
        for (key, id) in &model.ids {
            let stored = bench.show(*id).await.unwrap();
            let Some(row) = model.rows.get_mut(key) else {
                assert!(stored.is_none(), "{op:?}");
                continue;
            };
            let stored = stored.unwrap();
            // How due times move with a clock that is set back has a test of its own, in `time`.
            if set_back && matches!(op, Op::Live(_) | Op::Reopen) {
                adopt_due(&mut row.claim.state, &stored.claim.state);
            }
            assert_eq!(stored.claim, row.claim, "{op:?} on {:?}", KEYS[*key]);
            assert_eq!(
                (&stored.result, stored.stops),
                (&row.result, row.stops),
                "{op:?} on {:?}",
                KEYS[*key]
            );
            let work = bench.work(*id).await.unwrap().unwrap();
            assert_eq!(work.payload, row.payload, "{op:?} on {:?}", KEYS[*key]);
            let known: Vec<_> = work.steps.iter().map(|s| (s.id, s.outcome)).collect();
            assert_eq!(known, row.steps.iter().map(|s| (s.0, s.2)).collect::<Vec<_>>(), "{op:?}");
        }
    }
}

async fn step(bench: &mut Bench, model: &mut Model, op: &Op) {
    let (now, boot) = (bench.now(), bench.boot());
    match op {
        Op::Claim { key, who, record, payload, correction } => {
            let Some(call) = call(model, bench, (*key, *who, *record, *payload, *correction)) else { return };
            let claimed = bench.ask(call.clone()).await;
            model.ids.insert(*key, claimed.id);
            let decision = model.decide(*key, claimed.id, &call, now, boot);
            assert_eq!(claimed.decision, decision, "{op:?}");
            let fence = model.rows[key].claim.fence();
            let token = matches!(decision, Decision::Run(_)).then(|| bench.secret().token(claimed.id, fence));
            assert_eq!(claimed.token, token, "{op:?}");
            if let Some(token) = token {
                model.tokens.entry(*key).or_default().push(token);
            }
        }
        Op::Finish { key, token, call } => {
            let Some(token) = model.token(*key, *token) else { return };
            let (id, fence) = bench.secret().read_token(token.expose()).unwrap();
            let result = Some(format!("\"{}.{}\"", fence.attempt, fence.generation));
            let actor = "token:crm".to_owned();
            let call = FinishCall { id, fence, call: call.clone(), jitter: Jitter::NONE, result, actor };
            let expected = model.finish(*key, &call, now);
            assert_eq!(bench.finish(call).await.unwrap().map(|(answer, _)| answer), expected, "{op:?}");
        }
        Op::Act { key, act } => {
            let Some(row) = model.rows.get_mut(key) else { return };
            let expected =
                reset::act(&row.claim, act, &Policies.policy(WS, &automation(KEYS[*key].0)), now, boot);
            match (bench.person(ours(row.claim.id), act.clone()).await, expected) {
                (Acted::Written(view), Ok(mut claim)) => {
                    // Whoever was at work is not any more; what was on its way is unknown.
                    if matches!((&row.claim.state, &claim.state), (State::Processing(_), State::Error { .. }))
                    {
                        for step in row.steps.iter_mut().filter(|s| s.2 == StepOutcome::InFlight) {
                            step.2 = StepOutcome::Unknown;
                            claim.progress.unknown = true;
                        }
                    }
                    assert_eq!(view.claim, claim);
                    row.put(claim, None);
                }
                (Acted::Refused(told), Err(refusal)) => assert_eq!(told, refusal),
                (told, expected) => panic!("{op:?}: {told:?}, expected {expected:?}"),
            }
        }
        Op::Begin { key, token } => {
            let Some(token) = model.token(*key, *token) else { return };
            let (id, fence) = bench.secret().read_token(token.expose()).unwrap();
            let (step, idempotency_key, target) =
                ("mail".into(), "og-1".into(), "POST https://mail.test".into());
            let begun =
                bench.begin_step(StepBegin { id, fence, step, idempotency_key, target }).await.unwrap();
            let row = model.rows.get_mut(key);
            let row =
                row.filter(|r| r.claim.fence() == fence && matches!(r.claim.state, State::Processing(_)));
            assert_eq!(begun.is_some(), row.is_some(), "{op:?}");
            if let (Some(row), Some(call)) = (row, begun) {
                if let State::Processing(lease) = &mut row.claim.state {
                    lease.renewed = lease.renewed.max(now.lease);
                }
                row.steps.push((call, fence, StepOutcome::InFlight));
            }
        }
        Op::End { key, call, outcome } => {
            let Some(row) = model.rows.get(key) else { return };
            let (Some((number, fence, _)), id) = (row.steps.get(*call).copied(), ours(row.claim.id)) else {
                return;
            };
            let end = StepEnd {
                id,
                fence,
                call: number,
                outcome: *outcome,
                status: None,
                answer: None,
                note: None,
            };
            let expected = model.end(*key, *call, *outcome, now);
            assert_eq!(Some(bench.end_step(end).await.unwrap()), expected, "{op:?}");
        }
        Op::Live(secs) => bench.live(Duration::from_secs(*secs)).await,
        Op::Jump(secs) => bench.clock.advance(Duration::from_secs(*secs)),
        Op::SetBack(secs) => bench.clock.set_wall(now.wall.before(Duration::from_secs(*secs))),
        Op::Pause(on) => {
            bench.set_paused(WS, automation("welcome"), *on, "r".into(), "mia".into()).await.unwrap();
            model.paused = *on;
        }
        Op::Reopen => {
            bench.reopen().await;
            assert_eq!(bench.now(), now, "a restart takes no live time");
            if bench.boot().node == boot.node {
                assert_eq!(bench.boot(), Boot { start: boot.start + 1, ..boot });
            } else {
                model.moved();
            }
        }
        Op::Reap => {
            bench.reap(100).await.unwrap();
            model.reap(now);
        }
    }
}

type Asked = (usize, Who, Option<usize>, Option<bool>, bool);

/// `None`: the runner only takes up what it found.
fn call(model: &Model, bench: &Bench, (key, who, record, payload, correction): Asked) -> Option<ClaimCall> {
    let (of, name) = KEYS[key];
    let mut call = caller(name).of(of);
    match who {
        Who::Caller(Some(n)) => call = call.under_run(&format!("run{n}")),
        Who::Caller(None) => {}
        Who::Queue => call = call.queued(),
        Who::Runner => return model.rows.get(&key).map(|row| runner(ours(row.claim.id), bench.boot())),
    }
    if let Some(n) = record {
        call = call.on(&format!("crm:{n}"));
    }
    if let Some(other) = payload {
        call = call.with(if other { "b" } else { "a" });
    }
    call.request.correction = correction;
    Some(call)
}

#[test]
fn random_calls_leave_the_store_as_the_core_says() {
    let config = Config {
        cases: option_env!("ONCEGATE_TEST_CASES").map_or(32, |n| n.parse().unwrap()),
        max_shrink_iters: 400,
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    TestRunner::new(config)
        .run(&ops(), |ops| {
            for mut bench in runtime.block_on(reopened_benches()) {
                runtime.block_on(play(&mut bench, ops.clone()));
            }
            Ok(())
        })
        .unwrap();
}
