//! Two books about one story: the receiver's own file, and the gate's audit (history and calls). Where they
//! disagree, one is wrong.

use serde::Serialize;
use serde_json::Value;

use super::scenes::{Scene, Worker};
use super::stage::Stage;
use crate::cli::lab::ledger::{Arrival, Did};

/// One line of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) scenario: &'static str,
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    /// The gate's history: its calls, or the runs it allowed a caller.
    pub(super) attempts: u64,
    /// The receiver's file.
    pub(super) requests: u64,
    /// The receiver's file.
    pub(super) effects: u64,
    pub(super) state: String,
}

/// The table and what is to be said about it.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) rows: Vec<Row>,
    pub(super) disagreements: Vec<String>,
    pub(super) notes: Vec<String>,
}

pub(super) async fn compare(stage: &Stage, scenes: &[Scene]) -> Result<Books, String> {
    let arrivals = stage.arrivals()?;
    let mut books = Books { rows: vec![], disagreements: vec![], notes: vec![] };
    for scene in scenes {
        let claim = stage.get(&format!("/v1/claims/{}", scene.claim_id)).await?;
        books.add(scene, &claim, &arrivals);
    }
    let told: u64 = books.rows.iter().map(|row| row.requests).sum();
    let strays = (arrivals.len() as u64).abs_diff(told);
    if strays > 0 {
        books.disagreements.push(format!("{strays} request(s) reached the receiver under a key of no event"));
    }
    Ok(books)
}

impl Books {
    fn add(&mut self, scene: &Scene, claim: &Value, arrivals: &[Arrival]) {
        let calls: Vec<&Value> = claim["calls"].as_array().into_iter().flatten().collect();
        let runs = claim["history"].as_array().into_iter().flatten().filter(|h| h["kind"] == "run").count();
        // A call is written down before it is sent, and the gate may be killed in between: where no answer was
        // written down, the request may have reached the receiver or not. Every other call did.
        let (attempts, surely, keys): (usize, usize, Vec<&str>) = match &scene.worker {
            Worker::Gate => (
                calls.len(),
                calls.iter().filter(|call| !call["status"].is_null()).count(),
                calls.iter().filter_map(|call| call["idempotency_key"].as_str()).collect(),
            ),
            Worker::Caller { key } => (runs, runs, vec![key]),
        };
        let ours: Vec<&Arrival> =
            arrivals.iter().filter(|a| a.key.as_deref().is_some_and(|key| keys.contains(&key))).collect();
        let row = Row {
            scenario: scene.title,
            sent: scene.sent,
            acknowledged: scene.acknowledged,
            attempts: attempts as u64,
            requests: ours.len() as u64,
            effects: ours.iter().filter(|a| a.did == Did::Effect).count() as u64,
            state: claim["processing_state"].as_str().unwrap_or("unknown to the gate").to_owned(),
        };
        self.judge(scene, &row, surely as u64);
        self.rows.push(row);
    }

    fn judge(&mut self, scene: &Scene, row: &Row, surely: u64) {
        let mut wrong = |what: String| self.disagreements.push(format!("{}: {what}", row.scenario));
        if row.acknowledged != scene.to_acknowledge {
            wrong(format!("{} of {} deliveries were acknowledged", row.acknowledged, scene.to_acknowledge));
        }
        if row.effects != 1 {
            wrong(format!("the receiver counted {} effects; one was meant", row.effects));
        }
        if row.state != "done" {
            wrong(format!("the claim is {}, not done", row.state));
        }
        if row.requests > row.attempts {
            wrong(format!(
                "the receiver saw {} requests, the history knows of {}",
                row.requests, row.attempts
            ));
        }
        if row.requests < surely {
            wrong(format!("the history has {surely} answered calls, the receiver saw {}", row.requests));
        }
        if (surely..row.attempts).contains(&row.requests) {
            self.notes.push(format!(
                "{}: {} call(s) were written down and cut off before they reached the receiver; their outcome stands \
                 as unknown",
                row.scenario,
                row.attempts - row.requests
            ));
        }
    }
}
