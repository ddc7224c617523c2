//! News for which the store has no room, or no time, at the moment.

use serde_json::json;

use crate::harness::{Gate, Hold, Receiver, Reply, Setup, WELCOME, eventually};
use crate::promises::{in_state, order, started, step, yaml};

/// Takes a while, so that the tries of a moment are not over before the test has made room.
const A_WHILE: &str =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000) SELECT";

fn database(gate: &Gate) -> rusqlite::Connection {
    rusqlite::Connection::open(gate.database()).unwrap()
}

/// Writes in between the tries of the gate, which take the lock again and again and leave it for a moment only: SQLite's
/// own wait looks ten times a second and may miss them all.
async fn write(db: &rusqlite::Connection, sql: &str) {
    db.busy_timeout(std::time::Duration::ZERO).unwrap();
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = db.execute_batch(&format!("BEGIN IMMEDIATE; {sql}; COMMIT")) {
        let is_busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
        assert!(is_busy && tokio::time::Instant::now() < until, "{error}");
        tokio::task::yield_now().await;
    }
}

/// Waits until the step was answered, and the writer has been asked other things since.
async fn answered(gate: &Gate, receiver: &Receiver) {
    eventually("it is answered", async || (receiver.requests()[0].answered == Some(200)).then_some(())).await;
    for n in 0..4 {
        // Whatever it says: there may be no room for it.
        let claim = json!({ "automation": "story", "idempotency_key": format!("s_{n}") });
        gate.api.post("/v1/claims", &claim).await;
    }
}

#[tokio::test]
async fn what_happened_is_written_down_once_the_store_can_write_again() {
    // The write that fails: the answer of a step, the end of it all.
    for (table, when) in
        [("step_calls", "NEW.outcome = 'succeeded'"), ("claims", "NEW.processing_state = 'done'")]
    {
        let receiver = Receiver::start().await;
        let hold = Hold::new();
        receiver.script("/one", [Reply::held(&hold)]);
        let gate = started(&yaml("", &[step("one", "repeat: never")]), &receiver).await;
        receiver.got("/one", 1).await;
        let db = database(&gate);
        let broken = format!(
            "CREATE TRIGGER broken BEFORE UPDATE ON {table} WHEN {when} BEGIN {A_WHILE} json('{{' || max(i)) FROM n; END"
        );
        write(&db, &broken).await;
        hold.let_go();
        answered(&gate, &receiver).await;
        assert_eq!(in_state(&gate, 1, "processing").await["error_cause"], json!(null), "{table}");
        write(&db, "DROP TRIGGER broken").await;
        let claim = in_state(&gate, 1, "done").await;
        assert_eq!(claim["calls"][0]["outcome"], "succeeded", "{table}: {claim}");
        assert_eq!(receiver.requests().len(), 1, "{table}");
    }
}

#[tokio::test]
async fn an_answer_for_which_the_store_has_no_room_is_written_down_once_it_has() {
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    let large = Reply::Status(200, vec![], "x".repeat(200_000));
    receiver.script("/send", [Reply::Held(hold.clone(), Box::new(large))]);
    let gate = Setup::new(&WELCOME.replace("by_key", "never"), &receiver).max_bytes(1_500_000).start().await;
    order(&gate, "o_1").await;
    receiver.got("/send", 1).await;
    let mut room = 0;
    while {
        let key = format!("k_{room}");
        let heavy = json!({ "automation": "load", "idempotency_key": key, "payload": "x".repeat(40_000) });
        gate.api.post("/v1/claims", &heavy).await.status == 200
    } {
        room += 1;
        assert!(room < 50, "it never gets full");
    }
    let db = database(&gate);
    let slow = format!("CREATE TRIGGER slow BEFORE UPDATE ON step_calls BEGIN {A_WHILE} max(i) FROM n; END");
    write(&db, &slow).await;
    hold.let_go();
    answered(&gate, &receiver).await;
    assert_eq!(in_state(&gate, 1, "processing").await["calls"][0]["outcome"], "in_flight");
    write(&db, "DROP TRIGGER slow; DELETE FROM payloads WHERE length(body) >= 40000").await;
    let claim = in_state(&gate, 1, "done").await;
    assert_eq!(claim["calls"][0]["outcome"], "succeeded", "{claim}");
    assert_eq!(receiver.requests().len(), 1);
}
