//! What people press while something runs, or while nothing does.

use serde_json::{Value, json};

use crate::harness::{Client, Hold, Receiver, Reply, Setup, WELCOME, eventually, mins, secs};

const THREE_STEPS: &str = "
automations:
  welcome:
    ttl: 10m
    steps:
      - { name: one, http: { url: '$RECEIVER/one' }, repeat: by_key }
      - { name: two, http: { url: '$RECEIVER/two' }, repeat: by_key, timeout: 240s }
      - { name: three, http: { url: '$RECEIVER/three' }, repeat: by_key }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

async fn in_state(api: &Client, key: &str, state: &str) -> Value {
    eventually(&format!("{key} is {state}"), async || {
        api.find("welcome", key).await.filter(|claim| claim["processing_state"] == state)
    })
    .await
}

fn id(claim: &Value) -> &str {
    claim["claim_id"].as_str().unwrap()
}

#[tokio::test]
async fn c96_reset_of_a_live_run_names_its_holder_and_voids_it() {
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.script("/two", [Reply::held(&hold)]);
    let mut gate = Setup::new(THREE_STEPS, &receiver).start().await;
    let order = json!({ "order": "o_1" });
    gate.api.order(&order).await.ok();
    receiver.got("/two", 1).await;
    gate.advance(mins(5)).await;
    let claim = in_state(&gate.api, "o_1", "processing").await;

    let refused = gate.api.reset(id(&claim)).await.problem(409, "live_holder");
    assert_eq!((&refused["holder"], &refused["attempt"]), (&json!("runner-attempt-1"), &json!(1)));
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("confirm_holder: \"runner-attempt-1\""), "{detail}");
    let wrong = json!({ "reason": "sure", "confirm_holder": "runner-attempt-7" });
    gate.api.act("reset", id(&claim), &wrong).await.problem(409, "live_holder");
    assert_eq!(gate.api.show(id(&claim)).await["processing_state"], "processing", "nothing changed");

    let confirmed =
        json!({ "reason": "the worker hangs", "by": "Ann", "confirm_holder": "runner-attempt-1" });
    let reset = gate.api.act("reset", id(&claim), &confirmed).await.ok();
    assert_eq!(reset["processing_state"], "none");
    let audit = gate.api.last_act().await;
    assert_eq!((&audit["action"], &audit["actor"]), (&json!("reset"), &json!("Ann (token:admin)")));
    assert_eq!((&audit["reason"], &audit["subject"]), (&json!("the worker hangs"), &claim["claim_id"]));

    gate.advance(secs(5)).await;
    assert_eq!(gate.api.order(&order).await.ok()["status"], "accepted");
    let claim = in_state(&gate.api, "o_1", "done").await;
    assert_eq!(claim["attempt"], 2);
    // What came next did not wait for the call that hangs. The run that was cut off wakes up and must send nothing more.
    hold.let_go();
    eventually("the cut off step is answered", async || {
        receiver.to("/two").iter().all(|r| r.answered == Some(200)).then_some(())
    })
    .await;
    gate.stop().await;
    let counts = ["/one", "/two", "/three"].map(|path| receiver.to(path).len());
    assert_eq!(counts, [1, 2, 1], "step one is remembered, two was under way, three ran once");
    assert_eq!(receiver.by_key().len(), 3, "one key per step, the same before and after the reset");
}

#[tokio::test]
async fn c96_token_of_a_caller_is_void_after_a_reset() {
    let gate = Setup::alone("automations: { story: { ttl: 10m } }").start().await;
    let claim = json!({ "automation": "story", "idempotency_key": "s_1", "run_id": "zap-17" });
    let owner = gate.api.claim_with(&claim).await;
    gate.advance(mins(5)).await;
    let refused = gate.api.reset(&owner.claim_id).await.problem(409, "live_holder");
    assert_eq!(refused["holder"], "zap-17");
    let confirmed = json!({ "reason": "the Zap is off", "confirm_holder": "zap-17" });
    gate.api.act("reset", &owner.claim_id, &confirmed).await.ok();
    gate.api.done(&owner).await.problem(409, "lost_claim");
    gate.advance(secs(5)).await;
    let next = gate.api.claim("story", "s_1").await;
    next.is("run first");
    gate.api.heartbeat(&owner).await.problem(409, "lost_claim");
    gate.api.error(&owner, &json!({})).await.problem(409, "lost_claim");
    gate.api.claim("story", "s_1").await.is("stop in_progress");
    assert_eq!(gate.api.done(&next).await.ok()["answer"], "accepted");
    assert_eq!(gate.api.keys_in("late").await, ["s_1"], "the run that was cut off may have had its effect");
}

/// A claim that is `none` with a stored event: it failed for good, and a person reset it.
async fn reset_after_an_error(api: &Client, receiver: &Receiver, key: &str) -> String {
    let sent = receiver.requests().len();
    receiver.script("/send", [Reply::status(422)]);
    api.order(&json!({ "order": key })).await.ok();
    let claim = in_state(api, key, "error").await;
    let reset = api.reset(id(&claim)).await.ok();
    assert_eq!((&reset["processing_state"], &reset["due_at"]), (&json!("none"), &json!(null)));
    assert_eq!(receiver.requests().len(), sent + 1);
    id(&claim).to_owned()
}

#[tokio::test]
async fn c99_run_now_runs_once_and_says_so_when_pressed_twice() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let id = reset_after_an_error(&gate.api, &receiver, "o_1").await;
    let hold = Hold::new();
    receiver.always("/send", Reply::held(&hold));

    assert_eq!(gate.api.run_now(&id).await.ok()["answer"], "queued");
    gate.api.run_now(&id).await.problem(409, "already_running");
    receiver.got("/send", 2).await;
    gate.api.run_now(&id).await.problem(409, "already_running");
    let running = gate.api.show(&id).await;
    assert_eq!(
        (&running["processing_state"], &running["holder"]),
        (&json!("processing"), &json!("runner-attempt-2"))
    );
    hold.let_go();
    let done = in_state(&gate.api, "o_1", "done").await;
    assert_eq!(done["attempt"], 2);
    assert_eq!(receiver.requests().len(), 2);
    gate.api.run_now(&id).await.problem(409, "needs_verified");
    let audit = gate.api.last_act().await;
    assert_eq!((&audit["action"], &audit["reason"]), (&json!("reset_and_run"), &json!("must go out today")));
}

#[tokio::test]
async fn c99_run_now_without_a_runner_is_queued_and_shown_so() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    let id = reset_after_an_error(&gate.api, &receiver, "o_1").await;
    gate.api.pause("welcome").await.ok();

    let queued = gate.api.run_now(&id).await.ok();
    assert_eq!((&queued["answer"], &queued["processing_state"]), (&json!("queued"), &json!("none")));
    gate.api.run_now(&id).await.problem(409, "already_running");
    gate.advance(mins(30)).await;
    let waiting = gate.api.show(&id).await;
    assert_eq!(
        (&waiting["processing_state"], &waiting["holder"]),
        (&json!("none"), &json!(null)),
        "{waiting}"
    );
    assert!(waiting["due_at"].is_string(), "shown as queued: {waiting}");
    assert_eq!(receiver.requests().len(), 1);

    gate.api.resume("welcome").await.ok();
    in_state(&gate.api, "o_1", "done").await;
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn c99_run_now_survives_a_kill_before_anything_ran() {
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(WELCOME, &receiver).start().await;
    let id = reset_after_an_error(&gate.api, &receiver, "o_1").await;
    gate.api.pause("welcome").await.ok();
    gate.api.run_now(&id).await.ok();
    gate.crash();
    gate.reopen().await;
    assert_eq!(gate.api.show(&id).await["processing_state"], "none");
    gate.api.resume("welcome").await.ok();
    in_state(&gate.api, "o_1", "done").await;
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn run_now_of_work_that_oncegate_does_not_hold_says_where_it_runs() {
    let gate = Setup::alone("automations: { zap: { ttl: 10m } }").start().await;
    let url = "https://zapier.com/app/history/1";
    let claim = json!({ "automation": "zap", "idempotency_key": "z_1", "run_url": url });
    let owner = gate.api.claim_with(&claim).await;
    gate.api.error(&owner, &json!({ "note": "field missing" })).await.ok();
    let refused = gate.api.run_now(&owner.claim_id).await.problem(409, "no_runner");
    assert_eq!(refused["run_url"], url);
    assert_eq!(gate.api.show(&owner.claim_id).await["processing_state"], "error");
}
