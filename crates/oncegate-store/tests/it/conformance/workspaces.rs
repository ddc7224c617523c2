//! One client never sees another's, not even that a key exists.

use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted};

use oncegate_store::access::{DeleteWorkspace, Deleted};

use super::*;

const THEIRS: Workspace = Workspace(2);

#[tokio::test]
async fn the_same_key_and_record_are_other_ones_in_another_workspace() {
    for bench in benches().await {
        bench.add_workspace(THEIRS).await;
        let ours = bench.ask(caller("k").on("crm:1").under_run("constant")).await;
        assert_eq!(bench.find(THEIRS, automation("welcome"), key("k")).await.unwrap(), None);
        let theirs = bench.ask(caller("k").within(THEIRS).on("crm:1").under_run("constant")).await;
        assert_eq!(words(&theirs.decision), "run first", "neither the key nor the record is held");
        assert_ne!(ours.id, theirs.id);
        for (workspace, id) in [(WS, ours.id), (THEIRS, theirs.id)] {
            let page = bench.list(workspace, Filter { limit: 10, ..Filter::default() }).await.unwrap();
            assert_eq!(page.rows.iter().map(ClaimView::at).collect::<Vec<_>>(), [id]);
        }
        // What ours did long ago says nothing about a run id of theirs.
        bench.say(&ours.token.unwrap(), Call::Done).await;
        bench.live(HOUR * 2).await;
        let again = bench.ask(caller("k2").within(THEIRS).under_run("constant")).await;
        let repeated = bench.ask(caller("k2").within(THEIRS).under_run("constant")).await;
        assert_eq!(words(&repeated.decision), "run same_run");
        assert_eq!(repeated.token, again.token);
    }
}

#[tokio::test]
async fn pausing_lists_and_audit_stay_in_their_workspace() {
    for bench in benches().await {
        bench.add_workspace(THEIRS).await;
        bench.set_paused(WS, automation("welcome"), true, "r".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.answer(caller("k")).await, "stop paused");
        assert_eq!(bench.answer(caller("k").within(THEIRS)).await, "run first");
        assert!(bench.audit(THEIRS, None, 10).await.unwrap().rows.is_empty());
        let total = async |ws| bench.counts(ws, None).await.unwrap().iter().map(|(_, n)| n).sum::<u64>();
        assert_eq!((total(WS).await, total(THEIRS).await), (1, 0));
    }
}

#[tokio::test]
async fn a_rejected_event_is_neither_seen_nor_released_from_another_workspace() {
    let request = |workspace, name: Option<&str>, releases: Option<i64>| AdmitCall {
        workspace,
        source: "typeform".into(),
        automation: automation("welcome"),
        headers: "{}".into(),
        body: b"{}".to_vec(),
        events: vec![AdmitEvent {
            identity: name.map(key).ok_or_else(|| "no id".to_owned()),
            fingerprint: fingerprint("a"),
            json: "{}".into(),
            record: None,
            of_batch: false,
            aside: None,
            sender: None,
            likeness: None,
            about: None,
            delivery_id: None,
            dated: None,
        }],
        releases: releases.map(|delivery| oncegate_store::api::Release { delivery, reason: "mended".into() }),
        actor: "mia".into(),
    };
    for bench in benches().await {
        bench.add_workspace(THEIRS).await;
        let [Admitted::Rejected { delivery }] = bench.admit(request(WS, None, None)).await.unwrap()[..]
        else {
            panic!("it has no identity")
        };
        assert!(bench.delivery(THEIRS, delivery).await.unwrap().is_none());
        assert!(bench.rejected(THEIRS, None, None, 10).await.unwrap().rows.is_empty());
        assert!(bench.admit(request(THEIRS, Some("k"), Some(delivery))).await.unwrap().is_empty());
        assert_eq!(bench.delivery(WS, delivery).await.unwrap().unwrap().verdict, "rejected");
        assert_eq!(bench.admit(request(WS, Some("k"), Some(delivery))).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_claim_in_a_workspace_that_does_not_exist_fails_and_leaves_nothing() {
    for bench in benches().await {
        assert!(bench.claim(caller("k").within(THEIRS)).await.is_err());
        bench.add_workspace(THEIRS).await;
        assert_eq!(bench.find(THEIRS, automation("welcome"), key("k")).await.unwrap(), None);
        assert_eq!(bench.answer(caller("k").within(THEIRS)).await, "run first");
    }
}

#[tokio::test]
async fn an_id_or_a_token_of_one_workspace_opens_nothing_in_another() {
    for bench in benches().await {
        bench.add_workspace(THEIRS).await;
        let ours = bench.ask(caller("k").with("ours")).await;
        let (id, fence) = bench.secret().read_token(ours.token.as_ref().unwrap().expose()).unwrap();
        assert_eq!((id, id.workspace), (ours.id, WS));
        let stolen = ClaimRef { workspace: THEIRS, id: id.id };
        assert!(bench.show(stolen).await.unwrap().is_none());
        assert!(bench.history(stolen).await.unwrap().is_empty());
        assert!(bench.work(stolen).await.unwrap().is_none());
        assert!(bench.deliveries(stolen, 10).await.unwrap().is_empty());
        assert!(matches!(bench.person(stolen, reset()).await, Acted::NotFound));
        let forged = bench.secret().token(stolen, fence);
        let (id, fence) = bench.secret().read_token(forged.expose()).unwrap();
        let call = FinishCall {
            id,
            fence,
            call: Call::Done,
            jitter: Jitter::NONE,
            result: None,
            actor: "holder".into(),
        };
        assert!(bench.finish(call).await.unwrap().is_none());
        assert!(bench.claim(runner(stolen, bench.boot())).await.unwrap().is_none());
        assert_eq!(bench.say(&ours.token.unwrap(), Call::Done).await, Answer::Accepted);
    }
}

#[tokio::test]
async fn nothing_of_a_deleted_workspace_is_started_or_called_while_it_goes() {
    for bench in benches().await {
        bench.add_workspace(THEIRS).await;
        bench.ask(caller("k").within(THEIRS).queued()).await;
        let holder = bench.ask(caller("h").within(THEIRS).on("crm:1")).await;
        bench.ask(caller("tool").of("hooked").within(THEIRS).on("crm:1")).await;
        bench.say(&holder.token.unwrap(), Call::Done).await;
        bench.clock.advance(MINUTE);
        assert_eq!((bench.due_ids().await.len(), bench.due_nudges(9).await.unwrap().len()), (1, 1));
        let (reason, actor) = ("the client left".into(), "mia".into());
        let call = DeleteWorkspace { workspace: THEIRS, although_live: false, reason, actor };
        assert!(matches!(bench.delete_workspace(call).await.unwrap(), Deleted::Begun(_)));
        assert!(bench.due_ids().await.is_empty());
        assert!(bench.due_nudges(9).await.unwrap().is_empty());
    }
}
