//! A cause that was not mended: reset, failed again, and still seen.

use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Reply, Setup, WELCOME, eventually, mins};

/// Lets time pass until every retry has been used.
async fn out_of_retries(gate: &Gate, attempt: u32) -> Value {
    eventually("it is out of retries", async || {
        let claim = gate.api.find("welcome", "o_1").await?;
        let done =
            claim["processing_state"] == "error" && claim["attempt"] == attempt && claim["due_at"].is_null();
        if !done && claim["due_at"].is_string() {
            gate.advance_wall(mins(1));
        }
        done.then_some(claim)
    })
    .await
}

#[tokio::test]
async fn c94_a_reset_that_fails_again_is_still_one_entry_with_its_whole_story() {
    let receiver = Receiver::start().await;
    receiver.always("/send", Reply::status(500));
    // Else the person's runs would wait for a target that is down.
    let patient = format!("targets: {{ '{}': {{ breaker: {{ failures: 100 }} }} }}", receiver.address);
    let gate = Setup::new(&format!("{patient}\n{WELCOME}"), &receiver).start().await;
    let order = json!({ "order": "o_1", "items": [1, 2] });
    gate.api.order(&order).await.ok();
    let first = out_of_retries(&gate, 4).await;
    let id = first["claim_id"].as_str().unwrap();
    for (by, attempts) in [("Ann", 8), ("Bob", 12)] {
        // One person resets it alone, the other with many.
        match by {
            "Ann" => {
                let act = json!({ "reason": "try again", "by": by, "run_now": true });
                gate.api.act("reset", id, &act).await.ok();
            }
            _ => {
                let act = json!({
                    "action": "run_now", "filter": { "inbox": "error" }, "expect": 1, "reason": "try again", "by": by
                });
                gate.api.post("/v1/bulk", &act).await.ok();
            }
        }
        let claim = out_of_retries(&gate, attempts).await;
        assert_eq!((&claim["claim_id"], &claim["retries_used"]), (&json!(id), &json!(3)));
        assert_eq!(claim["payload"], order, "the payload of the first time");
        assert_eq!(gate.api.keys_in("error").await, ["o_1"], "one entry");
    }
    let claim = gate.api.show(id).await;
    let history = claim["history"].as_array().unwrap();
    let resets: Vec<_> = history.iter().filter(|row| row["kind"] == "reset_and_run").collect();
    let who: Vec<_> = resets.iter().map(|row| row["actor"].clone()).collect();
    assert_eq!(who, ["Ann (token:admin)", "Bob (token:admin)"]);
    assert!(resets.iter().all(|row| row["at"].is_string()));
    assert_eq!(history.iter().filter(|row| row["kind"] == "run").count(), 12);
    let keys: std::collections::BTreeSet<_> = receiver.by_key().into_keys().collect();
    assert_eq!(keys.len(), 1, "the same Idempotency-Key each time");
    assert_eq!(receiver.requests().len(), 12);
}
