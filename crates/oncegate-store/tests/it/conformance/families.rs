//! Claims whose holder works for another's: they share its record, end no later, and are void with it.

use oncegate_core::claim::State;
use oncegate_core::inbox::InboxList;

use super::*;

impl Bench {
    async fn parent(&self) -> Claimed {
        self.ask(caller("p").on("crm:1")).await
    }

    async fn beat(&self, claimed: &Claimed) -> Answer {
        self.say(claimed.token.as_ref().unwrap(), Call::Heartbeat).await
    }

    async fn done(&self, claimed: &Claimed) -> Answer {
        self.say(claimed.token.as_ref().unwrap(), Call::Done).await
    }
}

#[tokio::test]
async fn a_child_shares_its_parents_record_and_strangers_and_siblings_do_not() {
    for bench in benches().await {
        let parent = bench.parent().await;
        let child = bench.ask(caller("c").of("mail").under(&parent)).await;
        assert_eq!(words(&child.decision), "run first");
        let view = bench.seen(child.id).await;
        assert_eq!(view.claim.record, Some(record("crm:1")), "its parent's, as it names none");
        assert_eq!(bench.answer(caller("x").of("mail").on("crm:1")).await, "stop record_busy");
        assert_eq!(bench.answer(caller("s").of("mail").under(&parent)).await, "stop record_busy");
        // A run that was called by the called one.
        let grandchild = bench.ask(caller("g").of("chat").under(&child)).await;
        assert_eq!(words(&grandchild.decision), "run first");
        // With another record, or none at all, there is nothing to share.
        assert_eq!(bench.answer(caller("o").of("mail").on("crm:2").under(&parent)).await, "run first");
        assert_eq!(
            bench.answer(caller("o2").of("mail").on("crm:2").under(&parent)).await,
            "stop record_busy"
        );
        for ended in [&grandchild, &child] {
            assert_eq!(bench.done(ended).await, Answer::Accepted);
        }
        assert_eq!(bench.answer(caller("s").of("mail").under(&parent)).await, "run first");
        assert_eq!(bench.answer(caller("x").of("mail").on("crm:1")).await, "stop record_busy");
        assert_eq!(bench.done(&parent).await, Answer::Accepted);
    }
}

#[tokio::test]
async fn a_child_ends_with_its_parents_lease_and_lives_on_by_its_heartbeat() {
    for bench in benches().await {
        let parent = bench.parent().await;
        bench.live(TTL - MINUTE).await;
        let child = bench.ask(caller("c").of("mail").under(&parent)).await;
        bench.live(MINUTE).await;
        assert_eq!(bench.beat(&child).await, Answer::Accepted);
        assert_eq!(bench.seen(child.id).await.inbox, Some(InboxList::Stuck), "whatever it says itself");
        assert_eq!(bench.beat(&parent).await, Answer::Accepted);
        assert_eq!(bench.seen(child.id).await.inbox, None);
        bench.live(TTL).await;
        assert_eq!(bench.seen(child.id).await.inbox, Some(InboxList::Stuck));
        // A stale parent takes no more children.
        assert!(bench.claim(caller("d").of("mail").under(&parent)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_parent_that_loses_its_claim_voids_its_children_and_theirs() {
    for bench in benches().await {
        for way in ["record taken", "reset", "taken over"] {
            let (p, r) = (format!("p {way}"), format!("crm:{way}"));
            let parent = bench.ask(caller(&p).on(&r)).await;
            let child = bench.ask(caller(&format!("c {way}")).of("mail").under(&parent)).await;
            let grandchild = bench.ask(caller(&format!("g {way}")).of("chat").under(&child)).await;
            match way {
                "reset" => {
                    let confirm_holder = bench.seen(parent.id).await.claim.holder_name();
                    let act = Act::Reset { run_now: false, confirm_holder, verified: false };
                    assert!(matches!(bench.person(parent.id, act).await, Acted::Written(_)));
                }
                way => {
                    bench.live(TTL).await;
                    let next = if way == "taken over" { caller(&p) } else { caller("taker") };
                    assert!(bench.answer(next.on(&r)).await.starts_with("run"), "{way}");
                }
            }
            for below in [&child, &grandchild] {
                let view = bench.seen(below.id).await;
                assert_eq!(view.inbox, Some(InboxList::Stuck), "{way}: seen at once");
                assert!(bench.story(below.id).await.contains(&"parent_lost -".to_owned()), "{way}");
                assert_eq!(bench.done(below).await, Answer::LostClaim, "{way}");
                assert_eq!(bench.beat(below).await, Answer::LostClaim, "{way}");
            }
            // Its next claim is judged like that of any run that went silent.
            let again = caller(&format!("c {way}")).of("mail");
            let expected = if way == "reset" { "run stale_retry" } else { "stop record_busy" };
            assert_eq!(bench.answer(again).await, expected, "{way}");
        }
    }
}

#[tokio::test]
async fn a_child_goes_on_when_its_parent_ends_and_keeps_strangers_off_the_record() {
    for bench in benches().await {
        for (n, call) in [Call::Done, failed(), failed_for_good()].into_iter().enumerate() {
            let on = format!("crm:{n}");
            let parent = bench.ask(caller(&format!("p{n}")).on(&on)).await;
            let child = bench.ask(caller(&format!("c{n}")).of("mail").under(&parent)).await;
            assert_eq!(bench.say(parent.token.as_ref().unwrap(), call).await, Answer::Accepted);
            let stranger = || caller(&format!("x{n}")).of("mail").on(&on);
            assert_eq!(bench.answer(stranger()).await, "stop record_busy");
            bench.live(TTL - MINUTE).await;
            assert_eq!(bench.beat(&child).await, Answer::Accepted);
            bench.live(TTL - MINUTE).await;
            assert_eq!(bench.seen(child.id).await.inbox, None, "it has a lease of its own");
            assert_eq!(bench.done(&child).await, Answer::Accepted);
            assert_eq!(bench.answer(stranger()).await, "run first");
        }
    }
}

#[tokio::test]
async fn the_token_of_no_live_attempt_is_no_parent_and_leaves_nothing() {
    for bench in benches().await {
        let parent = bench.parent().await;
        let mut forged = caller("c").of("new one").under(&parent);
        if let Some((_, fence)) = &mut forged.parent {
            fence.generation += 1;
        }
        assert!(bench.claim(forged).await.unwrap().is_none());
        bench.done(&parent).await;
        let late = caller("c").of("new one").under(&parent);
        assert!(bench.claim(late).await.unwrap().is_none());
        assert!(!bench.knows_automation(WS, automation("new one")).await.unwrap());
    }
}

/// The child's own key, claimed again while its parent is stale: the claim that is decided is not also voided.
#[tokio::test]
async fn a_child_may_take_over_from_its_own_stale_parent() {
    for bench in benches().await {
        let parent = bench.parent().await;
        let child = bench.ask(caller("c").of("mail").under(&parent)).await;
        bench.live(TTL).await;
        let again = bench.ask(caller("c").of("mail")).await;
        assert_eq!(words(&again.decision), "run stale_retry");
        assert_eq!(bench.done(&child).await, Answer::LostClaim);
        assert_eq!(bench.done(&parent).await, Answer::LostClaim, "its record was taken");
        assert_eq!(bench.done(&again).await, Answer::Accepted);
        assert!(matches!(bench.seen(again.id).await.claim.state, State::Done { .. }));
    }
}

/// A child that has a record of its own loses it like anybody else, and then shares nothing with its parent.
#[tokio::test]
async fn a_child_whose_own_record_was_taken_holds_none_and_has_no_parent_any_more() {
    for bench in benches().await {
        let parent = bench.parent().await;
        let mut call = caller("c").of("mail").on("crm:2").under(&parent);
        call.request.ttl = Some(oncegate_core::policy::Ttl::new(MINUTE * 5).unwrap());
        let child = bench.ask(call).await;
        bench.live(MINUTE * 6).await;
        assert_eq!(bench.answer(caller("x").of("mail").on("crm:2")).await, "run first", "its TTL is over");
        let State::Processing(lease) = bench.seen(child.id).await.claim.state else { panic!() };
        assert_eq!((lease.holds_record, lease.parent), (false, None));
        assert_eq!(bench.beat(&child).await, Answer::LostClaim);
        // What its parent holds was never its own.
        assert_eq!(bench.answer(caller("s").of("mail").under(&parent)).await, "run first");
    }
}
