//! Many at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Dice, Receiver, Setup, WELCOME};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_claims_under_load_see_no_locked_store_and_run_once() {
    const CLIENTS: usize = 50;
    const KEYS: usize = 2_000;
    let receiver = Receiver::start().await;
    let gate = Arc::new(Setup::new(WELCOME, &receiver).start().await);
    let mut dice = Dice::roll();
    let over = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn({
        let (gate, over) = (Arc::clone(&gate), Arc::clone(&over));
        async move {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                gate.advance(std::time::Duration::from_millis(100)).await;
                gate.api.list("inbox=stuck").await;
                gate.api.list("automation=load&limit=500").await;
                gate.api.inbox().await;
                looks += 1;
            }
            looks
        }
    });

    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        // Each key is offered by two clients, each in an order of its own.
        let mut keys: Vec<usize> =
            (0..KEYS).filter(|k| [0, 25].contains(&((k + CLIENTS - client) % CLIENTS))).collect();
        dice.shuffle(&mut keys);
        let api = gate.api.another();
        clients.spawn(async move {
            let mut answers = vec![];
            for key in keys {
                // Anything but a 200 fails here: no caller sees a locked store.
                let claimed = api.claim("load", &format!("k{key}")).await;
                if claimed.decision == "run" {
                    api.done(&claimed).await.ok();
                }
                answers.push((key, claimed.decision));
            }
            answers
        });
    }
    let mut counts: HashMap<(usize, String), usize> = HashMap::new();
    for (key, decision) in clients.join_all().await.into_iter().flatten() {
        *counts.entry((key, decision)).or_default() += 1;
    }
    over.store(true, Ordering::Relaxed);
    assert!(watching.await.unwrap() > 10, "lists were polled meanwhile");
    for key in 0..KEYS {
        for decision in ["run", "stop"] {
            assert_eq!(counts.get(&(key, decision.to_owned())), Some(&1), "k{key} {decision}");
        }
    }
    let mut done = 0;
    let mut cursor = String::new();
    loop {
        let page = gate.api.get(&format!("/v1/claims?state=done&limit=500{cursor}")).await.ok();
        done += page["claims"].as_array().unwrap().len();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(done, KEYS);
}
