//! Runs by the clock: once on each date, and not on top of one another.

use serde_json::{Value, json};

use crate::harness::{Gate, Hold, Receiver, Reply, Setup, at, eventually, mins};

/// Until it has come to this slot, or further.
async fn has_run(gate: &Gate, source: &str, slot: &str) -> Value {
    eventually(&format!("{source} comes to {slot}"), async || {
        let shown = gate.api.get(&format!("/v1/sources/{source}")).await.ok();
        shown["last"]["slot"]["slot"].as_str().is_some_and(|last| last >= slot).then_some(shown)
    })
    .await
}

async fn is_done(gate: &Gate, automation: &str, key: &str) -> Value {
    eventually(&format!("{key} is done"), async || {
        gate.api.find(automation, key).await.filter(|claim| claim["processing_state"] == "done")
    })
    .await
}

/// What was written down of slots that did not run: how often, and the last words.
pub(crate) async fn told(gate: &Gate, kind: &str) -> Option<(u64, String)> {
    let notices = gate.api.get("/v1/notices").await.ok();
    let notice = notices["notices"].as_array().unwrap().iter().find(|n| n["kind"] == kind)?;
    Some((notice["count"].as_u64().unwrap(), notice["detail"].as_str().unwrap().to_owned()))
}

#[tokio::test]
async fn c37_nightly_runs_happen_once_on_the_days_on_which_clocks_are_set() {
    let yaml = "
automations:
  early: { steps: [{ name: run, http: { url: '$RECEIVER/early', json: { at: '{{ payload.slot }}' } }, repeat: by_key }] }
  late: { steps: [{ name: run, http: { url: '$RECEIVER/late', json: { at: '{{ payload.local }}' } }, repeat: by_key }] }
  beat: { steps: [{ name: run, http: { url: '$RECEIVER/beat' }, repeat: by_key }] }
sources:
  early: { automation: early, schedule: { at: '01:30', zone: America/New_York } }
  late: { automation: late, schedule: { at: '02:30', zone: America/New_York } }
  zz-beat: { automation: beat, schedule: { every: 15m } }
";
    // 01:30 comes at 05:30Z, and again at 06:30Z.
    let receiver = Receiver::start().await;
    let mut gate = Setup::new(yaml, &receiver).starts_at(at("2026-11-01T05:20:00Z")).start().await;
    has_looked(&gate, "early").await;
    gate.advance_to(at("2026-11-01T05:30:00Z")).await;
    let runs = receiver.got("/early", 1).await;
    assert_eq!(runs[0].json(), json!({ "at": "2026-11-01T01:30" }));
    is_done(&gate, "early", "early:2026-11-01T01:30").await;
    // Within the repeated hour it is restarted, killed, and its clock is set back over the slot.
    gate.restart().await;
    gate.crash();
    gate.reopen().await;
    has_run(&gate, "zz-beat", "2026-11-01T05:30Z").await;
    gate.clock.set_wall(at("2026-11-01T05:20:00Z"));
    for beat in
        ["2026-11-01T05:45:00Z", "2026-11-01T06:30:00Z", "2026-11-01T06:45:00Z", "2026-11-01T07:00:00Z"]
    {
        gate.advance_to(at(beat)).await;
        has_run(&gate, "zz-beat", &beat.replace(":00Z", "Z")).await;
    }
    assert_eq!(receiver.to("/early").len(), 1, "once in November");
    let next = gate.api.get("/v1/sources/early").await.ok()["next"][0].clone();
    assert_eq!(
        (&next["local"], &next["instant"]),
        (&json!("2026-11-02T01:30:00-05:00"), &json!("2026-11-02T06:30:00.000Z"))
    );

    // 02:30 does not come at all.
    let receiver = Receiver::start().await;
    let gate = Setup::new(yaml, &receiver).starts_at(at("2026-03-08T06:50:00Z")).start().await;
    has_looked(&gate, "late").await;
    gate.advance_to(at("2026-03-08T06:59:55Z")).await;
    assert_eq!(receiver.to("/late").len(), 0);
    gate.advance_to(at("2026-03-08T07:00:00Z")).await;
    let runs = receiver.got("/late", 1).await;
    assert_eq!(runs[0].json(), json!({ "at": "2026-03-08T03:00:00-04:00" }));
    for beat in ["2026-03-08T07:30:00Z", "2026-03-08T07:45:00Z"] {
        gate.advance_to(at(beat)).await;
        has_run(&gate, "zz-beat", &beat.replace(":00Z", "Z")).await;
    }
    assert_eq!(receiver.to("/late").len(), 1, "once in March");
    is_done(&gate, "late", "late:2026-03-08T02:30").await;
}

/// Until the schedule has a place to count from.
pub(crate) async fn has_looked(gate: &Gate, source: &str) {
    eventually(&format!("{source} is looked at"), async || {
        let shown = gate.api.get(&format!("/v1/sources/{source}")).await.ok();
        (!shown["counts_from"].is_null()).then_some(())
    })
    .await;
}

fn import(overlap: &str) -> String {
    format!(
        "
automations:
  import: {{ steps: [{{ name: run, http: {{ url: '$RECEIVER/import', json: {{ at: '{{{{ payload.slot }}}}' }} }}, repeat: by_key }}] }}
sources:
  sheet: {{ automation: import, schedule: {{ every: 15m, overlap: {overlap} }} }}
"
    )
}

#[tokio::test]
async fn c57_a_run_that_takes_longer_than_its_interval_is_not_overtaken() {
    for (overlap, by_a_quarter_to) in
        [("skip", vec!["10:00", "10:45"]), ("queue", vec!["10:00", "10:30", "10:45"])]
    {
        let receiver = Receiver::start().await;
        let hold = Hold::new();
        receiver.script("/import", [Reply::held(&hold)]);
        let gate =
            Setup::new(&import(overlap), &receiver).starts_at(at("2026-01-05T09:59:00Z")).start().await;
        has_looked(&gate, "sheet").await;
        gate.advance_to(at("2026-01-05T10:00:00Z")).await;
        receiver.got("/import", 1).await;
        gate.advance_to(at("2026-01-05T10:15:00Z")).await;
        let passed = async |slot: &str| match overlap {
            "skip" => told(&gate, "skipped_slots")
                .await
                .filter(|(_, words)| words.contains(&format!("slot `{slot}`"))),
            _ => {
                let shown = gate.api.get("/v1/sources/sheet").await.ok();
                (shown["waiting"]["slot"] == slot).then_some((0, String::new()))
            }
        };
        let (_, words) =
            eventually("the first tick is passed over", async || passed("2026-01-05T10:15Z").await).await;
        assert!(overlap == "queue" || words.contains("that of `2026-01-05T10:00Z` is not over"), "{words}");
        gate.advance_to(at("2026-01-05T10:20:00Z")).await;
        let claim = gate.api.find("import", "sheet:2026-01-05T10:00Z").await.unwrap();
        gate.api.run_now(claim["claim_id"].as_str().unwrap()).await.problem(409, "already_running");
        gate.advance_to(at("2026-01-05T10:30:00Z")).await;
        eventually("the second tick is passed over", async || passed("2026-01-05T10:30Z").await).await;
        assert_eq!(
            receiver.to("/import").len(),
            1,
            "{overlap}: two nodes, two ticks and a person started nothing"
        );

        gate.advance_to(at("2026-01-05T10:40:00Z")).await;
        hold.let_go();
        is_done(&gate, "import", "sheet:2026-01-05T10:00Z").await;
        if overlap == "queue" {
            receiver.got("/import", 2).await;
            is_done(&gate, "import", "sheet:2026-01-05T10:30Z").await;
        }
        gate.advance_to(at("2026-01-05T10:45:00Z")).await;
        let runs = receiver.got("/import", by_a_quarter_to.len()).await;
        let slots: Vec<_> =
            runs.iter().map(|run| run.json()["at"].as_str().unwrap()[11..16].to_owned()).collect();
        assert_eq!(slots, by_a_quarter_to, "{overlap}");
        // What did not run can be seen, each of them once.
        let (count, words) = told(&gate, "skipped_slots").await.unwrap();
        assert_eq!(count, if overlap == "skip" { 2 } else { 1 }, "{words}");
        assert!(overlap == "skip" || words.contains("slot `2026-01-05T10:15Z`"), "{words}");
    }
}

#[tokio::test]
async fn c57_schedules_of_a_paused_automation_do_not_pile_up() {
    let receiver = Receiver::start().await;
    let gate = Setup::new(&import("skip"), &receiver).starts_at(at("2026-01-05T09:59:00Z")).start().await;
    has_looked(&gate, "sheet").await;
    gate.api.pause("import").await.ok();
    for (tick, count) in [("10:00", None), ("10:15", Some(1)), ("10:30", Some(2))] {
        gate.advance_to(at(&format!("2026-01-05T{tick}:00Z"))).await;
        eventually("it is looked at", async || {
            let is_told = told(&gate, "skipped_slots").await.map(|(count, _)| count) == count;
            (is_told && gate.api.find("import", "sheet:2026-01-05T10:00Z").await.is_some()).then_some(())
        })
        .await;
    }
    assert_eq!(gate.api.list("automation=import").await.len(), 1, "one waits");
    assert_eq!(receiver.requests().len(), 0);
    gate.api.resume("import").await.ok();
    receiver.got("/import", 1).await;
    is_done(&gate, "import", "sheet:2026-01-05T10:00Z").await;
    gate.advance(mins(15)).await;
    receiver.got("/import", 2).await;
}
