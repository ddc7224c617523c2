//! Who may call: tokens with their roles, and workspaces.

use oncegate_core::access::{Role, TokenName};
use oncegate_store::access::{AuditFilter, Deed, DeleteWorkspace, Deleted, Held, NewToken, Preset, Revoked};

use super::*;

fn token(workspace: Workspace, hash: u8) -> NewToken {
    NewToken {
        workspace,
        hash: [hash; 32],
        name: TokenName::try_from(format!("zap {hash}").as_str()).unwrap(),
        role: Role::Caller,
        automations: Some(vec![automation("welcome")]),
        expires_at: Some(MORNING.after(DAY)),
        actor: "mia".into(),
    }
}

/// As the API asks for it: a repeat makes no second token, and is not shown the first one's secret.
#[tokio::test]
async fn a_token_that_is_asked_for_by_a_named_request_is_made_and_ended_once() {
    use oncegate_store::people::{Answering, Kept, Known, Once, Request as Named, Write, Written, Wrote};

    let once = |name: &str| {
        let answering: Answering = Arc::new(|_, _| Some(Kept { status: 201, body: None }));
        let request = Named { workspace: WS, key: key(name), fingerprint: [1; 32] };
        Some(Once { request, answering })
    };
    let known = Known::Answered(Kept { status: 201, body: None });
    for bench in benches().await {
        let make = async || bench.write(Write::AddToken(token(WS, 1)), once("make")).await.unwrap();
        let made = make().await;
        let Wrote::Now(Written::AddedToken(Some(id)), _) = made else { panic!("{made:?}") };
        let again = make().await;
        assert!(matches!(&again, Wrote::Before(before) if *before == known), "{again:?}");
        assert_eq!(bench.tokens(WS).await.unwrap().len(), 1);
        assert!(bench.token_by_hash([1; 32]).await.unwrap().unwrap().is_good(MORNING));

        let end = async || {
            let (reason, actor) = ("leaked".into(), "mia".into());
            let write = Write::RevokeToken { workspace: WS, id, although_last: false, reason, actor };
            bench.write(write, once("end")).await.unwrap()
        };
        let ended = end().await;
        assert!(matches!(ended, Wrote::Now(Written::RevokedToken(Revoked::Ended), _)), "{ended:?}");
        let again = end().await;
        assert!(matches!(&again, Wrote::Before(before) if *before == known), "{again:?}");
        assert!(!bench.token_by_hash([1; 32]).await.unwrap().unwrap().is_good(MORNING));
    }
}

#[tokio::test]
async fn a_token_is_known_by_its_hash_until_it_expires_or_is_revoked() {
    for mut bench in reopened_benches().await {
        let id = bench.add_token(token(WS, 1)).await.unwrap().unwrap();
        assert_eq!(bench.add_token(token(WS, 1)).await.unwrap(), None, "it is there already");
        bench.reopen().await;
        let known = bench.token_by_hash([1; 32]).await.unwrap().unwrap();
        assert_eq!((known.id, known.workspace, known.role), (id, WS, Role::Caller));
        assert_eq!((known.name.as_str(), known.created_by.as_str()), ("zap 1", "mia"));
        assert_eq!(known.automations, Some(vec![automation("welcome")]));
        assert_eq!((known.created_at, known.last_used_at), (MORNING, None));
        assert!(known.is_good(MORNING) && !known.is_good(MORNING.after(DAY)));
        assert_eq!(bench.token_by_hash([2; 32]).await.unwrap(), None);

        let revoke =
            async |id| bench.revoke_token(WS, id, false, "leaked".into(), "mia".into()).await.unwrap();
        assert_eq!(revoke(id + 1).await, Revoked::Nothing);
        assert_eq!(revoke(id).await, Revoked::Ended);
        assert_eq!(revoke(id).await, Revoked::Nothing, "once");
        let known = bench.token_by_hash([1; 32]).await.unwrap().unwrap();
        assert!(!known.is_good(MORNING));
        let acts: Vec<_> =
            bench.audit(WS, None, 10).await.unwrap().rows.into_iter().map(|r| r.action).collect();
        assert_eq!(acts, ["token_revoked", "token_made"]);
    }
}

#[tokio::test]
async fn when_a_token_was_last_used_never_goes_back() {
    for bench in benches().await {
        let id = bench.add_token(token(WS, 1)).await.unwrap().unwrap();
        for (at, seen) in [(HOUR, HOUR), (MINUTE, HOUR), (DAY, DAY)] {
            bench.touch_tokens(vec![(id, MORNING.after(at)), (id + 7, MORNING)]).await.unwrap();
            let known = bench.tokens(WS).await.unwrap().remove(0);
            assert_eq!(known.last_used_at, Some(MORNING.after(seen)));
        }
    }
}

#[tokio::test]
async fn tokens_of_one_workspace_are_neither_seen_nor_revoked_from_another() {
    for bench in benches().await {
        bench.add_workspace(Workspace(2)).await;
        let ours = bench.add_token(token(WS, 1)).await.unwrap().unwrap();
        let theirs = bench.add_token(token(Workspace(2), 2)).await.unwrap().unwrap();
        let ids = async |ws| bench.tokens(ws).await.unwrap().iter().map(|t| t.id).collect::<Vec<_>>();
        assert_eq!((ids(WS).await, ids(Workspace(2)).await), (vec![ours], vec![theirs]));
        let stolen = bench.revoke_token(Workspace(2), ours, true, "r".into(), "eve".into()).await.unwrap();
        assert_eq!(stolen, Revoked::Nothing);
        assert!(bench.token_by_hash([1; 32]).await.unwrap().unwrap().is_good(MORNING));
        assert!(bench.add_token(token(Workspace(9), 3)).await.is_err(), "there is no such workspace");
    }
}

#[tokio::test]
async fn a_workspace_is_made_once() {
    for bench in benches().await {
        let made =
            async |name: &str| bench.store().add_workspace(workspace_name(name), "mia".into()).await.unwrap();
        assert_eq!(made("acme").await, (Workspace(2), true));
        assert_eq!(made("acme").await, (Workspace(2), false));
        assert_eq!(made("default").await, (WS, false));
        let names: Vec<_> = bench.workspaces().await.unwrap().into_iter().map(|w| w.name).collect();
        assert_eq!(names, ["default", "acme"]);
    }
}

fn admin(hash: u8) -> NewToken {
    NewToken { role: Role::Admin, automations: None, expires_at: None, ..token(WS, hash) }
}

#[tokio::test]
async fn the_last_lasting_admin_is_revoked_only_on_purpose() {
    for bench in benches().await {
        let first = bench.add_token(admin(1)).await.unwrap().unwrap();
        // None of these can stand in for it: one ends, one is bound, one is another workspace's.
        bench.add_workspace(Workspace(2)).await;
        bench.add_token(NewToken { expires_at: Some(MORNING.after(DAY)), ..admin(2) }).await.unwrap();
        bench.add_token(NewToken { automations: Some(vec![automation("a")]), ..admin(3) }).await.unwrap();
        bench.add_token(NewToken { workspace: Workspace(2), ..admin(4) }).await.unwrap();
        let revoke = async |id, although| {
            bench.revoke_token(WS, id, although, "r".into(), "mia".into()).await.unwrap()
        };
        assert_eq!(revoke(first, false).await, Revoked::LastAdmin);
        assert!(bench.token_by_hash([1; 32]).await.unwrap().unwrap().is_good(MORNING));
        let second = bench.add_token(admin(5)).await.unwrap().unwrap();
        assert_eq!(revoke(first, false).await, Revoked::Ended);
        assert_eq!(revoke(second, false).await, Revoked::LastAdmin);
        assert_eq!(revoke(second, true).await, Revoked::Ended);
    }
}

#[tokio::test]
async fn the_token_of_the_start_is_made_once_and_good_again_after_it_was_revoked() {
    for bench in benches().await {
        let Preset::Made(id) = bench.preset_token(admin(1)).await.unwrap() else { panic!("it is new") };
        assert_eq!(bench.preset_token(admin(1)).await.unwrap(), Preset::Good(id));
        bench.revoke_token(WS, id, true, "leaked".into(), "mia".into()).await.unwrap();
        assert_eq!(bench.preset_token(admin(1)).await.unwrap(), Preset::Restored(id));
        assert!(bench.token_by_hash([1; 32]).await.unwrap().unwrap().is_good(MORNING));
        let acts: Vec<_> =
            bench.audit(WS, None, 10).await.unwrap().rows.into_iter().map(|r| r.action).collect();
        assert_eq!(acts, ["token_restored", "token_revoked", "token_made"]);
        bench.add_token(token(WS, 2)).await.unwrap();
        assert_eq!(bench.preset_token(admin(2)).await.unwrap(), Preset::Other, "no token gets another role");
        assert_eq!(bench.token_by_hash([2; 32]).await.unwrap().unwrap().role, Role::Caller);
    }
}

#[tokio::test]
async fn the_audit_is_read_by_actor_action_subject_and_time() {
    for bench in benches().await {
        let deed = |actor: &str, action: &str, subject: &str| Deed {
            actor: actor.into(),
            action: action.into(),
            subject: subject.into(),
            ..Deed::default()
        };
        bench
            .note_deeds(WS, vec![deed("mia (token:ops)", "pause", "a"), deed("token:ops", "pause", "b")])
            .await
            .unwrap();
        bench.live(HOUR).await;
        bench
            .note_deeds(WS, vec![deed("mia (token:x)", "reset", "a"), deed("token:ops2", "pause", "a")])
            .await
            .unwrap();
        let later = Some(MORNING.after(MINUTE));
        let all = AuditFilter { limit: 10, ..AuditFilter::default() };
        for (filter, found) in [
            (AuditFilter { actor: Some("mia".into()), ..all.clone() }, vec!["reset a", "pause a"]),
            (AuditFilter { actor: Some("token:ops".into()), ..all.clone() }, vec!["pause b", "pause a"]),
            (AuditFilter { action: Some("reset".into()), ..all.clone() }, vec!["reset a"]),
            (AuditFilter { subject: Some("b".into()), ..all.clone() }, vec!["pause b"]),
            (AuditFilter { since: later, ..all.clone() }, vec!["pause a", "reset a"]),
            (AuditFilter { until: later, ..all.clone() }, vec!["pause b", "pause a"]),
            (AuditFilter { limit: 1, ..all.clone() }, vec!["pause a"]),
        ] {
            let page = bench.audit_of(WS, filter.clone()).await.unwrap();
            let rows: Vec<_> = page.rows.iter().map(|r| format!("{} {}", r.action, r.subject)).collect();
            assert_eq!(rows, found, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn what_the_configuration_changed_is_one_row() {
    for mut bench in reopened_benches().await {
        let declared = |things: &[(&str, &str)]| {
            things.iter().map(|(thing, mark)| (thing.to_string(), mark.to_string())).collect()
        };
        let first = bench.note_declared(WS, declared(&[("automation a", "1"), ("automation b", "1")])).await;
        assert_eq!(first.unwrap(), ["added automation a", "added automation b"]);
        bench.reopen().await;
        let things = declared(&[("automation a", "2"), ("source s", "1")]);
        let changes = ["changed automation a", "added source s", "removed automation b"];
        assert_eq!(bench.note_declared(WS, things).await.unwrap(), changes);
        let same = declared(&[("automation a", "2"), ("source s", "1")]);
        assert!(bench.note_declared(WS, same).await.unwrap().is_empty());
        let rows = bench.audit(WS, None, 10).await.unwrap().rows;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].detail.as_deref(), Some(changes.join(", ").as_str()));
    }
}

#[tokio::test]
async fn a_deleted_workspace_opens_nothing_runs_nothing_and_goes_whole() {
    const ACME: Workspace = Workspace(2);
    for mut bench in reopened_benches().await {
        bench.add_workspace(ACME).await;
        let name = workspace_name("client-2");
        bench.add_token(token(ACME, 1)).await.unwrap();
        let ours = bench.ask(caller("k")).await.id;
        let theirs = bench.ask(caller("k").within(ACME)).await;
        let call = |workspace, although_live| DeleteWorkspace {
            workspace,
            although_live,
            reason: "contract ended".into(),
            actor: "mia".into(),
        };
        let delete = async |ws, although| bench.delete_workspace(call(ws, although)).await.unwrap();
        assert_eq!(delete(WS, true).await, Deleted::Nothing, "the default one stays");
        assert_eq!(delete(ACME, false).await, Deleted::Live(1));
        assert!(bench.token_by_hash([1; 32]).await.unwrap().is_some());
        let held = Held { claims: 1, deliveries: 0, tokens: 1 };
        assert_eq!(delete(ACME, true).await, Deleted::Begun(held));
        assert_eq!(delete(ACME, true).await, Deleted::Nothing);
        assert_eq!(bench.token_by_hash([1; 32]).await.unwrap(), None);
        assert!(bench.claim(caller("k2").within(ACME)).await.is_err(), "nothing new begins in it");
        // Whatever a crash interrupts goes with the reaping.
        bench.reopen().await;
        while bench.reap(100).await.unwrap() == 100 {}
        assert!(bench.show(theirs.id).await.unwrap().is_none());
        assert!(bench.show(ours).await.unwrap().is_some());
        assert!(!bench.purge().await.unwrap());
        // The same name again is another workspace, which knows nothing of the first.
        let (again, made) = bench.store().add_workspace(name, "mia".into()).await.unwrap();
        assert!(made && again != ACME);
        assert_eq!(bench.find(again, automation("welcome"), key("k")).await.unwrap(), None);
        let said = &bench.audit(WS, None, 10).await.unwrap().rows[1];
        assert_eq!((said.action.as_str(), said.subject.as_str()), ("workspace_deleted", "client-2"));
        assert_eq!(said.detail.as_deref(), Some("1 claims, 0 deliveries, 1 tokens"));
    }
}
