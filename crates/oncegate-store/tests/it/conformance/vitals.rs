//! The numbers for those who watch a store are those of its lists, over all workspaces.

use oncegate_core::inbox::InboxList;

use super::*;

const THEIRS: Workspace = Workspace(2);

#[tokio::test]
async fn the_vitals_add_up_what_the_lists_of_all_workspaces_hold() {
    for bench in benches().await {
        bench.add_workspace(THEIRS).await;
        let empty = bench.vitals().await.unwrap();
        assert!(empty.inbox.iter().all(|s| s.count == 0 && s.since.is_none()), "{empty:?}");
        assert_eq!((empty.due, empty.due_since), (0, None));

        // Stuck and in error in both, a mismatch and something parked in one; two wait for the runner since a minute.
        for workspace in [WS, THEIRS] {
            bench.ask(caller("stuck").within(workspace)).await;
            let failed = bench.ask(caller("error").within(workspace)).await;
            bench.say(&failed.token.unwrap(), failed_for_good()).await;
        }
        let failed_at = bench.now().wall;
        bench.ask(caller("two payloads").with("a").of("at_claim")).await;
        bench.ask(caller("two payloads").with("b").of("at_claim")).await;
        bench.set_paused(WS, automation("paused"), true, "r".into(), "mia".into()).await.unwrap();
        bench.ask(caller("parked").of("paused")).await;
        bench.live(TTL).await;
        bench.ask(caller("due").queued()).await;
        bench.ask(caller("due").within(THEIRS).queued()).await;
        bench.live(MINUTE).await;

        let vitals = bench.vitals().await.unwrap();
        for list in InboxList::ALL {
            let mut sum = 0;
            for workspace in [WS, THEIRS] {
                let counts = bench.counts(workspace, None).await.unwrap();
                sum += counts.iter().find(|(l, _)| *l == list).unwrap().1;
            }
            let standing = vitals.inbox.iter().find(|s| s.list == list).unwrap();
            assert_eq!(standing.count, sum, "{list:?}");
            assert_eq!(standing.since.is_some(), sum > 0, "{list:?}");
        }
        let of = |list| vitals.inbox.iter().find(|s| s.list == list).unwrap();
        assert_eq!((of(InboxList::Stuck).count, of(InboxList::Error).count), (2, 2));
        assert_eq!((of(InboxList::Mismatch).count, of(InboxList::Parked).count), (1, 1));
        assert_eq!(of(InboxList::Error).since, Some(failed_at));
        assert_eq!(vitals.age(of(InboxList::Error).since), TTL + MINUTE);
        assert_eq!(vitals.due as usize, bench.due_ids().await.len());
        assert_eq!((vitals.due, vitals.age(vitals.due_since)), (2, MINUTE));
        assert_eq!(vitals.age(vitals.ticked_at), Duration::ZERO);
        // A server's disk is its own; what is not known is not said to be nothing.
        assert!(vitals.free_bytes.is_none_or(|free| free > 0), "{vitals:?}");
        assert!(!vitals.clock_is_doubtful && vitals.database_bytes > 0, "{vitals:?}");

        bench.clock.set_wall(bench.now().wall.after(DAY * 400));
        assert!(bench.vitals().await.unwrap().clock_is_doubtful);
    }
}

#[tokio::test]
async fn a_probe_leaves_nothing_that_anybody_sees() {
    for mut bench in reopened_benches().await {
        // Once, and written back to the file: so much room one takes.
        bench.probe().await.unwrap();
        bench.reopen().await;
        let before = bench.vitals().await.unwrap();
        for _ in 0..20 {
            bench.probe().await.unwrap();
        }
        bench.reopen().await;
        let after = bench.vitals().await.unwrap();
        assert_eq!(after.inbox, before.inbox);
        assert!(
            after.database_bytes <= before.database_bytes + 16_384,
            "its pages are used again: {after:?}"
        );
        assert!(bench.audit(WS, None, 10).await.unwrap().rows.is_empty());
    }
}
