//! Finding claims again: cursors, ages, groups, exports.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::harness::{Gate, Setup, eventually, hours, mins};

async fn gate() -> Gate {
    Setup::alone("automations: { story: { ttl: 10m } }").start().await
}

#[tokio::test]
async fn a_cursor_is_good_for_its_own_list_only() {
    let gate = gate().await;
    for n in 0..6 {
        gate.api.claim("story", &format!("s_{n}")).await;
    }
    let first = gate.api.get("/v1/claims?state=processing&limit=2").await.ok();
    let cursor = first["next_cursor"].as_str().unwrap();
    let next = gate.api.get(&format!("/v1/claims?state=processing&limit=3&cursor={cursor}")).await.ok();
    assert_eq!(next["claims"][0]["idempotency_key"], "s_3");
    let mut forged = cursor.to_owned();
    forged.replace_range(10..11, if &cursor[10..11] == "A" { "B" } else { "A" });
    for path in [
        format!("/v1/claims?cursor={cursor}"),
        format!("/v1/claims?state=done&cursor={cursor}"),
        format!("/v1/claims?state=processing&order=oldest&cursor={cursor}"),
        format!("/v1/audit?cursor={cursor}"),
        format!("/v1/claims?state=processing&cursor={forged}"),
        "/v1/claims?cursor=3".to_owned(),
        "/v1/claims?cursor=%00".to_owned(),
    ] {
        let problem = gate.api.get(&path).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], "cursor", "{path}");
    }
}

#[tokio::test]
async fn claims_are_found_by_what_a_person_remembers() {
    let gate = gate().await;
    let claim = json!({
        "automation": "story", "idempotency_key": "Form:8812", "record": "crm:ann@example.com",
        "run_id": "exec-7", "run_url": "https://zapier.com/runs/77"
    });
    let old = gate.api.claim_with(&claim).await;
    gate.api.error(&old, &json!({ "note": "CRM said NO" })).await.ok();
    gate.advance_wall(hours(2));
    gate.api.claim("story", "other").await;
    let tag = json!({ "reason": "twins", "tag": "import 7" });
    assert_eq!(gate.api.act("tag", &old.claim_id, &tag).await.ok()["tag"], "import 7");
    for (query, found) in [
        ("q=form%3A88", true),
        ("q=said+no", true),
        ("q=ANN%40example", true),
        ("q=runs%2F77", true),
        ("q=8813", false),
        ("record=crm%3Aann%40example.com", true),
        ("record=crm%3Abob", false),
        ("run_id=exec-7", true),
        ("run_id=exec-8", false),
        ("tag=import+7", true),
        ("tag=import", false),
        ("error_cause=failed", true),
        ("error_cause=stale", false),
        ("older_than=1h", true),
        ("older_than=3h", false),
        ("older_than=1h&newer_than=3h", true),
        ("parked=needs_replay", false),
        ("order=oldest&limit=1", true),
    ] {
        let keys: Vec<_> =
            gate.api.list(query).await.iter().map(|row| row["idempotency_key"].clone()).collect();
        assert_eq!(keys, if found { vec![json!("Form:8812")] } else { vec![] }, "{query}");
    }
    for (query, field) in [
        ("older_than=10", "older_than"),
        ("error_cause=x", "error_cause"),
        ("parked=x", "parked"),
        ("order=up", "order"),
        ("by=age", "by"),
    ] {
        let problem = gate.api.get(&format!("/v1/claims?{query}")).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field);
    }
}

/// Claims as an upgrade or an import brings them, without 5,133 calls.
fn insert_stuck(gate: &Gate) -> i64 {
    let mut db = Connection::open(gate.database()).unwrap();
    db.busy_timeout(mins(1)).unwrap();
    let now = gate.now().as_millis();
    let tx = db.transaction().unwrap();
    for n in 0..42 {
        tx.execute(
            "INSERT INTO automations (workspace_id, name, created_at) VALUES (1, ?1, ?2)",
            params![format!("flow {n}"), now],
        )
        .unwrap();
    }
    let first: i64 =
        tx.query_row("SELECT id FROM automations WHERE name = 'flow 0'", [], |r| r.get(0)).unwrap();
    for n in 0..5_133_i64 {
        // From one to 91 days old.
        let started = now - 86_400_000 * (1 + n % 91);
        tx.execute(
            "INSERT INTO claims (claim_id, workspace_id, automation_id, idempotency_key, processing_state, version, \
             attempt, generation, opened_at, holder, processing_started_at, lease_renewed, lease_ttl, lease_expires, \
             created_at, updated_at) VALUES (?1, 1, ?2, ?3, 'processing', 1, 1, 1, ?4, 'caller', ?4, -900000, 600000, \
             -300000, ?4, ?4)",
            params![&u128::to_be_bytes(n as u128 + 1)[..], first + n % 42, format!("contact:{n}"), started],
        )
        .unwrap();
    }
    tx.commit().unwrap();
    now
}

#[tokio::test]
async fn c25_thousands_of_stuck_claims_are_seen_in_groups_and_marked_by_group() {
    let mut gate = gate().await;
    let now = insert_stuck(&gate);
    gate.restart().await;
    assert_eq!(gate.api.inbox().await["stuck"], 5_133);
    let asked = tokio::time::Instant::now();
    let groups = gate.api.get("/v1/claims/groups?by=automation,age&inbox=stuck").await.ok();
    assert!(asked.elapsed() < std::time::Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(groups["total"], 5_133);
    let rows = groups["groups"].as_array().unwrap();
    assert_eq!(rows.iter().map(|g| g["count"].as_u64().unwrap()).sum::<u64>(), 5_133);
    let oldest = rows.iter().map(|g| g["oldest_at"].as_str().unwrap()).min().unwrap();
    assert_eq!(crate::harness::at(oldest).as_millis(), now - 91 * 86_400_000);
    let automations = gate.api.get("/v1/claims/groups?by=automation&inbox=stuck").await.ok();
    assert_eq!(automations["groups"].as_array().unwrap().len(), 42);
    let list = gate.api.get("/v1/automations?limit=50").await.ok();
    assert_eq!(list["automations"].as_array().unwrap().len(), 42);
    assert_eq!(list["automations"][0]["inbox"]["stuck"], 122);

    // One group, marked and tagged; whatever a person does not touch stays as it is.
    let group = json!({ "inbox": "stuck", "automation": "flow 7", "older_than": "30d" });
    let mut act =
        json!({ "action": "mark_error", "tag": "left over", "filter": group, "reason": "hung since May" });
    let count = gate.api.post("/v1/bulk", &act).await.ok();
    let meant = count["matched"].as_u64().unwrap();
    let counted = rows.iter().find(|g| g["automation"] == "flow 7" && g["age"] == ">30d").unwrap();
    assert_eq!(counted["count"], meant);
    act["expect"] = meant.into();
    let id = gate.api.post("/v1/bulk", &act).await.ok()["bulk_id"].clone();
    eventually("the group is marked", async || {
        let bulk = gate.api.get(&format!("/v1/bulk/{id}")).await.ok();
        (bulk["state"] == "finished" && bulk["acted"] == meant).then_some(())
    })
    .await;
    let counts = gate.api.inbox().await;
    assert_eq!((counts["stuck"], counts["error"]), (5_133 - meant, meant));
    let tagged = gate.api.get("/v1/claims/groups?by=automation&tag=left%20over").await.ok();
    assert_eq!(tagged["total"], meant);
    let ran = gate.api.list("state=processing&newer_than=1h").await;
    assert_eq!(ran.len(), 0, "nothing is run again by itself");
}

const FORMULAS: [&str; 4] = ["=HYPERLINK(\"http://x.example\",\"open\")", "+1", "-2", "@a"];

#[tokio::test]
async fn c101_an_exported_list_opens_as_text_and_reads_back_as_it_was() {
    let gate = gate().await;
    let mut ids = Vec::new();
    for key in FORMULAS.into_iter().chain(["'quoted", "two\u{2028}lines", "plain, with \"quotes\""]) {
        let claimed = gate.api.claim("story", key).await;
        gate.api.error(&claimed, &json!({ "note": "=1+1" })).await.ok();
        ids.push((claimed.claim_id, key));
    }
    let said = gate.api.get("/v1/claims/export?format=csv&inbox=error").await;
    assert_eq!(said.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(said.header("content-disposition"), Some("attachment; filename=\"claims.csv\""));
    let Value::String(file) = said.ok() else { panic!("no text") };
    let mut reader = csv::Reader::from_reader(file.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), ids.len());
    let at = |name: &str| columns.iter().position(|c| c == name).unwrap();
    for (row, (id, key)) in rows.iter().zip(&ids) {
        for cell in row {
            assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "a spreadsheet computes {cell:?}");
        }
        let read = oncegate_core::csv_cell::unescape(&row[at("idempotency_key")]);
        assert_eq!((&row[at("claim_id")], read), (id.as_str(), *key));
        assert_eq!(oncegate_core::csv_cell::unescape(&row[at("note")]), "=1+1");
        // The key that was read back is the key of the same claim.
        assert_eq!(&gate.api.claim("story", read).await.is("stop needs_review").claim_id, id);
    }
    let Value::String(lines) = gate.api.get("/v1/claims/export?format=jsonl").await.ok() else { panic!() };
    let keys: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["idempotency_key"].clone())
        .collect();
    assert_eq!(keys, ids.iter().map(|(_, key)| json!(key)).collect::<Vec<_>>());
    gate.api.get("/v1/claims/export?format=xls").await.problem(422, "invalid_field");
}

#[tokio::test]
async fn a_long_history_has_pages() {
    let gate = gate().await;
    let claimed = gate.api.claim("story", "s").await;
    for _ in 0..6 {
        gate.api.claim("story", "s").await.is("stop in_progress");
    }
    let path = format!("/v1/claims/{}/history?limit=3", claimed.claim_id);
    let first = gate.api.get(&path).await.ok();
    assert_eq!(first["history"][0]["kind"], "run");
    let next = format!("{path}&cursor={}", first["next_cursor"].as_str().unwrap());
    assert_eq!(gate.api.get(&next).await.ok()["history"].as_array().unwrap().len(), 3);
}

/// A search that finds nothing must not hold a reader until it has seen everything.
#[tokio::test]
async fn a_search_goes_on_page_by_page_where_it_ended_early() {
    let mut gate = gate().await;
    gate.api.claim("story", "the oldest of all").await;
    gate.stop().await;
    {
        let mut db = Connection::open(gate.database()).unwrap();
        let tx = db.transaction().unwrap();
        for n in 0..45_000_i64 {
            tx.execute(
                "INSERT INTO claims (claim_id, workspace_id, automation_id, idempotency_key, processing_state, version, \
                 attempt, generation, opened_at, done_at, retain_until, created_at, updated_at) \
                 VALUES (?1, 1, (SELECT max(id) FROM automations), ?2, 'done', 1, 1, 1, ?3, ?3, ?4, ?3, ?3)",
                params![&u128::to_be_bytes(n as u128 + 1)[..], format!("k{n}"), gate.now().as_millis(), i64::MAX],
            )
            .unwrap();
        }
        tx.commit().unwrap();
    }
    gate.reopen().await;
    let (mut found, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = gate.api.get(&format!("/v1/claims?q=Oldest{cursor}")).await.ok();
        found.extend(page["claims"].as_array().unwrap().iter().map(|c| c["idempotency_key"].clone()));
        pages += 1;
        let Some(next) = page["next_cursor"].as_str() else { break };
        assert!(page["searched_until"].is_string(), "it says how far it came: {page}");
        cursor = format!("&cursor={next}");
    }
    assert_eq!((pages, found), (3, vec![json!("the oldest of all")]));
    // By an index nothing is skipped over.
    let page = gate.api.get("/v1/claims?state=processing").await.ok();
    assert_eq!((page["claims"].as_array().unwrap().len(), &page["next_cursor"]), (1, &json!(null)));
}
