//! What several nodes forget, and who may call them, while all of them do it at once.

use std::sync::Arc;

use oncegate_core::access::{Role, TokenName};
use oncegate_core::finish::Call;
use oncegate_core::policy::Jitter;
use oncegate_store::Store;
use oncegate_store::access::{Access, DeleteWorkspace, Deleted, NewToken, Preset, Revoked};
use oncegate_store::api::{Claimed, FinishCall, Workspace};
use oncegate_store::clock::ManualClock;
use oncegate_store::postgres::PgStore;

use super::Cluster;
use crate::conformance::{Asking, DAY, HOUR, MORNING, WS, caller, words, workspace_name};

const ACME: Workspace = Workspace(2);

async fn done(store: &PgStore, claimed: Claimed) {
    let (id, fence) = (claimed.id, claimed.view.unwrap().claim.fence());
    let call =
        FinishCall { id, fence, call: Call::Done, jitter: Jitter::NONE, result: None, actor: "t".into() };
    store.finish(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn nodes_that_forget_at_once_forget_everything_once_and_leave_every_mark() {
    const CLAIMS: usize = 60;
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let (a, b) = (cluster.node("a", &clock).await, cluster.node("b", &clock).await);
    for n in 0..CLAIMS {
        let claimed = a.claim(caller(&format!("k{n}")).with("payload")).await.unwrap().unwrap();
        done(&a, claimed).await;
    }
    clock.advance(DAY * 31);
    let mut removed = 0;
    loop {
        let (of_a, of_b) = tokio::join!(a.reap(7), b.reap(7));
        removed += of_a.as_ref().unwrap() + of_b.as_ref().unwrap();
        if (of_a.unwrap(), of_b.unwrap()) == (0, 0) {
            break;
        }
    }
    assert!(removed >= CLAIMS as u64);
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.payloads"), "0");
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.claims WHERE payload_removed_at > 0"), "60");
    clock.advance(DAY * 60);
    while tokio::try_join!(a.reap(7), b.reap(7)).unwrap() != (0, 0) {}
    for table in ["claims", "history", "step_calls"] {
        assert_eq!(cluster.sql(&format!("SELECT count(*) FROM oncegate.{table}")), "0", "{table}");
    }
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.pruned"), "60");
    let again = b.claim(caller("k1")).await.unwrap().unwrap();
    assert_eq!(words(&again.decision), "run first_after_retention");
}

/// A row in every table, what a workspace does not have by itself put there by hand.
const ROWS: &str = "SET search_path = oncegate; \
    INSERT INTO payloads VALUES (2, '\\x00', '', '', 0); \
    INSERT INTO pruned VALUES (2, decode(repeat('00', 16), 'hex'), 0, 9000000000000); \
    INSERT INTO record_runs VALUES (2, decode(repeat('00', 16), 'hex'), 1, 9000000000000, '\\x00', 1); \
    INSERT INTO step_calls (workspace_id, claim_id, step, attempt, resets, idempotency_key, target, sent_at, outcome) \
      SELECT 2, claim_id, 's', 1, 0, 'k', 't', 0, 'in_flight' FROM claims WHERE workspace_id = 2 LIMIT 1; \
    INSERT INTO deliveries (workspace_id, source, automation, received_at, verdict) VALUES (2, 's', 'a', 0, 'accepted'); \
    INSERT INTO api_requests VALUES (2, 'k', decode(repeat('00', 32), 'hex'), 200, NULL, 9000000000000); \
    INSERT INTO bulk_acts (workspace_id, act, filter, reason, actor, matched, made_at) \
      VALUES (2, '{}', '{}', '', '', 1, 0); \
    INSERT INTO bulk_rows (workspace_id, bulk_id, position, claim_id, version) VALUES (2, 1, 1, '\\x00', 1); \
    INSERT INTO notices (workspace_id, kind, subject, detail, first_at, last_at) VALUES (2, 'k', 's', 'd', 0, 0); \
    INSERT INTO source_positions VALUES (2, 's', 1, '{}', 0); \
    INSERT INTO senders VALUES (2, decode(repeat('00', 16), 'hex'), '{}', 0); \
    INSERT INTO declared VALUES (2, '{}')";

#[tokio::test]
async fn a_deleted_workspace_goes_from_every_table_and_so_does_what_came_too_late() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let (a, b) = (cluster.node("a", &clock).await, cluster.node("b", &clock).await);
    a.add_workspace(workspace_name("acme"), "mia".into()).await.unwrap();
    let audited = a.add_token(admin(ACME, 1)).await.unwrap();
    assert!(audited.is_some());
    for n in 0..700 {
        a.claim(caller(&format!("k{n}")).within(ACME)).await.unwrap();
    }
    let ours = a.claim(caller("k")).await.unwrap().unwrap().id;
    cluster.sql(ROWS);
    let left = || {
        let tables = cluster.sql(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = 'oncegate' \
             AND column_name = 'workspace_id' ORDER BY 1",
        );
        let full = |t: &&str| {
            cluster.sql(&format!("SELECT count(*) > 0 FROM oncegate.{t} WHERE workspace_id = 2")) == "t"
        };
        tables.lines().filter(full).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(left().len(), 17, "a table is missing in ROWS: {:?}", left());
    let call = DeleteWorkspace {
        workspace: ACME,
        although_live: true,
        reason: "contract ended".into(),
        actor: "mia".into(),
    };
    let (one, two) = tokio::join!(a.delete_workspace(call.clone()), b.delete_workspace(call));
    let begun = [one.unwrap(), two.unwrap()];
    assert_eq!(begun.iter().filter(|d| matches!(d, Deleted::Begun(_))).count(), 1, "{begun:?}");
    assert_eq!(b.token_by_hash([1; 32]).await.unwrap(), None);
    let mut pieces = 0;
    loop {
        let (of_a, of_b) = tokio::try_join!(a.purge(), b.purge()).unwrap();
        pieces += u32::from(of_a) + u32::from(of_b);
        if !of_a && !of_b {
            break;
        }
    }
    assert!(pieces > 1, "a piece at a time");
    assert_eq!(left(), ["audit", "automations"]);
    assert!(a.show(ours).await.unwrap().is_some());

    // A transaction that began before the workspace was deleted comes to its end only now.
    cluster.sql("INSERT INTO oncegate.payloads VALUES (2, '\\x01', '', '', 0)");
    assert!(a.purge().await.unwrap());
    clock.advance(HOUR);
    a.reap(100).await.unwrap();
    assert_eq!(left(), ["audit"], "who did what outlives what it was done to");
    assert_eq!(cluster.sql("SELECT name, purging FROM oncegate.workspaces WHERE id = 2"), "#2|f");
}

/// The node that deleted a workspace died before it had shut it.
#[tokio::test]
async fn a_workspace_that_is_marked_as_deleted_opens_nothing_and_is_shut_by_whoever_comes_by() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let a = cluster.node("a", &clock).await;
    a.add_workspace(workspace_name("acme"), "mia".into()).await.unwrap();
    a.add_token(admin(ACME, 1)).await.unwrap();
    a.claim(caller("k").within(ACME).queued()).await.unwrap();
    cluster.sql("UPDATE oncegate.workspaces SET name = '#2', deleted_at = 1, purging = true WHERE id = 2");
    assert_eq!(a.token_by_hash([1; 32]).await.unwrap(), None);
    assert!(a.add_token(admin(ACME, 2)).await.is_err());
    assert!(a.claim(caller("k").of("new").within(ACME)).await.is_err());
    a.purge().await.unwrap();
    assert!(a.due(9).await.unwrap().is_empty());
    assert!(a.claim(caller("k").within(ACME)).await.is_err(), "its automations are nobody's");
}

fn admin(workspace: Workspace, hash: u8) -> NewToken {
    NewToken {
        workspace,
        hash: [hash; 32],
        name: TokenName::try_from(format!("admin {hash}").as_str()).unwrap(),
        role: Role::Admin,
        automations: None,
        expires_at: None,
        actor: "mia".into(),
    }
}

#[tokio::test]
async fn of_the_last_two_admins_two_nodes_end_one() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let (a, b) = (cluster.node("a", &clock).await, cluster.node("b", &clock).await);
    let mut last = a.add_token(admin(WS, 0)).await.unwrap().unwrap();
    for n in 1..20 {
        let next = a.add_token(admin(WS, n)).await.unwrap().unwrap();
        let revoke = async |store: &PgStore, id| {
            store.revoke_token(WS, id, false, "r".into(), "mia".into()).await.unwrap()
        };
        let ended = tokio::join!(revoke(&a, last), revoke(&b, next));
        last = match ended {
            (Revoked::Ended, Revoked::LastAdmin) => next,
            (Revoked::LastAdmin, Revoked::Ended) => last,
            both => panic!("{both:?}"),
        };
    }
}

#[tokio::test]
async fn nodes_that_start_with_the_same_token_and_configuration_write_both_down_once() {
    let cluster = Cluster::new();
    let clock = Arc::new(ManualClock::at(MORNING));
    let (a, b) = (cluster.node("a", &clock).await, cluster.node("b", &clock).await);
    for n in 1..10 {
        let (one, two) = tokio::join!(a.preset_token(admin(WS, n)), b.preset_token(admin(WS, n)));
        let both = [one.unwrap(), two.unwrap()];
        assert!(both.iter().any(|p| matches!(p, Preset::Made(_))), "{both:?}");
        assert!(both.iter().any(|p| matches!(p, Preset::Good(_))), "{both:?}");
        assert_eq!(both[0].id(), both[1].id());
        let declared = || [(format!("automation a{n}"), "1".to_owned())].into();
        let (one, two) = tokio::join!(a.note_declared(WS, declared()), b.note_declared(WS, declared()));
        let told = [one.unwrap().len(), two.unwrap().len()];
        assert_eq!(told.iter().filter(|told| **told > 0).count(), 1, "{told:?}");
    }
    let made = |name: &'static str| {
        let (a, b, name) = (&a, &b, workspace_name(name));
        async move {
            tokio::join!(a.add_workspace(name.clone(), "mia".into()), b.add_workspace(name, "mia".into()))
        }
    };
    for name in ["w1", "w2", "w3"] {
        let (one, two) = made(name).await;
        let ((one, made_one), (two, made_two)) = (one.unwrap(), two.unwrap());
        assert!(one == two && made_one != made_two, "{name}");
    }
    assert_eq!(cluster.sql("SELECT count(*) FROM oncegate.audit WHERE action = 'workspace_made'"), "3");
}
