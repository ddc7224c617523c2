//! APIs that are asked what is new.

use oncegate_core::time::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Reply, Setup, at, eventually};

/// A source that polls `api`, with more members of it and of its `poll`, and an automation that tells `crm` of each
/// item.
pub(crate) fn polling(members: &str, poll: &str, api: &Receiver, crm: &Receiver) -> Setup {
    Setup::alone(&format!(
        "
outgoing: {{ allow_private: ['{}', '{}'] }}
automations:
  sync: {{ steps: [{{ name: put, http: {{ url: '{}/put', json: {{ id: '{{{{ payload.id }}}}' }} }}, repeat: by_key }}] }}
sources:
  contacts:
    automation: sync
    {members}
    poll:
      url: '{}/contacts?since={{{{ cursor }}}}'
      cursor: updated_at
      items: results
      {poll}
",
        api.address,
        crm.address,
        crm.url(),
        api.url(),
    ))
}

/// `r1` of 10:00:05 as `r1@10:00:05`.
pub(crate) fn page(items: &[&str]) -> Value {
    let item = |item: &&str| {
        let (id, time) = item.split_once('@').unwrap();
        json!({ "id": id, "updated_at": format!("2026-01-05T{time}Z") })
    };
    json!({ "results": items.iter().map(item).collect::<Vec<_>>() })
}

pub(crate) async fn shown(gate: &Gate) -> Value {
    gate.api.get("/v1/sources/contacts").await.ok()
}

/// Waits until a poll that began at this moment, or later, came to its end.
pub(crate) async fn has_polled(gate: &Gate, since: Timestamp) -> Value {
    eventually(&format!("a poll ended since {since}"), async || {
        let shown = shown(gate).await;
        let ended = shown["last_at"].as_str().is_some_and(|ended| at(ended) >= since);
        (ended && shown["under_way"] == false).then_some(shown)
    })
    .await
}

/// What reached the other side, as often as it did.
pub(crate) fn effects(crm: &Receiver) -> Vec<String> {
    let mut ids: Vec<String> =
        crm.to("/put").iter().map(|put| put.json()["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn c63_what_is_shown_later_of_the_boundary_second_runs_once_and_so_does_what_was_shown_before() {
    // With the second read back that is the least that can be declared, and with what is read back by default.
    for overlap in ["overlap: 1s", ""] {
        let (api, crm) = (Receiver::start().await, Receiver::start().await);
        let poll = format!("every: 1m\n      start: '2026-01-05T10:00:00Z'\n      {overlap}");
        api.always("/contacts", Reply::json(&page(&["r1@10:00:05"])));
        let setup = polling("key: [id, updated_at]", &poll, &api, &crm);
        let gate = setup.starts_at(at("2026-01-05T10:00:06Z")).start().await;
        has_polled(&gate, at("2026-01-05T10:00:06Z")).await;
        crm.got("/put", 1).await;
        // It becomes visible at 10:00:07.
        api.always("/contacts", Reply::json(&page(&["r1@10:00:05", "r2@10:00:05"])));
        for (when, effects_by_then) in [("10:01:06", 2), ("10:02:06", 2)] {
            gate.advance_to(at(&format!("2026-01-05T{when}Z"))).await;
            has_polled(&gate, gate.now()).await;
            crm.got("/put", effects_by_then).await;
        }
        assert_eq!(effects(&crm), ["r1", "r2"], "each exactly once");
        let asked = api.to("/contacts");
        assert_eq!(asked.len(), 3, "of nodes that look at once, one asks");
        for asked in &asked[1..] {
            let since = asked.path.split_once("since=").unwrap().1.replace("%3A", ":");
            assert!(at(&since) < at("2026-01-05T10:00:05Z"), "an API that shows only what is later: {since}");
        }
    }
}
