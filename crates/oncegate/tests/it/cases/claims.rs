//! Who may run: races, takeovers and late finishers, with callers that do the work themselves.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;

use crate::harness::{ADMIN, Claimed, Dice, Gate, Receiver, Setup, at, eventually, mins, secs, send};

const TEN_MINUTES: &str = "
automations:
  story: { ttl: 10m }
";

async fn gate() -> Gate {
    Setup::alone(TEN_MINUTES).start().await
}

async fn timed(claim: impl Future<Output = Claimed>) -> Claimed {
    let asked = tokio::time::Instant::now();
    let claimed = claim.await;
    assert!(asked.elapsed() < secs(1), "a duplicate waited for {:?}", asked.elapsed());
    claimed
}

#[tokio::test]
async fn c02_one_post_starts_two_executions_and_one_of_them_runs() {
    let mail = Receiver::start().await;
    let gate = Setup::new("automations: { wf_closure: { ttl: 10m } }", &mail).start().await;
    let nodes = [gate.api.another(), gate.api.another()];
    let mut dice = Dice::roll();
    let mut executions = tokio::task::JoinSet::new();
    for n in 2_001..=2_200 {
        let together = std::sync::Arc::new(Barrier::new(2));
        for (node, gap) in nodes.iter().cloned().zip([0, dice.below(156)]) {
            let (together, mail) = (std::sync::Arc::clone(&together), mail.url());
            executions.spawn(async move {
                together.wait().await;
                tokio::time::sleep(Duration::from_millis(gap)).await;
                let claimed = node.claim("wf_closure", &format!("f_close:s_{n}")).await;
                if claimed.decision == "run" {
                    let send = node.bare(reqwest::Method::POST, &format!("{mail}/mail"));
                    let send = send.header("idempotency-key", &claimed.idempotency_key).body("Dear …");
                    assert_eq!(send.send().await.unwrap().status(), 200);
                }
                claimed
            });
        }
    }
    let answers = executions.join_all().await;
    for n in 2_001..=2_200 {
        let key = format!("f_close:s_{n}");
        let mut words: Vec<_> =
            answers.iter().filter(|a| a.idempotency_key == key).map(Claimed::words).collect();
        words.sort();
        assert_eq!(words, ["run first", "stop in_progress"], "{key}");
        let shown = gate.api.find("wf_closure", &key).await.unwrap();
        assert_eq!(shown["stopped"]["count"], 1);
        let lost = &shown["history"][1];
        assert_eq!((&lost["kind"], &lost["reason"]), (&json!("stop"), &json!("in_progress")), "{shown}");
        assert_eq!(lost["actor"], "token:admin");
    }
    assert_eq!(mail.to("/mail").len(), 200);
    assert!(mail.by_key().values().all(|count| *count == 1));
}

#[tokio::test]
async fn c03_same_event_three_times_while_a_slow_step_is_running() {
    let gate = gate().await;
    let claim = || timed(gate.api.claim("story", "story:ev_77"));
    let owner = claim().await;
    owner.is("run first");
    gate.advance(Duration::from_millis(22)).await;
    claim().await.is("stop in_progress");
    gate.advance(Duration::from_millis(22)).await;
    claim().await.is("stop in_progress");
    gate.advance_to(at("2026-01-05T10:03:59Z")).await;
    assert_eq!(claim().await.is("stop in_progress").retry_after_s, Some(361));
    gate.advance_to(at("2026-01-05T10:04:00Z")).await;
    gate.api.done_with(&owner, &json!({ "result": { "video": "v_9" } })).await.ok();
    gate.advance_to(at("2026-01-05T10:04:01Z")).await;
    let late = claim().await;
    assert_eq!(late.is("stop duplicate").result, json!({ "video": "v_9" }));
    let shown = gate.api.show(&owner.claim_id).await;
    assert_eq!((&shown["attempt"], &shown["stopped"]["count"]), (&json!(1), &json!(4)));
}

#[tokio::test]
async fn c21_killed_run_is_taken_over_once_and_then_waits_for_a_person() {
    let gate = gate().await;
    let mut runs = 0;
    for (time, words) in [
        ("2026-01-05T10:00:00Z", "run first"),
        ("2026-01-05T10:05:00Z", "stop in_progress"),
        // A database's own clock goes on meanwhile: a second before the end would be too close.
        ("2026-01-05T10:09:45Z", "stop in_progress"),
        ("2026-01-05T10:10:01Z", "run stale_retry"),
        ("2026-01-05T10:10:02Z", "stop in_progress"),
        ("2026-01-05T10:20:03Z", "stop needs_review"),
        ("2026-01-05T13:00:00Z", "stop needs_review"),
    ] {
        gate.advance_to(at(time)).await;
        let claimed = gate.api.claim("story", "s_1").await;
        claimed.is(words);
        runs += u32::from(claimed.decision == "run");
    }
    assert_eq!(runs, 2);
    let [row] = gate.api.list("inbox=error").await.try_into().unwrap();
    assert!(row["note"].as_str().unwrap().starts_with("stale twice"), "{row}");
    assert_eq!((&row["processing_state"], &row["error_cause"]), (&json!("error"), &json!("stale")));
    assert_eq!(row["due_at"], json!(null), "nothing but a person starts it again");
}

#[tokio::test]
async fn c22_takeover_is_not_given_where_a_repeat_could_pay_twice() {
    let yaml = "
automations:
  payout: { ttl: 30m, on_stale: hold }
  tag_contact: { ttl: 30m }
";
    let gate = Setup::alone(yaml).start().await;
    for automation in ["payout", "tag_contact"] {
        gate.api.claim(automation, "w_1").await.is("run first");
    }
    gate.advance(mins(31)).await;
    gate.api.claim("tag_contact", "w_1").await.is("run stale_retry");
    let payout = gate.api.claim("payout", "w_1").await;
    let note = payout.is("stop needs_review").note.clone().unwrap();
    assert!(note.contains("outcome unknown") && note.contains("check whether it happened first"), "{note}");
    let [row] = gate.api.list("inbox=error").await.try_into().unwrap();
    assert_eq!((&row["automation"], &row["due_at"]), (&json!("payout"), &json!(null)), "{row}");
}

#[tokio::test]
async fn c24_healthy_job_that_outlives_the_ttl_is_left_alone() {
    let gate = Setup::alone("automations: { job: { ttl: 5m } }").start().await;
    let owner = gate.api.claim("job", "j_1").await;
    for minute in 1..=12 {
        gate.advance(mins(1)).await;
        assert_eq!(gate.api.heartbeat(&owner).await.ok()["answer"], "accepted");
        if minute == 6 || minute == 11 {
            gate.api.claim("job", "j_1").await.is("stop in_progress");
        }
        assert_eq!(gate.api.inbox().await["stuck"], 0);
    }
    gate.api.done(&owner).await.ok();
    assert_eq!(gate.api.show(&owner.claim_id).await["attempt"], 1);

    let silent = gate.api.claim("job", "j_2").await;
    for _ in 0..7 {
        gate.advance(mins(1)).await;
        gate.api.heartbeat(&silent).await.ok();
    }
    gate.advance(mins(5) - secs(1)).await;
    gate.api.claim("job", "j_2").await.is("stop in_progress");
    gate.advance(secs(2)).await;
    assert_eq!(gate.api.keys_in("stuck").await, ["j_2"]);
    gate.api.claim("job", "j_2").await.is("run stale_retry");
}

#[tokio::test]
async fn c30_each_refusal_is_counted_and_shown() {
    let gate = gate().await;
    let owner = gate.api.claim("story", "course-9:2026-01-05T10").await;
    for _ in 0..3 {
        gate.advance(mins(2)).await;
        gate.api.claim("story", "course-9:2026-01-05T10").await.is("stop in_progress");
    }
    let [row] = gate.api.list("automation=story").await.try_into().unwrap();
    let stopped =
        json!({ "count": 3, "since": at("2026-01-05T10:02:00Z"), "last": at("2026-01-05T10:06:00Z") });
    assert_eq!(row["stopped"], stopped);
    let history = gate.api.show(&owner.claim_id).await["history"].as_array().unwrap().clone();
    assert_eq!(history.iter().filter(|row| row["kind"] == "stop").count(), 3);
    gate.advance(mins(4)).await;
    gate.api.claim("story", "course-9:2026-01-05T10").await.is("run stale_retry");
}

#[tokio::test]
async fn c31_late_finisher_after_a_takeover_changes_nothing_and_is_listed() {
    let gate = gate().await;
    let a = gate.api.claim("story", "s_1").await;
    gate.advance(mins(11)).await;
    let b = gate.api.claim("story", "s_1").await;
    b.is("run stale_retry");
    assert_ne!(a.token, b.token);
    gate.advance(mins(1)).await;
    let refused = gate.api.done(&a).await.problem(409, "lost_claim");
    assert!(refused["detail"].as_str().unwrap().contains("check for a double effect"), "{refused}");
    gate.advance(secs(30)).await;
    gate.api.error(&a, &json!({ "note": "boom" })).await.problem(409, "lost_claim");
    gate.api.heartbeat(&a).await.problem(409, "lost_claim");
    gate.advance(secs(10)).await;
    gate.api.claim("story", "s_1").await.is("stop in_progress");
    gate.advance(secs(20)).await;
    assert_eq!(gate.api.done(&b).await.ok()["processing_state"], "done");

    let shown = gate.api.show(&a.claim_id).await;
    let late: Vec<_> =
        shown["history"].as_array().unwrap().iter().filter(|row| row["kind"] == "late").collect();
    assert_eq!(late.iter().map(|row| &row["reason"]).collect::<Vec<_>>(), ["done", "error", "heartbeat"]);
    for row in late {
        assert!(row["note"].as_str().unwrap().contains("finished late, check for a double effect"), "{row}");
    }
    assert_eq!(gate.api.keys_in("late").await, ["s_1"]);
}

#[tokio::test]
async fn c44_nobody_is_refused_for_the_sake_of_a_claim_that_was_never_committed() {
    let gate = gate().await;
    let disk = gate.slow_disk();

    let body = json!({ "automation": "story", "idempotency_key": "s_1" }).to_string();
    let host = gate.api.base().strip_prefix("http://").unwrap();
    let request = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {ADMIN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut gone = vec![];
    for _ in 0..4 {
        let mut tcp = TcpStream::connect(host).await.unwrap();
        tcp.write_all(request.as_bytes()).await.unwrap();
        gone.push(tcp);
    }
    let fifth = tokio::spawn({
        let api = gate.api.another();
        async move { api.claim("story", "s_1").await }
    });
    for mut tcp in gone {
        tcp.shutdown().await.unwrap();
        // The gate closes its side when it has let go of the call.
        let mut answer = String::new();
        let _ = tcp.read_to_string(&mut answer).await;
        assert_eq!(answer, "", "nothing was committed, so nothing may be answered");
    }
    // A connection is closed a moment before its call is let go of, and a busy machine may make that moment long: the
    // gate's threads are given other work to come to before the disk goes on.
    for _ in 0..50 {
        assert_eq!(send(gate.api.bare(Method::GET, "/healthz")).await.status, 200);
    }
    drop(disk);

    let ran = fifth.await.unwrap();
    assert_eq!(ran.is("run first").attempt, 1);
    let shown = gate.api.show(&ran.claim_id).await;
    assert_eq!(shown["history"].as_array().unwrap().len(), 1, "the other four left nothing: {shown}");
    eventually("the one that ran finishes", async || (gate.api.done(&ran).await.status == 200).then_some(()))
        .await;
}
