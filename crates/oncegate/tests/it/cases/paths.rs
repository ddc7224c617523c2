//! One table of answers, whichever way a key comes in.

use serde_json::json;

use crate::harness::{Gate, Receiver, Setup, WELCOME, mins};

/// How each state of a key is answered (DESIGN §3).
const TABLE: [(&str, &str); 7] = [
    ("none", "run first"),
    ("reset", "run first"),
    ("fresh", "stop in_progress"),
    ("stale", "run stale_retry"),
    ("done", "stop duplicate"),
    ("error", "stop needs_review"),
    ("retry", "stop backing_off"),
];
const PATHS: [&str; 3] = ["api", "batch", "intake"];

async fn bring_about(gate: &Gate, state: &str) {
    for path in PATHS {
        if state == "none" {
            continue;
        }
        let claimed = gate.api.claim("welcome", &format!("{state}-{path}")).await;
        match state {
            "done" => drop(gate.api.done(&claimed).await.ok()),
            "error" => drop(gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok()),
            "retry" => {
                let retry = json!({ "retryable": true, "retry_after": "2h" });
                gate.api.error(&claimed, &retry).await.ok();
            }
            "reset" => {
                gate.api.error(&claimed, &json!({ "note": "boom" })).await.ok();
                gate.api.reset(&claimed.claim_id).await.ok();
            }
            _ => {}
        }
    }
}

/// What the gate said, in the words of the table.
async fn offer(gate: &Gate, path: &str, key: &str) -> String {
    let claim = json!({ "automation": "welcome", "idempotency_key": key });
    match path {
        "api" => gate.api.claim_with(&claim).await.words(),
        "batch" => {
            let said = gate.api.post("/v1/claims/batch", &json!({ "claims": [claim] })).await.ok();
            let told = &said["results"][0];
            format!("{} {}", told["decision"].as_str().unwrap(), told["reason"].as_str().unwrap())
        }
        _ => {
            let known = match gate.api.find("welcome", key).await {
                Some(claim) => claim["history"].as_array().unwrap().len(),
                None => 0,
            };
            let said = gate.api.order(&json!({ "order": key })).await.ok();
            let claim = gate.api.find("welcome", key).await.unwrap();
            let row = claim["history"][known].clone();
            let (kind, reason) = (row["kind"].as_str().unwrap(), row["reason"].as_str().unwrap());
            // The event waits for the runner, which is told the same again when it starts.
            assert_eq!(said["status"] == "accepted", kind == "queued", "{key}: {said} {row}");
            format!("{} {reason}", if kind == "queued" { "run" } else { kind })
        }
    }
}

#[tokio::test]
async fn c49_one_table_of_answers_whichever_way_in() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(WELCOME, &receiver).start().await;
    bring_about(&gate, "stale").await;
    gate.advance(mins(11)).await;
    for (state, _) in TABLE.iter().filter(|(state, _)| *state != "stale") {
        bring_about(&gate, state).await;
    }
    for (state, answer) in TABLE {
        for path in PATHS {
            let key = format!("{state}-{path}");
            assert_eq!(offer(&gate, path, &key).await, answer, "{state} by {path}");
        }
    }
    // A final error is not run by asking again, however often and whichever way, until a person resets it.
    for key in PATHS.map(|path| format!("error-{path}")) {
        for path in PATHS {
            assert_eq!(offer(&gate, path, &key).await, "stop needs_review", "{key} by {path}");
        }
        let id = gate.api.find("welcome", &key).await.unwrap()["claim_id"].as_str().unwrap().to_owned();
        gate.api.reset(&id).await.ok();
    }
    for path in PATHS {
        assert_eq!(offer(&gate, path, &format!("error-{path}")).await, "run first", "{path}");
    }
}
