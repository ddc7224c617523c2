//! Lists: the same answer as the core's `list_of` for every row, whole pages, filters.

use std::collections::{BTreeMap, HashSet};

use oncegate_core::claim::ProcessingState;
use oncegate_core::inbox::{InboxList, list_of};
use oncegate_core::limits;
use oncegate_store::api::{StepBegin, StepEnd, StepOutcome};

use super::*;

const AUTOMATIONS: [&str; 3] = ["welcome", "hold", "at_claim"];

/// Drives claims into random states through public calls only.
struct Storm {
    rng: Rng,
    ids: Vec<ClaimRef>,
    tokens: Vec<Token>,
}

impl Storm {
    fn random_call(&mut self) -> ClaimCall {
        let rng = &mut self.rng;
        let mut call = caller(&format!("k{}", rng.below(400))).of(AUTOMATIONS[rng.below(10).min(2)]);
        if rng.below(4) == 0 {
            call = call.on(&format!("crm:{}", rng.below(40)));
        }
        if rng.below(2) == 0 {
            call = call.with(["a", "a", "a", "b"][rng.below(4)]);
        }
        match rng.below(5) {
            0 => call.queued(),
            1 => call.under_run(&format!("run{}", rng.below(50))),
            _ => call,
        }
    }

    async fn step(&mut self, bench: &Bench) {
        let claimed = match self.rng.below(20) {
            0..8 => {
                let call = self.random_call();
                bench.claim(call).await.unwrap()
            }
            8..10 => match bench.due_ids().await.first() {
                Some(id) => bench.claim(runner(*id, bench.boot())).await.unwrap(),
                None => None,
            },
            10..14 if !self.tokens.is_empty() => {
                let token = self.tokens[self.rng.below(self.tokens.len())].clone();
                let until = bench.clock.read().wall.after(MINUTE * 10);
                let calls = [
                    Call::Done,
                    failed(),
                    failed_for_good(),
                    Call::Heartbeat,
                    Call::HandBack,
                    Call::HandOver,
                    Call::Defer { until, note: "429".into() },
                ];
                bench.say(&token, calls[self.rng.below(calls.len())].clone()).await;
                None
            }
            14..16 if !self.ids.is_empty() => {
                let id = self.ids[self.rng.below(self.ids.len())];
                let acts = [reset(), Act::MarkError { note: "n".into() }, Act::MarkDone, Act::Dismiss];
                bench.person(id, acts[self.rng.below(acts.len())].clone()).await;
                None
            }
            16 if !self.tokens.is_empty() => {
                let token = &self.tokens[self.rng.below(self.tokens.len())];
                self.send(bench, &token.clone()).await;
                None
            }
            17 => {
                bench.live(Duration::from_secs([1, 20, 120, TTL.as_secs()][self.rng.below(4)])).await;
                None
            }
            18 => {
                let hours = [1, 2, 22, 23][self.rng.below(4)];
                let wall = bench.clock.read().wall;
                let wall =
                    if self.rng.below(2) == 0 { wall.before(HOUR * hours) } else { wall.after(HOUR * hours) };
                bench.clock.set_wall(wall);
                None
            }
            _ => {
                let paused = self.rng.below(3) == 0;
                bench.set_paused(WS, automation("hold"), paused, "r".into(), "mia".into()).await.unwrap();
                None
            }
        };
        if let Some(claimed) = claimed {
            self.ids.push(claimed.id);
            self.tokens.extend(claimed.token);
        }
    }

    async fn send(&mut self, bench: &Bench, token: &Token) {
        let (id, fence) = bench.secret().read_token(token.expose()).unwrap();
        let (step, idempotency_key, target) = ("mail".into(), "og-1".into(), "POST https://mail.test".into());
        let Some(call) =
            bench.begin_step(StepBegin { id, fence, step, idempotency_key, target }).await.unwrap()
        else {
            return;
        };
        let outcome = [StepOutcome::Succeeded, StepOutcome::Failed, StepOutcome::Unknown][self.rng.below(3)];
        let end = StepEnd { id, fence, call, outcome, status: None, answer: None, note: None };
        assert!(bench.end_step(end).await.unwrap());
    }
}

#[tokio::test]
async fn every_list_holds_exactly_the_claims_that_the_core_puts_there() {
    let seed = seed();
    for mut bench in reopened_benches().await {
        let mut storm = Storm { rng: Rng(seed), ids: Vec::new(), tokens: Vec::new() };
        let mut ever = HashSet::new();
        for round in 0..8 {
            for _ in 0..150 {
                storm.step(&bench).await;
            }
            if round % 3 == 2 {
                bench.reopen().await;
            }
            let everything = bench.all(Filter { limit: 100, ..Filter::default() }).await;
            let mut expected: BTreeMap<&str, Vec<ClaimRef>> = BTreeMap::new();
            for view in &everything {
                let list = list_of(&view.claim, bench.now(), bench.boot());
                assert_eq!(view.inbox, list, "{:?}", view.claim);
                if let Some(list) = list {
                    expected.entry(list.as_str()).or_default().push(view.at());
                    ever.insert(list);
                }
            }
            let counts = bench.counts(WS, None).await.unwrap();
            assert_eq!(counts.iter().map(|(l, _)| *l).collect::<Vec<_>>(), InboxList::ALL);
            for (list, count) in counts {
                let expected = expected.remove(list.as_str()).unwrap_or_default();
                let rows = bench.all(Filter { inbox: Some(list), limit: 7, ..Filter::default() }).await;
                let found: Vec<_> = rows.iter().map(ClaimView::at).collect();
                assert_eq!(found, expected, "seed {seed}, round {round}, {}", list.as_str());
                assert_eq!(count, expected.len() as u64, "seed {seed}, round {round}, {}", list.as_str());
            }
            filters_agree(&bench, &everything).await;
        }
        assert_eq!(ever.len(), 5, "seed {seed} fills every list that claims can stand in: {ever:?}");
    }
}

async fn filters_agree(bench: &Bench, everything: &[ClaimView]) {
    use ProcessingState::{Done, Error, None as Nothing, Processing};
    for state in [Nothing, Processing, Done, Error] {
        for name in AUTOMATIONS {
            for inbox in [None, Some(InboxList::Error), Some(InboxList::Late)] {
                let filter = Filter {
                    inbox,
                    state: Some(state),
                    automation: Some(automation(name)),
                    ..Filter::default()
                };
                let found: Vec<_> =
                    bench.all(Filter { limit: 50, ..filter }).await.iter().map(|v| v.row).collect();
                let expected: Vec<_> = everything
                    .iter()
                    .filter(|v| v.claim.processing_state() == state && v.automation.as_str() == name)
                    .filter(|v| inbox.is_none() || v.inbox == inbox)
                    .map(|v| v.row)
                    .collect();
                assert_eq!(found, expected, "{state} {name} {inbox:?}");
            }
        }
    }
}

#[tokio::test]
async fn pages_have_neither_gaps_nor_duplicates_while_rows_are_added() {
    for bench in benches().await {
        let mut ids = Vec::new();
        for n in 0..23 {
            ids.push(bench.ask(caller(&format!("k{n}"))).await.id);
        }
        ids.reverse();
        for limit in [1, 5, 22, 23, 24, 500, u32::MAX] {
            let rows = bench.all(Filter { limit, ..Filter::default() }).await;
            assert_eq!(rows.iter().map(ClaimView::at).collect::<Vec<_>>(), ids, "{limit}");
        }
        let first = bench.list(WS, Filter { limit: 10, ..Filter::default() }).await.unwrap();
        bench.ask(caller("new")).await;
        let rest = bench.all(Filter { limit: 10, before: first.next, ..Filter::default() }).await;
        let read: Vec<_> = first.rows.iter().chain(&rest).map(ClaimView::at).collect();
        assert_eq!(read, ids);
        assert_eq!(
            bench.list(WS, Filter::default()).await.unwrap().rows.len(),
            1,
            "a limit of 0 still goes on"
        );
    }
}

#[tokio::test]
async fn the_audit_is_read_page_by_page_newest_first() {
    for bench in benches().await {
        for n in 0..12 {
            let paused = n % 2 == 0;
            bench.set_paused(WS, automation("welcome"), paused, format!("r{n}"), "mia".into()).await.unwrap();
        }
        let (mut reasons, mut before) = (Vec::new(), None);
        loop {
            let page = bench.audit(WS, before, 5).await.unwrap();
            reasons.extend(page.rows.into_iter().filter_map(|r| r.reason));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(reasons, (0..12).rev().map(|n| format!("r{n}")).collect::<Vec<_>>());
    }
}

/// One millisecond on either side of each border by which time alone moves a claim into a list.
#[tokio::test]
async fn lists_and_the_core_agree_on_the_last_millisecond() {
    let ms = Duration::from_millis(1);
    for bench in benches().await {
        let stuck = async || {
            let view = bench.all(Filter { limit: 1, ..Filter::default() }).await.pop().unwrap();
            let listed =
                bench.all(Filter { inbox: Some(InboxList::Stuck), limit: 1, ..Filter::default() }).await;
            assert_eq!(view.inbox == Some(InboxList::Stuck), listed.len() == 1);
            listed.len() == 1
        };
        bench.ask(caller("k")).await;
        for (ahead, shown) in [(limits::CLOCK_SLACK, false), (limits::CLOCK_SLACK + ms, true)] {
            bench.clock.set_wall(MORNING.before(ahead));
            assert_eq!(stuck().await, shown, "started {ahead:?} ahead of the clock");
        }
        bench.clock.set_wall(MORNING);
        bench.live(TTL - ms).await;
        assert!(!stuck().await);
        bench.live(ms).await;
        assert!(stuck().await);
    }
}
