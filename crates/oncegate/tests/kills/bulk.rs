//! An act on many claims, killed in its middle.

use oncegate_store::failpoint::BULK_PLACES;
use serde_json::{Value, json};

use crate::world::{Ground, Site, until};

const CLAIMS: usize = 900;

/// Five chunks; the gate dies around the third of them, and the fourth.
#[test]
fn a_bulk_reset_killed_in_its_middle_acts_on_every_claim_exactly_once() {
    for (place, nth) in BULK_PLACES.into_iter().flat_map(|place| [(place, 3), (place, 4)]) {
        let ground = Ground::new(&format!("bulk-{place}-{nth}"));
        let site = Site::new(&ground, "automations: { story: { ttl: 10m } }\n");
        let failpoint = format!("{place}@{nth}");
        let gate = site.start(Some(&failpoint));
        for from in [0, CLAIMS / 2] {
            let claims: Vec<Value> = (from..from + CLAIMS / 2)
                .map(|n| json!({ "automation": "story", "idempotency_key": format!("s_{n}") }))
                .collect();
            let made = gate.post("/v1/claims/batch", &json!({ "claims": claims })).unwrap();
            assert!(made["results"].as_array().unwrap().iter().all(|r| r["decision"] == "run"));
        }
        let act = json!({
            "action": "mark_error", "tag": "mass duplicates", "reason": "the import ran twice",
            "filter": { "automation": "story" }, "expect": CLAIMS,
        });
        // The place may be reached before the answer is.
        let _ = gate.post("/v1/bulk", &act);
        gate.dies(&failpoint);

        let gate = site.start(None);
        let bulk = until("the act goes on", || {
            let bulk = gate.get("/v1/bulk/1");
            (bulk["state"] == "finished").then_some(bulk)
        });
        assert_eq!((&bulk["acted"], &bulk["refused"]), (&json!(CLAIMS), &json!({})), "{failpoint}");
        assert_eq!(gate.get("/v1/inbox")["error"], CLAIMS);
        gate.terminate();
        assert!(gate.ended().success());
        let db = rusqlite::Connection::open(site.database()).unwrap();
        let acts: Vec<(i64, i64)> = db
            .prepare(
                "SELECT c.id, count(h.id) FROM claims c LEFT JOIN history h \
                 ON h.claim_row = c.id AND h.kind = 'mark_error' GROUP BY c.id",
            )
            .unwrap()
            .query_map([], |r| Ok((r.get(0)?, r.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(acts.len(), CLAIMS);
        assert!(acts.iter().all(|(_, n)| *n == 1), "{failpoint}: {acts:?}");
        let tagged: u32 = db
            .query_row("SELECT count(*) FROM claims WHERE tag = 'mass duplicates'", [], |r| r.get(0))
            .unwrap();
        assert_eq!(tagged as usize, CLAIMS);
    }
}
