//! How many events of one sender run within a time, whoever brings them and to whichever node.

use oncegate_core::decide::StopReason;
use oncegate_core::notice::NoticeKind;
use oncegate_core::policy::LoopLimit;
use oncegate_core::webhook::{Aside, Sender};
use oncegate_store::api::{AdmitCall, Admitted, Release};
use oncegate_store::notices::NoticeFilter;
use oncegate_store::person::{Forget, Forgotten};

use super::*;

const LIMIT: LoopLimit = LoopLimit { runs: 2, within: Duration::from_secs(600) };

pub(crate) fn sender(number: u8) -> Option<Sender> {
    Some(Sender { hash: [number; 16], shown: format!("sender {number}"), limit: LIMIT })
}

/// An event of a sender under a key.
fn from(number: u8, name: &str) -> AdmitCall {
    let event = AdmitEvent { sender: sender(number), ..plain_event(Ok(key(name)), fingerprint("a"), "{}") };
    AdmitCall {
        workspace: WS,
        source: "mails".into(),
        automation: automation("welcome"),
        headers: "[]".into(),
        body: name.as_bytes().to_vec(),
        events: vec![event],
        releases: None,
        actor: "source:mails".into(),
    }
}

impl Bench {
    async fn came(&self, sender: u8, name: &str) -> Admitted {
        self.admit(from(sender, name)).await.unwrap().remove(0)
    }

    /// One is accepted, or set aside.
    async fn is_accepted(&self, sender: u8, name: &str) -> bool {
        match self.came(sender, name).await {
            Admitted::Accepted { .. } => true,
            Admitted::SetAside { kind: Aside::Sender, .. } => false,
            other => panic!("{name}: {other:?}"),
        }
    }

    async fn parked_bodies(&self) -> Vec<i64> {
        let rows = self.parked_deliveries(WS, None, None, 100).await.unwrap().rows;
        rows.iter().map(|row| row.id).collect()
    }

    /// What people were told of senders, and how often.
    async fn told_of_senders(&self) -> Option<(u64, String)> {
        let filter = NoticeFilter { limit: 100, ..NoticeFilter::default() };
        let rows = self.notices(WS, filter).await.unwrap().rows;
        let row = rows.into_iter().find(|row| row.kind == NoticeKind::SenderLimit)?;
        Some((row.count, row.detail))
    }
}

#[tokio::test]
async fn more_of_one_sender_than_its_source_lets_run_are_set_aside_until_it_gets_less() {
    for mut bench in reopened_benches().await {
        assert!(bench.is_accepted(1, "a").await);
        // What is known by its key counts nothing, before the limit and beyond it.
        for _ in 0..5 {
            assert!(matches!(bench.came(1, "a").await, Admitted::Stopped { .. }));
        }
        bench.clock.set_wall(MORNING.after(MINUTE * 3));
        assert!(bench.is_accepted(1, "b").await);
        bench.reopen().await;
        assert_eq!(bench.told_of_senders().await, None);
        for name in ["c", "d", "c"] {
            assert!(!bench.is_accepted(1, name).await);
        }
        let stopped = bench.came(1, "b").await;
        assert!(matches!(stopped, Admitted::Stopped { reason: StopReason::InProgress, .. }), "{stopped:?}");
        assert!(bench.is_accepted(2, "e").await, "another sender is not held up");

        let (times, words) = bench.told_of_senders().await.unwrap();
        assert_eq!(times, 1, "told once");
        assert!(words.contains("sender 1") && words.contains("source `mails`"), "{words}");
        let parked = bench.parked_bodies().await;
        assert_eq!(parked.len(), 2, "the same again is counted on its row");
        let row = bench.delivery(WS, parked[1]).await.unwrap().unwrap();
        assert_eq!((row.verdict.as_str(), row.body.as_deref(), row.repeats), ("sender", Some(&b"c"[..]), 1));
        assert!(row.reason.unwrap().contains("more than 2 events of sender 1 within 10 min"));
        assert_eq!(bench.find(WS, automation("welcome"), key("c")).await.unwrap().map(|_| ()), Some(()));
        assert_eq!(bench.all(Filter { limit: 100, ..Filter::default() }).await.len(), 3, "it took no key");

        // The first of them was ten minutes ago: one more runs.
        bench.clock.set_wall(MORNING.after(MINUTE * 10));
        assert!(bench.is_accepted(1, "f").await);
        assert!(!bench.is_accepted(1, "g").await);
        assert_eq!(bench.told_of_senders().await.unwrap().0, 2, "it began anew");
    }
}

#[tokio::test]
async fn what_a_person_releases_runs_and_lets_its_sender_begin_anew() {
    for bench in benches().await {
        for name in ["a", "b"] {
            assert!(bench.is_accepted(1, name).await);
        }
        let Admitted::SetAside { delivery, .. } = bench.came(1, "c").await else { panic!("it ran") };
        let release = Release { delivery, reason: "a real one".into() };
        let released = || AdmitCall { releases: Some(release.clone()), ..from(1, "c") };
        let answers = bench.admit(released()).await.unwrap();
        assert!(matches!(answers[..], [Admitted::Accepted { .. }]), "{answers:?}");
        assert!(bench.admit(released()).await.unwrap().is_empty(), "once");
        assert_eq!(bench.parked_bodies().await, [0_i64; 0]);
        // It counts as the first.
        assert!(bench.is_accepted(1, "d").await);
        assert!(!bench.is_accepted(1, "e").await);
    }
}

#[tokio::test]
async fn events_that_come_at_once_do_not_pass_the_limit_together() {
    for bench in benches().await {
        let mut at_once = tokio::task::JoinSet::new();
        for n in 0..24_u8 {
            let store = Arc::clone(&bench);
            at_once.spawn(
                async move { store.admit(from(1 + n % 2, &format!("k{n}"))).await.unwrap().remove(0) },
            );
        }
        let answers = at_once.join_all().await;
        let accepted = answers.iter().filter(|one| matches!(one, Admitted::Accepted { .. })).count();
        assert_eq!(accepted, 2 * LIMIT.runs as usize, "{answers:?}");
        assert_eq!(bench.parked_bodies().await.len(), 24 - accepted);
    }
}

#[tokio::test]
async fn nothing_tells_of_a_sender_longer_than_what_was_set_aside() {
    for bench in benches().await {
        for name in ["a", "b", "c"] {
            bench.came(1, name).await;
        }
        let [delivery] = bench.parked_bodies().await[..] else { panic!("one is parked") };
        let forgotten = bench.forget(WS, vec![Forget::Delivery(delivery)]).await.unwrap();
        assert_eq!((forgotten, bench.told_of_senders().await), (vec![Forgotten::Yes], None));

        for (sender, name) in [(2, "d"), (2, "e"), (2, "f")] {
            bench.came(sender, name).await;
        }
        assert!(bench.told_of_senders().await.is_some());
        bench.clock.advance(DAY * 29);
        bench.reap(1_000).await.unwrap();
        assert_eq!((bench.parked_bodies().await.len(), bench.told_of_senders().await.is_some()), (1, true));
        bench.clock.advance(DAY * 2);
        bench.reap(1_000).await.unwrap();
        assert_eq!((bench.parked_bodies().await.len(), bench.told_of_senders().await), (0, None));
    }
}
