//! Notices: what is noticed, told to the caller, counted, bounded and dismissed.

use oncegate_core::limits;
use oncegate_core::notice::NoticeKind;
use oncegate_store::api::ClaimCall;
use oncegate_store::notices::{NoticeDismissed, NoticeFilter, NoticeRow};

use super::*;

impl Bench {
    async fn noticed(&self, workspace: Workspace) -> Vec<NoticeRow> {
        let filter = NoticeFilter { limit: limits::PAGE_ROWS_MAX, ..NoticeFilter::default() };
        self.notices(workspace, filter).await.unwrap().rows
    }

    /// `kind subject count` of each, newest first.
    async fn noticed_words(&self) -> Vec<String> {
        let rows = self.noticed(WS).await;
        rows.iter().map(|n| format!("{} {} {}", n.kind.as_str(), n.subject, n.count)).collect()
    }

    async fn put_away(&self, id: i64) -> NoticeDismissed {
        self.dismiss_notice(WS, id, None, "seen".into(), "mia".into()).await.unwrap()
    }

    async fn ends_done(&self, call: ClaimCall) {
        let claimed = self.ask(call).await;
        self.say(&claimed.token.unwrap(), Call::Done).await;
    }
}

#[tokio::test]
async fn a_run_id_of_a_claim_that_ended_over_an_hour_ago_is_told_at_its_first_claim_and_noticed_once() {
    for bench in benches().await {
        bench.ends_done(caller("k1").under_run("default")).await;
        bench.live(HOUR).await;
        let on_time = bench.ask(caller("k2").under_run("default")).await;
        assert_eq!(on_time.note, None, "an hour is not over an hour");
        bench.live(MINUTE).await;
        for (n, key) in (1..).zip(["k3", "k4"]) {
            let first = bench.ask(caller(key).under_run("default")).await;
            assert_eq!(words(&first.decision), "run first");
            let note = first.note.unwrap();
            assert!(note.contains("run_id looks constant"), "{note}");
            assert!(note.contains("execution id + node + item index"), "{note}");
            assert_eq!(bench.noticed_words().await, [format!("constant_run_id welcome {n}")]);
        }
        // It counts as absent.
        let again = bench.ask(caller("k3").under_run("default")).await;
        assert_eq!(words(&again.decision), "stop in_progress");
        // A run id that names a run is none of this.
        let other = bench.ask(caller("k5").under_run("exec-7:0")).await;
        assert_eq!(other.note, None);
        assert_eq!(bench.noticed_words().await, ["constant_run_id welcome 3"]);
    }
}

#[tokio::test]
async fn a_call_that_looks_again_while_it_waits_is_noticed_once() {
    for bench in benches().await {
        bench.ends_done(caller("k1").under_run("default")).await;
        bench.live(HOUR + MINUTE).await;
        bench.ask(caller("k2")).await;
        for again in [false, true, true] {
            let call = ClaimCall { again, ..caller("k2").under_run("default") };
            assert!(bench.ask(call).await.note.is_some());
        }
        assert_eq!(bench.noticed_words().await, ["constant_run_id welcome 1"]);
    }
}

#[tokio::test]
async fn a_new_automation_is_announced_with_the_name_that_may_have_been_meant() {
    for bench in benches().await {
        let declared = bench.ask(caller("k")).await;
        assert_eq!(declared.note, None, "declared names are no news");
        let far = bench.ask(caller("k").of("invoice")).await;
        assert_eq!(far.note, None);
        let typo = bench.ask(caller("k").of("wellcome")).await;
        let note = typo.note.unwrap();
        assert!(note.contains("`wellcome`") && note.contains("`welcome`"), "{note}");
        assert_eq!(bench.ask(caller("k2").of("wellcome")).await.note, None, "told once");
        let typo = bench.ask(caller("k").of("invioce")).await;
        assert!(typo.note.unwrap().contains("`invoice`"), "seen names count like declared ones");
        let made = ["new_automation invioce 1", "new_automation wellcome 1", "new_automation invoice 1"];
        assert_eq!(bench.noticed_words().await, made);
        let details: Vec<_> = bench.noticed(WS).await.into_iter().map(|n| n.detail).collect();
        assert!(
            details[1].contains("`welcome`") && details[2].contains("no known name is near"),
            "{details:?}"
        );
    }
}

#[tokio::test]
async fn the_names_of_another_workspace_are_neither_told_nor_listed() {
    for bench in benches().await {
        let other = Workspace(2);
        bench.add_workspace(other).await;
        bench.ask(caller("k").of("secret-client")).await;
        let note = bench.ask(caller("k").of("secret-cleint").within(other)).await.note;
        assert_eq!(note, None);
        let theirs = bench.noticed(other).await;
        assert_eq!(theirs.len(), 1);
        assert_eq!(bench.noticed_words().await, ["new_automation secret-client 1"]);
        assert_eq!(bench.put_away(theirs[0].id).await, NoticeDismissed::NotFound);
    }
}

#[tokio::test]
async fn callers_that_never_call_done_are_noticed_when_their_stale_claims_are_no_longer_retried() {
    for bench in benches().await {
        for n in 0..limits::STALE_STREAK_MAX {
            assert_eq!(bench.noticed_words().await, [""; 0], "{n}");
            let key = format!("k{n}");
            bench.ask(caller(&key)).await;
            bench.live(TTL).await;
            assert_eq!(bench.answer(caller(&key)).await, "run stale_retry");
        }
        assert_eq!(bench.noticed_words().await, ["callers_never_call_done welcome 1"]);
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_is_noticed() {
    for bench in benches().await {
        bench.live(HOUR).await;
        bench.clock.set_wall(MORNING);
        bench.tick().await.unwrap();
        let seen = bench.noticed(WS).await;
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].kind, seen[0].subject.as_str()), (NoticeKind::ClockSetBack, "clock"));
        assert!(seen[0].detail.contains("60 min"), "{}", seen[0].detail);
    }
}

#[tokio::test]
async fn notices_are_bounded_and_the_oldest_are_counted_together() {
    for bench in benches().await {
        let (max, more) = (limits::NOTICES_OF_A_KIND_MAX, 7);
        for n in 0..max + more {
            // Names that are near to none, so that only their number matters.
            bench.ask(caller("k").of(&format!("{n}"))).await;
        }
        let rows = bench.noticed(WS).await;
        assert_eq!(rows.len(), max as usize + 1);
        let merged: Vec<_> = rows.iter().filter(|n| n.subject == "*").collect();
        assert_eq!((merged.len(), merged[0].count), (1, u64::from(more)));
        assert!(rows.iter().all(|n| n.subject != "6") && rows.iter().any(|n| n.subject == "7"));
        // Dismissed ones make room first.
        let newest = rows.iter().find(|n| n.subject == format!("{}", max + more - 1)).unwrap();
        bench.put_away(newest.id).await;
        bench.ask(caller("k").of("one more")).await;
        let rows = bench.noticed(WS).await;
        assert!(rows.iter().any(|n| n.subject == "7") && rows.iter().any(|n| n.subject == "one more"));
    }
}

#[tokio::test]
async fn a_dismissed_notice_stays_so_while_it_goes_on_and_comes_back_when_it_was_over() {
    for bench in benches().await {
        bench.ends_done(caller("k0").under_run("default")).await;
        bench.live(HOUR + MINUTE).await;
        bench.ask(caller("k1").under_run("default")).await;
        let id = bench.noticed(WS).await[0].id;
        assert_eq!(bench.put_away(id).await, NoticeDismissed::Written);
        assert_eq!(bench.put_away(id).await, NoticeDismissed::Already);
        let audit = bench.audit(WS, None, 1).await.unwrap().rows.remove(0);
        assert_eq!((audit.action.as_str(), audit.actor.as_str()), ("dismiss_notice", "mia"));
        for n in 2..4 {
            bench.clock.advance(limits::NOTICE_IS_OVER_AFTER);
            bench.ask(caller(&format!("k{n}")).under_run("default")).await;
            assert!(bench.noticed(WS).await.is_empty(), "seen within the week");
        }
        let all = NoticeFilter { dismissed: true, limit: 10, ..NoticeFilter::default() };
        assert_eq!(bench.notices(WS, all).await.unwrap().rows[0].count, 3);
        bench.clock.advance(limits::NOTICE_IS_OVER_AFTER + SECOND);
        bench.ask(caller("k5").under_run("default")).await;
        let back = bench.noticed(WS).await;
        assert_eq!((back.len(), back[0].count, back[0].dismissed_at), (1, 4, None));
    }
}
