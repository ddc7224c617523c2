//! Schedules: what was missed, what was not asked for yet, and what is shown of them.
#![expect(clippy::disallowed_methods, reason = "one test writes a configuration")]

use serde_json::json;

use crate::cases::schedules::{has_looked, told};
use crate::cli::{bare, ended, run};
use crate::harness::{Gate, Receiver, Setup, at, eventually, hours, mins};

fn yaml(schedule: &str) -> String {
    format!(
        "
automations:
  sync: {{ steps: [{{ name: run, http: {{ url: '$RECEIVER/run', json: {{ at: '{{{{ payload.slot }}}}' }} }}, repeat: by_key }}] }}
sources:
  nightly: {{ automation: sync, schedule: {{ {schedule} }} }}
"
    )
}

async fn started(schedule: &str, receiver: &Receiver, from: &str) -> Gate {
    let gate = Setup::new(&yaml(schedule), receiver).starts_at(at(from)).start().await;
    has_looked(&gate, "nightly").await;
    gate
}

/// Until when its slots were dealt with.
async fn counts_from(gate: &Gate) -> String {
    let shown = gate.api.get("/v1/sources/nightly").await.ok();
    shown["counts_from"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn what_was_missed_runs_once_or_not_at_all_and_is_told() {
    const DAILY: &str = "at: '01:30', zone: UTC";
    for (schedule, back, slot, says) in [
        (DAILY.to_owned(), "2026-01-05T02:10:00Z", Some("2026-01-05T01:30"), None),
        (format!("{DAILY}, missed: skip"), "2026-01-05T01:34:00Z", Some("2026-01-05T01:30"), None),
        (
            format!("{DAILY}, missed: skip"),
            "2026-01-05T02:10:00Z",
            None,
            Some("did not run its slot `2026-01-05T01:30`: the gate did not look in time"),
        ),
        (
            DAILY.to_owned(),
            "2026-01-08T02:10:00Z",
            Some("2026-01-08T01:30"),
            Some("3 of its slots, `2026-01-05T01:30` to `2026-01-07T01:30`"),
        ),
        (
            "every: 1h".to_owned(),
            "2026-01-13T08:10:00Z",
            Some("2026-01-13T08:00Z"),
            Some("199 of its slots, `2026-01-05T01:00Z` to `2026-01-13T07:00Z`"),
        ),
        (
            "at: '01:30', zone: UTC, dates: 5".to_owned(),
            "2026-01-06T01:40:00Z",
            None,
            Some("nothing stands in for what came too late"),
        ),
    ] {
        let receiver = Receiver::start().await;
        let mut gate = started(&schedule, &receiver, "2026-01-05T00:50:00Z").await;
        gate.stop().await;
        gate.clock.set_wall(at(back));
        gate.reopen().await;
        eventually(&format!("{schedule} is looked at"), async || {
            (counts_from(&gate).await.as_str() >= &back[..19]).then_some(())
        })
        .await;
        let count = usize::from(slot.is_some());
        let runs = receiver.got("/run", count).await;
        assert_eq!(runs.first().map(|run| run.json()), slot.map(|slot| json!({ "at": slot })), "{schedule}");
        let words = told(&gate, "missed_slots").await;
        match says {
            None => assert_eq!(words, None, "{schedule}"),
            Some(says) => {
                assert!(words.as_ref().is_some_and(|(n, words)| *n == 1 && words.contains(says)), "{words:?}")
            }
        }
        gate.restart().await;
        gate.crash();
        gate.reopen().await;
        // The next one that comes is the next one that runs.
        let next = gate.api.get("/v1/sources/nightly").await.ok()["next"][0].clone();
        gate.clock.advance(at(next["instant"].as_str().unwrap()).since(gate.now()));
        let runs = receiver.got("/run", count + 1).await;
        assert_eq!((runs.len(), &runs[count].json()["at"]), (count + 1, &next["slot"]), "{schedule}");
    }
}

#[tokio::test]
async fn what_was_not_asked_for_yet_does_not_run() {
    let receiver = Receiver::start().await;
    let mut gate = started("at: '09:00', zone: UTC", &receiver, "2026-01-05T10:00:00Z").await;
    gate.advance_to(at("2026-01-06T09:00:00Z")).await;
    receiver.got("/run", 1).await;
    // An hour that has passed today, declared only now.
    gate.advance_to(at("2026-01-06T12:00:00Z")).await;
    gate.restart_with(|yaml| yaml.replace("'09:00'", "'11:00'")).await;
    eventually("it counts anew", async || {
        (counts_from(&gate).await.as_str() >= "2026-01-06T12:00:00").then_some(())
    })
    .await;
    gate.advance_to(at("2026-01-07T10:59:55Z")).await;
    assert_eq!(receiver.requests().len(), 1, "neither 11:00 of yesterday nor 09:00 of today");
    gate.advance_to(at("2026-01-07T11:00:00Z")).await;
    let runs = receiver.got("/run", 2).await;
    assert_eq!(runs[1].json(), json!({ "at": "2026-01-07T11:00" }));
    assert_eq!(told(&gate, "missed_slots").await, None);
}

#[tokio::test]
async fn a_person_sees_what_runs_next_and_what_ran_last() {
    let receiver = Receiver::start().await;
    let schedule = "at: ['18:00', '01:30'], zone: America/New_York, days: [weekdays, sun]";
    let gate = started(schedule, &receiver, "2026-03-06T22:59:00Z").await;
    gate.advance_to(at("2026-03-06T23:00:00Z")).await;
    receiver.got("/run", 1).await;
    let all = gate.api.get("/v1/sources").await.ok();
    assert_eq!(all["sources"], json!([]));
    let shown = &all["schedules"][0];
    assert_eq!(shown["runs"], "mon, tue, wed, thu, fri, sun at 01:30, 18:00 America/New_York");
    assert_eq!((&shown["missed"], &shown["overlap"]), (&json!("run"), &json!("skip")));
    assert_eq!(
        shown["next"][0],
        json!({
            "slot": "2026-03-08T01:30",
            "local": "2026-03-08T01:30:00-05:00",
            "zone": "America/New_York",
            "instant": "2026-03-08T06:30:00.000Z",
        })
    );
    let claim = gate.api.find("sync", "nightly:2026-03-06T18:00").await.unwrap();
    assert_eq!(
        (&shown["last"]["claim_id"], &shown["last"]["slot"]["slot"]),
        (&claim["claim_id"], &json!("2026-03-06T18:00"))
    );
    let delivered = gate.api.get(&format!("/v1/claims/{}", claim["claim_id"].as_str().unwrap())).await.ok();
    assert_eq!(delivered["history"][0]["actor"], "source:nightly", "{delivered}");
    let other = gate.bound_to("another").await;
    assert_eq!(other.get("/v1/sources").await.ok()["schedules"], json!([]));
    other.get("/v1/sources/nightly").await.problem(404, "not_found");

    let page = run(&gate, &["sources"]).ok();
    assert!(page.contains("2026-03-08 01:30") && page.contains("2026-03-08T06:30Z"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    let page = run(&gate, &["sources", "nightly"]).ok();
    assert!(page.contains("2026-03-06 18:00 America/New_York (claim "), "{page}");
    // As a person reads it who has just changed the file.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("oncegate.yaml");
    std::fs::write(&path, yaml("every: 12h").replace("$RECEIVER", "https://crm.example.com")).unwrap();
    let page = ended(bare(&["check", "--config", path.to_str().unwrap()])).ok();
    assert!(
        page.contains("1 source(s)") && page.contains("every 12h") && page.contains(":00:00+00:00"),
        "{page}"
    );
}

#[tokio::test]
async fn a_slot_that_may_have_run_before_a_restore_waits_for_a_person() {
    // The recovery ends after the schedule was looked at again, or before.
    for ends_before in [false, true] {
        let receiver = Receiver::start().await;
        let mut gate = started("at: '01:30', zone: UTC", &receiver, "2026-01-05T10:00:00Z").await;
        let made = gate.api.post("/v1/backup", &json!({})).await.ok();
        gate.clock.advance(hours(15) + mins(30));
        receiver.got("/run", 1).await;
        gate.clock.advance(mins(40));
        gate.restore(std::path::Path::new(made["path"].as_str().unwrap()));
        if ends_before {
            let data = gate.database().parent().unwrap().display().to_string();
            ended(bare(&["recovery", "end", "--data", &data, "--reason", "looked", "--by", "mara"])).ok();
        }
        gate.reopen().await;
        let claim = eventually("the slot comes again", async || {
            gate.api.find("sync", "nightly:2026-01-06T01:30").await
        })
        .await;
        assert_eq!(claim["parked"], "restored", "{ends_before}: {claim}");
        if !ends_before {
            gate.api.post("/v1/recovery/end", &json!({ "reason": "looked" })).await.ok();
        }
        gate.clock.advance(hours(23) + mins(20));
        let runs = receiver.got("/run", 2).await;
        let days: Vec<_> = runs.iter().map(|run| run.json()["at"].as_str().unwrap().to_owned()).collect();
        assert_eq!(days, ["2026-01-06T01:30", "2026-01-07T01:30"], "each once, and the next as ever");
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_by_months_holds_nothing_up() {
    let receiver = Receiver::start().await;
    let gate = started("at: ['09:00', '11:00'], zone: UTC", &receiver, "2026-01-05T10:00:00Z").await;
    gate.clock.set_wall(at("2026-06-05T12:00:00Z"));
    receiver.got("/run", 1).await;
    // Somebody mends it.
    gate.clock.set_wall(at("2026-01-05T10:05:00Z"));
    eventually("it counts from where the clock stands", async || {
        counts_from(&gate).await.starts_with("2026-01-05").then_some(())
    })
    .await;
    gate.clock.advance(mins(55));
    let runs = receiver.got("/run", 2).await;
    assert_eq!(runs[1].json(), json!({ "at": "2026-01-05T11:00" }));
}
