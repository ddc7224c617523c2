//! What goes wrong in the demo, in four scenes.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Narrator;
use super::relay;
use super::stage::{Stage, until};
use crate::cli::lab::ledger::Delivery;

/// One scene, as far as sender and gate told it while it was played.
pub(super) struct Scene {
    pub(super) title: &'static str,
    /// Sent by the sender over a connection that came about; or claims asked for.
    pub(super) sent: u64,
    /// How many of them had to be acknowledged, and were.
    pub(super) to_acknowledge: u64,
    pub(super) acknowledged: u64,
    pub(super) claim_id: String,
    pub(super) worker: Worker,
}

/// Who does the work.
pub(super) enum Worker {
    /// The gate: each of its calls stands in the claim's history.
    Gate,
    /// The caller, allowed to by the gate, under this key.
    Caller { key: String },
}

pub(super) async fn play(stage: &mut Stage, tell: &Narrator) -> Result<Vec<Scene>, String> {
    Ok(vec![
        killed_while_the_receiver_works(stage, tell).await?,
        the_receiver_fails_after_acting(stage, tell).await?,
        two_callers(stage, tell).await?,
        killed_before_the_answer(stage, tell).await?,
    ])
}

async fn killed_while_the_receiver_works(stage: &mut Stage, tell: &Narrator) -> Result<Scene, String> {
    tell.scene(1, "A form service delivers one submission five times at once.");
    stage.hold()?;
    let sender = stage.send(&format!("http://{}/in/form", stage.gate_at), None, 5)?;
    until("the request at the receiver", async || Ok(stage.arrivals()?.pop())).await?;
    let deliveries = sender.finish().await?;
    tell.tell("All five are acknowledged. The receiver has acted, but not answered yet.");
    stage.kill_gate().await?;
    tell.tell("kill -9: the gate is gone, and with it the answer.");
    stage.start_gate().await?;
    stage.release()?;
    tell.tell("It starts, sees what it cannot know, and sends again under the same key.");
    let claim_id = done(stage, "welcome", &deliveries[0].event).await?;
    tell.tell(&format!("The receiver counted {}.", stage.newly_counted()?));
    Ok(Scene::of("five at once, gate killed", 5, &deliveries, claim_id))
}

async fn the_receiver_fails_after_acting(stage: &mut Stage, tell: &Narrator) -> Result<Scene, String> {
    tell.scene(2, "The receiver does what it is asked, and then answers 500.");
    let sender = stage.send(&format!("http://{}/in/trial", stage.gate_at), Some("trial"), 1)?;
    let deliveries = sender.finish().await?;
    tell.tell("A 500 does not tell whether it happened: the outcome is unknown.");
    let claim_id = done(stage, "trial", &deliveries[0].event).await?;
    tell.tell("The gate waited until its retry was due, and sent again under the same key.");
    tell.tell(&format!("The receiver counted {}.", stage.newly_counted()?));
    Ok(Scene::of("receiver says 500", 1, &deliveries, claim_id))
}

async fn two_callers(stage: &mut Stage, tell: &Narrator) -> Result<Scene, String> {
    tell.scene(3, "Two workflows ask the gate at the same moment whether they may run.");
    let key = "order-1001";
    let url = format!("http://{}/v1/claims", stage.gate_at);
    let ask = json!({ "automation": "invoice", "idempotency_key": key });
    let (one, other) = tokio::try_join!(stage.post(&url, &ask, &[]), stage.post(&url, &ask, &[]))?;
    let word = |answer: &Value| answer["decision"].as_str().unwrap_or_default().to_owned();
    let (winner, words) = match word(&one).as_str() {
        "run" => (one.clone(), (word(&one), word(&other))),
        _ => (other.clone(), (word(&other), word(&one))),
    };
    tell.tell(&format!("One is told \"{}\", the other \"{}\".", words.0, words.1));
    if words != ("run".to_owned(), "stop".to_owned()) {
        return Err(format!("one of two claims must run and one must stop: {one} {other}"));
    }
    let work = format!("http://{}/invoices", stage.receiver_at);
    stage.post(&work, &json!({ "order": 1001 }), &[("idempotency-key", key)]).await?;
    stage.post(winner["done_url"].as_str().unwrap_or_default(), &json!({}), &[]).await?;
    tell.tell("The first does its work and says so.");
    tell.tell(&format!("The receiver counted {}.", stage.newly_counted()?));
    Ok(Scene {
        title: "two callers, one key",
        sent: 2,
        to_acknowledge: 2,
        acknowledged: 2,
        claim_id: winner["claim_id"].as_str().unwrap_or_default().to_owned(),
        worker: Worker::Caller { key: key.to_owned() },
    })
}

async fn killed_before_the_answer(stage: &mut Stage, tell: &Narrator) -> Result<Scene, String> {
    tell.scene(4, "The gate stores a submission, and is killed before the sender hears of it.");
    let wire = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let at = wire.local_addr().map_err(|e| e.to_string())?;
    let sender = stage.send(&format!("http://{at}/in/form"), Some("late"), 1)?;
    let broken = relay::lose_next_answer(&wire, stage.gate_at).await?;
    stage.kill_gate().await?;
    drop(broken);
    tell.tell("kill -9: the sender has no answer, so it will come again.");
    stage.start_gate().await?;
    let _passing = relay::pass_on(wire, stage.gate_at);
    let deliveries = sender.finish().await?;
    tell.tell("The gate starts again, and tells the sender that it has it already.");
    let claim_id = done(stage, "welcome", &deliveries[0].event).await?;
    tell.tell(&format!("The receiver counted {}.", stage.newly_counted()?));
    Ok(Scene::of("killed before its answer", 1, &deliveries, claim_id))
}

impl Scene {
    fn of(title: &'static str, to_acknowledge: u64, deliveries: &[Delivery], claim_id: String) -> Self {
        Self {
            title,
            sent: deliveries.iter().map(|d| u64::from(d.sent)).sum(),
            to_acknowledge,
            acknowledged: deliveries.iter().filter(|d| d.status == 200).count() as u64,
            claim_id,
            worker: Worker::Gate,
        }
    }
}

/// Waits until the claim of this event is done, or in error with nothing due; the table tells which.
async fn done(stage: &Stage, automation: &str, event: &str) -> Result<String, String> {
    let path = format!("/v1/claims?automation={automation}");
    until(&format!("the end of {event}"), async || {
        let claims = stage.get(&path).await?;
        let ours = claims["claims"].as_array().into_iter().flatten().find(|claim| {
            claim["idempotency_key"]
                .as_str()
                .is_some_and(|key| key.split(':').any(|part| part.starts_with(event)))
        });
        let ended = ours.filter(|claim| {
            claim["processing_state"] == "done"
                || (claim["processing_state"] == "error" && claim["due_at"].is_null())
        });
        Ok(ended.and_then(|claim| claim["claim_id"].as_str()).map(str::to_owned))
    })
    .await
}
