//! Whatever people, callers, parents, hooks and acts on many claims do in whatever order: an effect that is not done
//! waits by itself, is somebody's at this moment, or stands in a list; and one that is done does not run again.

use oncegate_core::claim::{Lease, Liveness, State};
use oncegate_core::decide::{Decision, RunReason};
use oncegate_core::inbox::{InboxList, list_of};
use oncegate_store::bulk::{BulkAct, BulkCall, Bulked, Undone};
use oncegate_store::people::{Write, Written, Wrote};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;

const KEYS: [(&str, &str); 5] =
    [("welcome", "k1"), ("welcome", "k2"), ("hooked", "k3"), ("hooked", "k4"), ("at_claim", "k5")];

#[derive(Clone, Debug)]
enum Op {
    Claim { key: usize, who: usize, record: Option<usize>, parent: Option<usize>, payload: Option<bool> },
    Finish { key: usize, back: usize, call: Call },
    Act { key: usize, act: Act },
    Bulk { of: usize, act: BulkAct, steps: u32 },
    Undo { back: usize },
    Step,
    Nudge,
    Live(u64),
    Pause { of: usize, on: bool },
    Reopen,
    Reap,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..KEYS.len();
    let claim = (
        key(),
        0..4usize,
        prop::option::of(0..2usize),
        prop::option::weighted(0.3, key()),
        prop::option::weighted(0.3, any::<bool>()),
    )
        .prop_map(|(key, who, record, parent, payload)| Op::Claim { key, who, record, parent, payload });
    let defer = Call::Defer { until: MORNING.after(HOUR), note: "429".into() };
    let calls = vec![Call::Done, failed(), failed_for_good(), Call::Heartbeat, Call::HandBack, defer];
    let named = |name: &str| Act::Reset { run_now: true, confirm_holder: Some(name.into()), verified: true };
    let start = Act::FromStart {
        run_now: true,
        confirm_holder: Some("attempt-1".into()),
        verified: true,
        confirm_sent: vec![],
        new_keys: true,
    };
    let marked = Act::MarkError { note: "n".into() };
    let acts =
        vec![reset(), named("attempt-1"), named("attempt-2"), start, marked, Act::MarkDone, Act::Dismiss];
    let tag = "dup".to_owned();
    let bulks = vec![
        BulkAct::Reset { verified: false },
        BulkAct::Reset { verified: true },
        BulkAct::RunNow,
        BulkAct::MarkError { tag: tag.clone() },
        BulkAct::MarkDone,
        BulkAct::Dismiss,
        BulkAct::Tag { tag: Some(tag) },
    ];
    let op = prop_oneof![
        12 => claim,
        7 => (key(), 0..2usize, prop::sample::select(calls))
            .prop_map(|(key, back, call)| Op::Finish { key, back, call }),
        3 => (key(), prop::sample::select(acts)).prop_map(|(key, act)| Op::Act { key, act }),
        4 => (key(), prop::sample::select(bulks), 0..3u32)
            .prop_map(|(of, act, steps)| Op::Bulk { of, act, steps }),
        3 => (0..3usize).prop_map(|back| Op::Undo { back }),
        2 => Just(Op::Step),
        3 => Just(Op::Nudge),
        5 => prop::sample::select(vec![6u64, 31, 300, 900, 3_700]).prop_map(Op::Live),
        2 => (key(), any::<bool>()).prop_map(|(of, on)| Op::Pause { of, on }),
        1 => Just(Op::Reopen),
        1 => Just(Op::Reap),
    ];
    prop::collection::vec(op, 1..60)
}

#[derive(Default)]
struct Seen {
    ids: std::collections::BTreeMap<usize, ClaimRef>,
    tokens: std::collections::BTreeMap<usize, Vec<(ClaimRef, oncegate_core::token::Fence)>>,
    bulks: Vec<i64>,
}

impl Seen {
    fn token(&self, key: usize, back: usize) -> Option<(ClaimRef, oncegate_core::token::Fence)> {
        self.tokens.get(&key)?.iter().rev().nth(back).copied()
    }
}

async fn begin(bench: &Bench, of: usize, act: &BulkAct) -> i64 {
    let filter = Filter { automation: Some(automation(KEYS[of].0)), ..Filter::default() };
    let expect = bench.count_bulk(WS, act.clone(), filter.clone()).await.unwrap().matched;
    let (reason, actor) = ("a test".into(), "mia".into());
    let told = "{}".into();
    let call = BulkCall { workspace: WS, act: act.clone(), filter, told, expect, reason, actor, token_id: 1 };
    match bench.write(Write::Bulk(call), None).await.unwrap() {
        Wrote::Now(Written::Bulk(Bulked::Begun(row)), _) => row.id,
        other => panic!("{other:?}"),
    }
}

fn by_runner(view: &Option<ClaimView>) -> bool {
    let state = view.as_ref().map(|view| &view.claim.state);
    matches!(state, Some(State::Processing(lease)) if matches!(lease.holder, Holder::Runner { .. }))
}

async fn step(bench: &mut Bench, seen: &mut Seen, op: &Op) {
    match op {
        Op::Claim { key, who, record, parent, payload } => {
            let (of, name) = KEYS[*key];
            let mut call = match (who, seen.ids.get(key)) {
                // It takes up only what it finds due.
                (0, Some(id)) if bench.due_ids().await.contains(id) => runner(*id, bench.boot()),
                (0, _) => return,
                (1, _) => caller(name).of(of).queued(),
                (2, _) => caller(name).of(of).under_run(&format!("run of {name}")),
                _ => caller(name).of(of),
            };
            if let (Some(n), Target::Key { .. }) = (record, &call.target) {
                call = call.on(&format!("crm:{n}"));
            }
            if let (Some(other), Target::Key { .. }) = (payload, &call.target) {
                call = call.with(if *other { "b" } else { "a" });
            }
            if *who >= 2 {
                call.parent = parent.filter(|p| p != key).and_then(|p| seen.token(p, 0));
            }
            let before = match seen.ids.get(key) {
                Some(id) => bench.show(*id).await.unwrap(),
                None => None,
            };
            let Some(claimed) = bench.claim(call).await.unwrap() else { return };
            seen.ids.insert(*key, claimed.id);
            if let Decision::Run(reason) = claimed.decision {
                if reason != RunReason::SameRun {
                    let done = before.is_some_and(|v| matches!(v.claim.state, State::Done { .. }));
                    assert!(!done, "what is done runs again: {op:?}");
                }
                let fence = claimed.view.unwrap().claim.fence();
                seen.tokens.entry(*key).or_default().push((claimed.id, fence));
            }
        }
        Op::Finish { key, back, call } => {
            let Some((id, fence)) = seen.token(*key, *back) else { return };
            // Only our own runner says these.
            let ours = matches!(call, Call::Defer { .. } | Call::HandBack);
            if ours && !by_runner(&bench.show(id).await.unwrap()) {
                return;
            }
            let (jitter, call, actor) = (Jitter::NONE, call.clone(), "token:crm".into());
            bench.finish(FinishCall { id, fence, call, jitter, result: None, actor }).await.unwrap();
        }
        Op::Act { key, act } => {
            let Some(id) = seen.ids.get(key) else { return };
            bench.person(*id, act.clone()).await;
        }
        Op::Bulk { of, act, steps } => {
            seen.bulks.push(begin(bench, *of, act).await);
            for _ in 0..*steps {
                bench.step_bulk(1).await.unwrap();
            }
        }
        Op::Undo { back } => {
            let Some(id) = seen.bulks.iter().rev().nth(*back) else { return };
            let (reason, actor) = ("wrong list".into(), "mia".into());
            let write = Write::UndoBulk { workspace: WS, id: *id, reason, actor, token_id: 1 };
            match bench.write(write, None).await.unwrap() {
                Wrote::Now(Written::UndoBulk(Undone::Begun(_) | Undone::Before(_) | Undone::Running), _) => {}
                other => panic!("{other:?}"),
            }
        }
        Op::Step => while bench.step_bulk(2).await.unwrap().is_some() {},
        Op::Nudge => {
            for due in bench.due_nudges(9).await.unwrap() {
                bench.nudge(due.id).await.unwrap();
            }
        }
        Op::Live(secs) => bench.live(Duration::from_secs(*secs)).await,
        Op::Pause { of, on } => {
            let name = automation(KEYS[*of].0);
            bench.set_paused(WS, name, *on, "r".into(), "mia".into()).await.unwrap();
        }
        Op::Reopen => bench.reopen().await,
        Op::Reap => {
            bench.reap(100).await.unwrap();
        }
    }
}

/// Whether somebody, or the store by itself, is about to go on with it.
fn is_looked_after(bench: &Bench, view: &ClaimView) -> bool {
    let (claim, now) = (&view.claim, bench.now());
    let hooked = Policies.policy(WS, &view.automation).retrigger;
    claim.dismissed
        || list_of(claim, now, bench.boot()).is_some()
        || (claim.nudge.is_some() && hooked && !claim.flow)
        || match &claim.state {
            State::Done { .. } => true,
            State::None { due } => claim.flow && due.is_some(),
            State::Processing(lease) => match lease.liveness(now, bench.boot()) {
                Liveness::Fresh { .. } => lease.deferred_until.is_none() || claim.flow,
                Liveness::Orphaned => claim.flow,
                Liveness::Stale => false,
            },
            State::Error { .. } => false,
        }
}

async fn judge(bench: &Bench, seen: &Seen, op: &Op) {
    let mut views = Vec::new();
    for id in seen.ids.values() {
        views.extend(bench.show(*id).await.unwrap());
    }
    for view in &views {
        let both = view.claim.nudge.is_some() && view.claim.flow;
        assert!(!both, "its tool is called for what our own steps do, after {op:?}: {:?}", view.claim);
        assert!(is_looked_after(bench, view), "nobody goes on with it after {op:?}: {:?}", view.claim);
    }
    let counts = bench.counts(WS, None).await.unwrap();
    for list in InboxList::ALL {
        let shown = views.iter().filter(|v| v.inbox == Some(list)).count() as u64;
        assert_eq!(counts.iter().find(|(l, _)| *l == list).unwrap().1, shown, "{list:?} after {op:?}");
    }
    // One record, one line of parent and child at a time.
    let live = |view: &ClaimView| -> Option<Lease> {
        let State::Processing(lease) = &view.claim.state else { return None };
        let fresh = matches!(lease.liveness(bench.now(), bench.boot()), Liveness::Fresh { .. });
        (fresh && lease.holds_record && view.claim.record.is_some()).then(|| lease.clone())
    };
    for a in &views {
        for b in views.iter().filter(|b| b.claim.record == a.claim.record && b.claim.id != a.claim.id) {
            let (Some(of_a), Some(of_b)) = (live(a), live(b)) else { continue };
            let shares = |lease: &Lease| lease.parent.as_ref().is_some_and(|p| p.shares_record);
            assert!(shares(&of_a) || shares(&of_b), "two at {:?} after {op:?}", a.claim.record);
        }
    }
}

#[test]
fn what_is_not_done_is_looked_after_and_what_is_done_stays_done() {
    let config = Config {
        cases: option_env!("ONCEGATE_TEST_CASES").map_or(24, |n| n.parse().unwrap()),
        max_shrink_iters: 400,
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    TestRunner::new(config)
        .run(&ops(), |ops| {
            for mut bench in runtime.block_on(reopened_benches()) {
                runtime.block_on(async {
                    let mut seen = Seen::default();
                    for op in &ops {
                        step(&mut bench, &mut seen, op).await;
                        judge(&bench, &seen, op).await;
                    }
                });
            }
            Ok(())
        })
        .unwrap();
}
