//! `parent`, `finish: at_claim` and resets from the start, as those who send HTTP see them.

use serde_json::{Value, json};

use crate::harness::{Claimed, Gate, Receiver, Reply, Setup, eventually, mins};

fn under(parent: &Claimed, key: &str) -> Value {
    json!({ "automation": "mail", "idempotency_key": key, "parent": parent.token() })
}

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m }, mail: { ttl: 10m }, once: { finish: at_claim } }")
        .start()
        .await
}

#[tokio::test]
async fn a_run_that_a_run_calls_shares_its_record_and_is_void_with_it() {
    let gate = gate().await;
    let parent = json!({ "automation": "story", "idempotency_key": "p", "record": "crm:1" });
    let parent = gate.api.claim_with(&parent).await;
    let child = gate.api.claim_with(&under(&parent, "c")).await;
    child.is("run first");
    let shown = gate.api.show(&child.claim_id).await;
    assert_eq!((&shown["record"], &shown["parent"]), (&json!("crm:1"), &json!(parent.claim_id)));
    gate.api.claim_with(&under(&parent, "sibling")).await.is("stop record_busy");
    let stranger = json!({ "automation": "mail", "idempotency_key": "x", "record": "crm:1" });
    gate.api.claim_with(&stranger).await.is("stop record_busy");

    let confirm = json!({ "reason": "it hangs", "confirm_holder": "attempt-1" });
    gate.api.act("reset", &parent.claim_id, &confirm).await.ok();
    gate.api.done(&child).await.problem(409, "lost_claim");
    assert_eq!(gate.api.show(&child.claim_id).await["inbox"], "stuck");

    // What proves nothing is refused, and leaves nothing.
    for token in [parent.token(), "ogt_made-up", "x"] {
        let claim = json!({ "automation": "other", "idempotency_key": "c2", "parent": token });
        assert_eq!(
            gate.api.post("/v1/claims", &claim).await.problem(422, "invalid_field")["field"],
            "parent"
        );
    }
    assert!(gate.api.find("other", "c2").await.is_none());
    gate.api.pause("other").await.problem(404, "not_found");
}

#[tokio::test]
async fn a_lost_answer_of_what_is_done_at_its_claim_is_no_lost_effect() {
    let gate = gate().await;
    let claim = |run: &str| json!({ "automation": "once", "idempotency_key": "k", "run_id": run });
    let first = gate.api.claim_with(&claim("exec-1:0")).await;
    assert_eq!(first.is("run first").processing_state, "done");
    gate.api.claim_with(&claim("exec-2:0")).await.is("stop duplicate");
    gate.advance(mins(5)).await;
    let again = gate.api.claim_with(&claim("exec-1:0")).await;
    assert_eq!(again.is("run same_run").token(), first.token());
    gate.api.done(&again).await.ok();
    gate.api.claim_with(&claim("exec-1:0")).await.is("stop duplicate");
}

const MAIL: &str = "
automations:
  welcome:
    ttl: 10m
    retries: []
    steps:
      - { name: mail, http: { url: '$RECEIVER/mail' } }
      - { name: row, http: { url: '$RECEIVER/row' } }
      - { name: note, http: { url: '$RECEIVER/note' } }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

/// C54: a reset goes on at the step that failed; "from the start" is another act, which names what was sent.
#[tokio::test]
async fn c54_a_reset_goes_on_where_it_failed_and_from_the_start_names_what_was_sent() {
    let receiver = Receiver::start().await;
    receiver.script("/row", [Reply::status(400)]);
    let gate = Setup::new(MAIL, &receiver).start().await;
    gate.api.order(&json!({ "order": "o_1" })).await.ok();
    let state = async |word: &str| {
        eventually(word, async || {
            gate.api.find("welcome", "o_1").await.filter(|claim| claim["processing_state"] == word)
        })
        .await
    };
    let id = state("error").await["claim_id"].as_str().unwrap().to_owned();
    gate.api.act("reset", &id, &json!({ "reason": "the sheet is back", "run_now": true })).await.ok();
    state("done").await;
    let counts = || ["/mail", "/row", "/note"].map(|path| receiver.to(path).len());
    assert_eq!(counts(), [1, 2, 1], "the row was refused once; the mail was not sent again");
    let row_keys: Vec<_> = receiver.to("/row").iter().map(|r| r.key().to_owned()).collect();
    assert_eq!(row_keys[0], row_keys[1], "one key on every attempt");

    let from_start = |more: Value| {
        let mut act =
            json!({ "reason": "all of it anew", "from_start": true, "verified": true, "run_now": true });
        act.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        act
    };
    let refused = gate.api.act("reset", &id, &from_start(json!({}))).await.problem(409, "needs_confirm_sent");
    assert_eq!(refused["sent"], json!(["mail", "row", "note"]));
    assert!(refused["detail"].as_str().unwrap().contains("`mail`"), "{refused}");
    let some = from_start(json!({ "confirm_sent": ["mail", "row"] }));
    gate.api.act("reset", &id, &some).await.problem(409, "needs_confirm_sent");
    let unverified = json!({ "reason": "r", "from_start": true, "confirm_sent": ["mail", "row", "note"] });
    gate.api.act("reset", &id, &unverified).await.problem(409, "needs_verified");
    let lonely = json!({ "reason": "r", "confirm_sent": ["mail"] });
    gate.api.act("reset", &id, &lonely).await.problem(422, "invalid_field");
    assert_eq!(counts(), [1, 2, 1], "nothing was sent");

    // Under the old keys first, then under new ones: separate choices.
    let mail_key = |n: usize| receiver.to("/mail")[n].key().to_owned();
    for (n, new_keys) in [(1, false), (2, true)] {
        let all = json!({ "confirm_sent": ["mail", "row", "note"], "new_keys": new_keys });
        gate.api.act("reset", &id, &from_start(all)).await.ok();
        receiver.got("/note", n + 1).await;
        state("done").await;
        assert_eq!(counts(), [n + 1, n + 2, n + 1]);
        assert_eq!(mail_key(n) == mail_key(0), !new_keys, "{n}");
    }
    let acts: Vec<_> = gate.api.audit().await.iter().map(|row| row["action"].clone()).collect();
    assert_eq!(acts, ["reset_from_start_with_new_keys", "reset_from_start", "reset_and_run"]);
}
