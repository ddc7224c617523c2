//! Many callers of two nodes, who claim the same keys while nodes die at moments that are drawn.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{ADMIN, Client, Dice, Receiver, json_body, secs};
use crate::processes::{Team, in_state, lines};

const CALLERS: u64 = 10;
/// Of one wave.
const KEYS: u64 = 20;
const KILLS: u32 = 4;
/// Holders that say nothing more. Five in a row without one that is done, and no claim is given a second time.
const SILENT: usize = 3;
const TTL: Duration = secs(2);

/// An attempt that was given to somebody.
struct Given {
    run: String,
    /// Before it was asked for: its lease began no earlier.
    asked: Instant,
    /// When it was known to have ended.
    ended: Option<Instant>,
}

#[derive(Default)]
struct Books {
    /// By key and attempt.
    given: BTreeMap<(String, u64), Given>,
    /// Which attempts were accepted as done.
    done: HashMap<String, Vec<u64>>,
    /// Whose first holder dies without a word; somebody else takes over.
    silent: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Books {
    fn give(&mut self, key: &str, attempt: u64, run: &str, asked: Instant) {
        let now = Instant::now();
        for ((_, other), given) in self.given.range((key.to_owned(), 0)..=(key.to_owned(), u64::MAX)) {
            if *other == attempt && given.run != run {
                self.wrong.push(format!("{key}: attempt {attempt} was given to {} and to {run}", given.run));
            }
            let lives = given.ended.is_none_or(|ended| ended > asked) && now < given.asked + TTL;
            if *other != attempt && lives {
                self.wrong.push(format!("{key}: {run} was let in while {} held it", given.run));
            }
        }
        let new = || Given { run: run.to_owned(), asked, ended: None };
        self.given.entry((key.to_owned(), attempt)).or_insert_with(new);
    }
}

/// The nodes as they are at the moment.
type Nodes = Arc<Mutex<[String; 2]>>;

/// Asks whichever node is drawn until one answers: those that were killed do not, and 503 is none.
async fn ask(nodes: &Nodes, dice: &mut Dice, path: &str, body: &Value) -> (u16, Value) {
    let until = Instant::now() + secs(30);
    while Instant::now() < until {
        let base = nodes.lock().unwrap()[usize::from(dice.below(2) == 1)].clone();
        let request = json_body(Client::new(&base, ADMIN).request(Method::POST, path), body);
        if let Ok(response) = request.send().await {
            let status = response.status().as_u16();
            if let (true, Ok(text)) = (status != 503, response.text().await) {
                return (status, serde_json::from_str(&text).unwrap());
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nobody answers {path}");
}

/// Claims a key until it is done, by this caller or by another.
async fn see_through(key: &str, caller: u64, nodes: &Nodes, books: &Mutex<Books>, dice: &mut Dice) {
    let mut round = 0;
    loop {
        let run = format!("caller {caller}, {key}, {round}");
        let claim = json!({ "automation": "story", "idempotency_key": key, "run_id": run });
        let asked = Instant::now();
        let (status, answer) = ask(nodes, dice, "/v1/claims", &claim).await;
        assert_eq!(status, 200, "{answer}");
        match (answer["decision"].as_str().unwrap(), answer["reason"].as_str().unwrap()) {
            ("run", _) => {}
            ("stop", "duplicate") => return,
            ("stop", "in_progress") => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            _ => panic!("{answer}"),
        }
        let attempt = answer["attempt"].as_u64().unwrap();
        round += 1;
        {
            let mut books = books.lock().unwrap();
            books.give(key, attempt, &run, asked);
            if attempt == 1 && books.silent.remove(key) {
                continue;
            }
        }
        tokio::time::sleep(Duration::from_millis(dice.below(60))).await;
        let path = format!("/v1/claims/{}/done", answer["claim_id"].as_str().unwrap());
        let (status, said) = ask(nodes, dice, &path, &json!({ "token": answer["token"] })).await;
        let mut books = books.lock().unwrap();
        if let Some(given) = books.given.get_mut(&(key.to_owned(), attempt)) {
            given.ended = Some(Instant::now());
        }
        match status {
            200 => books.done.entry(key.to_owned()).or_default().push(attempt),
            409 => assert_eq!(said["code"], "lost_claim", "{said}"),
            _ => panic!("{said}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nodes_die_at_any_moment_an_attempt_has_one_holder_and_a_key_is_done_once() {
    let receiver = Receiver::start().await;
    let team = Team::new("automations: { story: { ttl: 2s, ttl_override: true } }", &receiver);
    let mut live: Vec<_> = team.two().await.into();
    let nodes: Nodes = Arc::new(Mutex::new([live[0].base.clone(), live[1].base.clone()]));
    let mut dice = Dice::roll();
    let mut first_wave: Vec<u64> = (0..KEYS).collect();
    dice.shuffle(&mut first_wave);
    let silent = first_wave.into_iter().take(SILENT).map(|key| format!("k0-{key}")).collect();
    let books = Arc::new(Mutex::new(Books { silent, ..Books::default() }));
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (nodes, books, over) = (Arc::clone(&nodes), Arc::clone(&books), Arc::clone(&over));
        let mut dice = dice.split();
        callers.spawn(async move {
            let mut wave = 0;
            // As long as somebody may be killed there is something to claim, and most of it is claimed by all.
            while !over.load(Ordering::SeqCst) {
                let mut keys: Vec<u64> = (0..KEYS).collect();
                dice.shuffle(&mut keys);
                for key in keys {
                    see_through(&format!("k{wave}-{key}"), caller, &nodes, &books, &mut dice).await;
                }
                wave += 1;
            }
        });
    }
    for kill in 0..KILLS {
        // Not a wait for anything: the moment itself is what is drawn.
        tokio::time::sleep(Duration::from_millis(50 + dice.below(500))).await;
        let which = usize::from(dice.below(2) == 1);
        live.remove(which).kill().await;
        // Another one stands in for it: the same name would wait until the first is sure to be gone.
        let next = team.node(&format!("stand-in-{kill}")).await;
        nodes.lock().unwrap()[which] = next.base.clone();
        live.insert(which, next);
    }
    over.store(true, Ordering::SeqCst);
    callers.join_all().await;
    let books = std::mem::take(&mut *books.lock().unwrap());
    assert!(books.wrong.is_empty(), "{}", books.wrong.join("\n"));
    assert!(books.silent.is_empty(), "somebody was to be taken over from");
    let keys: BTreeSet<&String> = books.given.keys().map(|(key, _)| key).collect();
    assert!(keys.len() >= KEYS as usize, "{} keys", keys.len());
    let api = live[0].api();
    for key in keys {
        let shown = in_state(&api, "story", key, "done").await;
        let begun = lines(&shown, "run").iter().filter(|run| run["reason"] != "same_run").count();
        assert_eq!(shown["attempt"], begun, "one run for each attempt: {shown}");
        assert_eq!(books.done.get(key).map(Vec::len), Some(1), "done once: {shown}");
    }
}
