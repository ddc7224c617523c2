//! Who may call: tokens with their roles, and workspaces.

use oncegate_core::access::Role;
use oncegate_store::access::NewToken;

use super::*;

fn token(workspace: Workspace, hash: u8) -> NewToken {
    NewToken {
        workspace,
        hash: [hash; 32],
        name: format!("zap {hash}"),
        role: Role::Caller,
        automations: Some(vec![automation("welcome")]),
        expires_at: Some(MORNING.after(DAY)),
        actor: "mia".into(),
    }
}

#[tokio::test]
async fn a_token_is_known_by_its_hash_until_it_expires_or_is_revoked() {
    for mut bench in benches() {
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

        let revoke = async |ws, id| bench.revoke_token(ws, id, "leaked".into(), "mia".into()).await.unwrap();
        assert!(!revoke(WS, id + 1).await);
        assert!(revoke(WS, id).await);
        assert!(!revoke(WS, id).await, "once");
        let known = bench.token_by_hash([1; 32]).await.unwrap().unwrap();
        assert!(!known.is_good(MORNING));
        let acts: Vec<_> =
            bench.audit(WS, None, 10).await.unwrap().rows.into_iter().map(|r| r.action).collect();
        assert_eq!(acts, ["token_revoked", "token_made"]);
    }
}

#[tokio::test]
async fn when_a_token_was_last_used_never_goes_back() {
    for bench in benches() {
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
    for bench in benches() {
        bench.add_workspace(Workspace(2)).await;
        let ours = bench.add_token(token(WS, 1)).await.unwrap().unwrap();
        let theirs = bench.add_token(token(Workspace(2), 2)).await.unwrap().unwrap();
        let ids = async |ws| bench.tokens(ws).await.unwrap().iter().map(|t| t.id).collect::<Vec<_>>();
        assert_eq!((ids(WS).await, ids(Workspace(2)).await), (vec![ours], vec![theirs]));
        assert!(!bench.revoke_token(Workspace(2), ours, "r".into(), "eve".into()).await.unwrap());
        assert!(bench.token_by_hash([1; 32]).await.unwrap().unwrap().is_good(MORNING));
        assert!(bench.add_token(token(Workspace(9), 3)).await.is_err(), "there is no such workspace");
    }
}

#[tokio::test]
async fn a_workspace_is_made_once() {
    for bench in benches() {
        let made = async |name: &str| bench.store().add_workspace(name.into(), "mia".into()).await.unwrap();
        assert_eq!(made("acme").await, (Workspace(2), true));
        assert_eq!(made("acme").await, (Workspace(2), false));
        assert_eq!(made("default").await, (WS, false));
        let names: Vec<_> = bench.workspaces().await.unwrap().into_iter().map(|w| w.name).collect();
        assert_eq!(names, ["default", "acme"]);
    }
}
