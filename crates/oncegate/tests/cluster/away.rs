//! The database is away: stopped, killed, silent, or cut off from one node. Nobody is told what is not so, nothing that
//! was acknowledged is lost, and when it is back everything goes on by itself.

use oncegate_testing::{Postgres, Proxy};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::{
    Claimed, Client, Hold, Receiver, Reply, Said, Signed, eventually, json_body, secs, send,
};
use crate::processes::{Node, Team, in_state};

const YAML: &str = "
automations:
  welcome:
    ttl: 10m
    steps: [{ name: send, http: { url: '$RECEIVER/send' }, repeat: by_key }]
  story: { ttl: 10m }
sources:
  orders: { provider: hmac, automation: welcome, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
workspaces:
  acme:
    automations: { forms: { steps: [{ name: send, http: { url: '$RECEIVER/forms' }, repeat: by_key }] } }
    sources:
      forms: { provider: hmac, automation: forms, secret: env:ORDERS, hmac: { header: X-Signature }, key: [order] }
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// Ended in good order, as for an upgrade.
    Stopped,
    /// kill -9.
    Killed,
    /// It stands still: connections stay open, and nothing answers.
    Silent,
    /// One node is cut off from it, and the other is not.
    Cut,
}

/// What callers have in hand when the database goes away.
struct Held {
    done: Claimed,
    error: Claimed,
    beat: Claimed,
    /// Of a claim that is an error.
    failed: String,
}

impl Held {
    async fn of(api: &Client) -> Self {
        let claim = async |key: &str| {
            let claimed = api.claim("story", key).await;
            claimed.is("run first");
            claimed
        };
        let failed = claim("failed").await;
        api.error(&failed, &json!({ "note": "the CRM said no" })).await.ok();
        Self {
            done: claim("done").await,
            error: claim("error").await,
            beat: claim("beat").await,
            failed: failed.claim_id,
        }
    }

    /// Every way in that a caller, a sender or a person uses, each with what is good for it; by name.
    fn ways(&self, api: &Client) -> Vec<(&'static str, RequestBuilder)> {
        let post = |path: &str, json: Value| json_body(api.request(Method::POST, path), &json);
        let finish = |verb: &str, claimed: &Claimed| {
            post(&format!("/v1/claims/{}/{verb}", claimed.claim_id), json!({ "token": claimed.token() }))
        };
        let claim = |key: &str| json!({ "automation": "story", "idempotency_key": key, "run_id": format!("run {key}") });
        let order = Signed::order(&json!({ "order": "o_away" }));
        let mut webhook = api.bare(Method::POST, "/in/orders").body(order.body.clone());
        for (name, value) in &order.headers {
            webhook = webhook.header(name, value);
        }
        let reset = post(&format!("/v1/claims/{}/reset", self.failed), json!({ "reason": "looked at it" }));
        vec![
            ("webhook", webhook),
            ("claim", post("/v1/claims", claim("unheard-of"))),
            ("batch", post("/v1/claims/batch", json!({ "claims": [claim("of many"), claim("of more")] }))),
            ("done", finish("done", &self.done)),
            ("error", finish("error", &self.error)),
            ("heartbeat", finish("heartbeat", &self.beat)),
            ("list", api.request(Method::GET, "/v1/claims")),
            ("inbox", api.request(Method::GET, "/v1/inbox")),
            ("reset", reset.header("idempotency-key", "reset-1")),
        ]
    }
}

/// Sends all of them at one moment; by name, what each was answered.
async fn all(ways: Vec<(String, RequestBuilder)>) -> Vec<(String, Said)> {
    let mut sent = tokio::task::JoinSet::new();
    for (name, request) in ways {
        sent.spawn(async move {
            let said = tokio::time::timeout(secs(40), send(request)).await;
            (name.clone(), said.unwrap_or_else(|_| panic!("{name}: no answer within 40 s")))
        });
    }
    sent.join_all().await
}

fn named(ways: Vec<(&'static str, RequestBuilder)>) -> Vec<(String, RequestBuilder)> {
    ways.into_iter().map(|(name, request)| (name.to_owned(), request)).collect()
}

/// An honest answer: it was not taken, and when to come again.
#[track_caller]
fn refused(why: &str, (name, said): (String, Said)) {
    assert_eq!(said.status, 503, "{why}, {name}: {}", said.body);
    assert_eq!(said.header("retry-after"), Some("5"), "{why}, {name}");
    said.problem(503, "store_unavailable");
}

/// Every address that needs the database, with what belongs to the kind of its caller.
fn addresses(api: &Client, held: &Held) -> Vec<(String, RequestBuilder)> {
    let mut all = vec![];
    for (method, path, needs) in oncegate::routes() {
        let url = path.replace("{*source}", "acme/forms").replace("{source}", "orders");
        let url = url.replace("{id}", &held.beat.claim_id).replace("{name}", "story");
        let mut request = api.request(Method::from_bytes(method.as_bytes()).unwrap(), &url);
        let body = match needs {
            "nothing" => continue,
            // A test of the connection is answered from the configuration.
            "signature" if method == "GET" => continue,
            "signature" => {
                let signed = Signed::order(&json!({ "order": "o_away" }));
                for (name, value) in &signed.headers {
                    request = request.header(name, value);
                }
                signed.body
            }
            "claim token" => json!({ "token": held.beat.token() }).to_string().into_bytes(),
            _ => b"{}".to_vec(),
        };
        if method == "POST" && needs != "signature" {
            request = request.header("content-type", "application/json");
        }
        all.push((format!("{method} {path}"), if method == "POST" { request.body(body) } else { request }));
    }
    all
}

async fn ready(api: &Client) -> u16 {
    let asked = tokio::time::timeout(secs(10), send(api.bare(Method::GET, "/readyz"))).await;
    let said = asked.expect("/readyz answers whatever the database does");
    assert_eq!(said.body["reasons"].as_array().unwrap().is_empty(), said.status == 200, "{}", said.body);
    said.status
}

async fn story(why: Away) {
    let server = Postgres::own(&[]);
    let receiver = Receiver::start().await;
    let hold = Hold::new();
    receiver.script("/send", [Reply::held(&hold)]);
    let team = Team::on(&server, YAML, &receiver);
    let proxy = Proxy::to(server.port());
    let node = team.through("a", proxy.port()).await;
    let api = node.api();
    // A step is on the wire when the database goes.
    api.order(&json!({ "order": "o_before" })).await.ok();
    receiver.got("/send", 1).await;
    let held = Held::of(&api).await;
    let kept = api.claim("story", "kept").await;
    api.done_with(&kept, &json!({ "result": 7 })).await.ok();
    assert_eq!(ready(&api).await, 200);

    // The bearer's token is known for a moment yet: what is refused is the call itself.
    api.list("").await;
    match why {
        Away::Stopped => server.stop(),
        Away::Killed => server.kill(),
        Away::Silent => server.pause(),
        Away::Cut => {
            proxy.refuse(true);
            proxy.cut();
        }
    }
    let name = format!("{why:?}");
    let healthy = async {
        eventually("/readyz says so", async || (ready(&api).await == 503).then_some(())).await;
        let said = tokio::time::timeout(secs(10), send(api.bare(Method::GET, "/healthz"))).await;
        assert_eq!(said.expect("it lives").status, 200, "{name}: a restart would not help");
    };
    let (answers, ()) = tokio::join!(all(named(held.ways(&api))), healthy);
    for answer in answers {
        refused(&name, answer);
    }
    hold.let_go();
    // By now no node believes a token that it saw before. A silent database would take its time with each of them.
    if why != Away::Silent {
        for answer in all(addresses(&api, &held)).await {
            refused(&name, answer);
        }
    }
    assert_eq!(send(api.bare(Method::GET, "/healthz")).await.status, 200, "{name}");

    match why {
        Away::Stopped | Away::Killed => server.start(),
        Away::Silent => server.resume(),
        Away::Cut => proxy.refuse(false),
    }
    eventually("it is ready again", async || (ready(&api).await == 200).then_some(())).await;
    // Everybody repeats what was not taken: the very same calls.
    for (way, said) in all(named(held.ways(&api))).await {
        let said = (way.as_str(), said.clone().ok());
        match said {
            ("webhook", body) => {
                assert!(["accepted", "already accepted"].contains(&body["status"].as_str().unwrap()))
            }
            ("claim", body) => is_given(&body),
            ("batch", body) => body["results"].as_array().unwrap().iter().for_each(is_given),
            ("done", body) => assert_eq!(body["processing_state"], "done", "{name}"),
            ("error", body) => assert_eq!(body["processing_state"], "error", "{name}"),
            ("reset", body) => assert_eq!(body["processing_state"], "none", "{name}"),
            _ => {}
        }
    }
    api.claim("story", "kept").await.is("stop duplicate");
    // One effect of each, by the one attempt that there was: the answer that came meanwhile was kept, and written.
    for order in ["o_before", "o_away"] {
        let done = in_state(&api, "welcome", order, "done").await;
        assert_eq!(done["attempt"], 1, "{name}: {done}");
    }
    let sent = receiver.got("/send", 2).await;
    assert_ne!(sent[0].key(), sent[1].key(), "{name}: each was sent once");
    assert_eq!(api.claim("story", "failed").await.words(), "run first", "{name}: it was reset once");
}

/// Who was told nothing is the run that holds it.
#[track_caller]
fn is_given(body: &Value) {
    assert_eq!(body["decision"], "run", "{body}");
    assert!(["first", "same_run"].contains(&body["reason"].as_str().unwrap()), "{body}");
    assert_eq!(body["attempt"], 1, "{body}");
}

#[tokio::test]
async fn while_the_database_is_stopped_every_way_in_says_so_and_then_all_of_it_is_done_once() {
    story(Away::Stopped).await;
}

#[tokio::test]
async fn when_the_database_is_killed_every_way_in_says_so_and_what_was_acknowledged_is_there_again() {
    story(Away::Killed).await;
}

#[tokio::test]
async fn while_the_database_is_silent_nobody_waits_for_ever_and_then_all_of_it_is_done_once() {
    story(Away::Silent).await;
}

#[tokio::test]
async fn a_node_that_is_cut_off_says_so_and_goes_on_without_a_restart() {
    story(Away::Cut).await;
}

/// The database commits and its answer is lost: the caller is told to come again, and what it then sends is done once.
#[tokio::test]
async fn what_was_committed_and_not_heard_of_is_done_once_after_it_is_repeated() {
    let receiver = Receiver::start().await;
    let team = Team::new(YAML, &receiver);
    let proxy = Proxy::to(team.database.server().port());
    let node: Node = team.through("a", proxy.port()).await;
    let api = node.api();
    let held = Held::of(&api).await;
    for (way, lost) in [
        ("webhook", "COMMIT"),
        ("claim", "unheard-of"),
        ("done", "COMMIT"),
        ("error", "COMMIT"),
        ("heartbeat", "COMMIT"),
        ("reset", "COMMIT"),
    ] {
        let of = |name: &str| {
            let ways = named(held.ways(&api));
            ways.into_iter().find(|(way, _)| way == name).unwrap()
        };
        let before = proxy.lost();
        proxy.lose_answers_to(lost.as_bytes(), 1);
        let [first] = all(vec![of(way)]).await.try_into().unwrap();
        refused(way, first);
        assert_eq!(proxy.lost(), before + 1, "{way}");
        let body = send(of(way).1).await.ok();
        match way {
            // The runner's own commits are none of the callers' that follow.
            "webhook" => {
                assert_eq!(body["status"], "already accepted");
                in_state(&api, "welcome", "o_away", "done").await;
            }
            "claim" => assert_eq!((&body["decision"], &body["reason"]), (&json!("run"), &json!("same_run"))),
            _ => {}
        }
    }
    receiver.got("/send", 1).await;
    for (key, state) in [("done", "done"), ("error", "error"), ("beat", "processing"), ("failed", "none")] {
        let shown = api.find("story", key).await.unwrap();
        assert_eq!(shown["processing_state"], state, "{shown}");
    }
}
