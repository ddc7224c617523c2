//! Single stories, told whole.

use std::fs;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::configs::{ONE, calm};
use crate::judge::{self, Event, FORM, Kind, Wrong, judge};
use crate::report::{HOLDS, Report};
use crate::round;
use crate::world::{self, Gate, Ground, Receiver, Sender, Site, until};

fn is_done(gate: &Gate, form: &str, token: &str) -> Value {
    until("done", || {
        let claim = gate.claim("once", form, token)?;
        (claim["processing_state"] == "done").then(|| gate.whole(&claim))
    })
}

fn event(token: &str) -> Event {
    Event::new(HOLDS, Kind::Once, token.to_owned(), ONE)
}

fn judged(gate: &Gate, receiver: &Receiver, events: &[Event]) -> (Report, Wrong) {
    judge(&round::books(gate, &[(Kind::Once, receiver.book())], |_| true), events, false)
}

/// The issue's own story: the untouched sample, five times in parallel, and kill -9 while the receiver holds it.
#[test]
fn five_parallel_posts_of_the_sample_and_a_kill_lead_to_one_effect() {
    let ground = Ground::new("story");
    let receiver = Receiver::start(&ground, "receiver", &[]);
    let site = Site::new(&ground, &calm(&receiver));
    let gate = site.start(None);
    receiver.hold();
    let sender = Sender::start(&ground, &format!("http://{}/in/once", site.at), &world::sample(), None, 5);
    until("the request at the receiver", || receiver.arrivals().pop());
    let mut events = vec![event("tok8m2c4x7q1z5v9b3n6k0j")];
    gate.kill();
    let gate = site.start(None);
    receiver.release();
    judge::acknowledged(&mut events, &sender.acknowledged(), 5);
    let claim = is_done(&gate, FORM, &events[0].token);
    assert_eq!(gate.get("/v1/claims?state=done")["claims"].as_array().unwrap().len(), 1);
    assert_eq!(gate.get("/v1/claims")["claims"].as_array().unwrap().len(), 1, "five deliveries, one claim");
    assert_eq!(claim["attempt"], 2, "{claim}");
    judged(&gate, &receiver, &events).1.holds();
    let effects = receiver.arrivals().iter().filter(|a| a.did == "effect").count();
    assert_eq!((receiver.arrivals().len(), effects), (2, 1), "asked again under its key, counted once");
}

/// What the judge says where the promise is broken: by a receiver that knows no keys, and by an event nobody knows.
#[test]
fn the_judge_sees_what_was_doubled_and_what_was_lost() {
    let ground = Ground::new("judge");
    let receiver = Receiver::start(&ground, "receiver", &["--no-dedupe"]);
    let site = Site::new(&ground, &calm(&receiver));
    let gate = site.start(None);
    receiver.hold();
    let to = format!("http://{}/in/once", site.at);
    let sender = Sender::start(&ground, &to, &world::sample(), Some((1, "twice")), 1);
    until("the request at the receiver", || receiver.arrivals().pop());
    gate.kill();
    let gate = site.start(None);
    receiver.release();
    sender.acknowledged();
    is_done(&gate, FORM, "twice-0");
    let (report, wrong) = judged(&gate, &receiver, &[event("twice-0"), event("never-sent")]);
    assert_eq!((report.total().doubled, report.total().lost), (1, 1), "{report}");
    for what in ["doubled", "the gate does not know it", "not sent the bytes that came in"] {
        assert!(wrong.0.iter().any(|w| w.contains(what)), "{what}: {wrong:?}");
    }
}

/// C40: what was claimed is resumed with the very bytes that came in; a later delivery starts nothing.
#[test]
fn c40_claimed_then_killed_before_the_first_step() {
    let ground = Ground::new("c40");
    let receiver = Receiver::start(&ground, "receiver", &[]);
    let site = Site::new(&ground, &calm(&receiver));
    let sample = ground.path("sample.json");
    // Blanks, an escape and the order of members: what a parser would not give back.
    let body = "{\"form_response\" : {\"token\":\"T0\",\"form_id\":\"f\\u0031\"},\"event_type\":\"x\"}\n ";
    let headers = json!({ "Content-Type": "application/json" });
    fs::write(&sample, json!({ "method": "POST", "headers": headers, "body_text": body }).to_string())
        .unwrap();
    let to = format!("http://{}/in/once", site.at);
    let find = |gate: &Gate| {
        let page = gate.get("/v1/claims");
        let claim = page["claims"].as_array().unwrap().first().cloned()?;
        (claim["processing_state"] == "done").then(|| gate.whole(&claim))
    };

    let gate = site.start(Some("run.committed@1"));
    let sender = Sender::start(&ground, &to, &sample, Some((1, "T")), 1);
    gate.dies("run.committed@1");
    assert!(receiver.arrivals().is_empty(), "killed before the first step");
    let gate = site.start(None);
    let claim = until("done", || find(&gate));
    let sent = sender.acknowledged();
    let arrivals = receiver.arrivals();
    assert_eq!(arrivals.len(), 1, "{claim}");
    assert_eq!(arrivals[0].body_sha256, sent[0].body_sha256, "not the bytes that came in");
    assert_eq!(body.replace("T0", "T-0").len(), 74, "the case is about a body of 74 bytes");
    assert_eq!(arrivals[0].path, "/hold/T-0/write");
    let runs =
        |claim: &Value| claim["history"].as_array().unwrap().iter().filter(|h| h["kind"] == "run").count();
    assert_eq!((runs(&claim), claim["attempt"].clone()), (2, json!(2)), "claimed, resumed: {claim}");

    let again = Sender::start(&ground, &to, &sample, Some((1, "T")), 1).acknowledged();
    assert_eq!(again.last().unwrap().answer, "already accepted", "a delivery after it is done: {again:?}");
    let after = until("done", || find(&gate));
    assert_eq!((runs(&after), &after["calls"]), (2, &claim["calls"]), "{after}");
    assert_eq!(after["history"].as_array().unwrap().last().unwrap()["reason"], "duplicate", "{after}");
    assert_eq!(receiver.arrivals().len(), 1, "it started something");
}

/// A gate that was told to stop while the receiver held its request.
struct Stopping {
    ground: Ground,
    receiver: Receiver,
    site: Site,
    gate: Gate,
}

impl Stopping {
    fn new(test: &str) -> Self {
        let ground = Ground::new(test);
        let receiver = Receiver::start(&ground, "receiver", &[]);
        let site = Site::new(&ground, &calm(&receiver));
        let gate = site.start(None);
        receiver.hold();
        let to = format!("http://{}/in/once", site.at);
        Sender::start(&ground, &to, &world::sample(), Some((1, "stop")), 1).acknowledged();
        until("the request at the receiver", || receiver.arrivals().pop());
        gate.terminate();
        until("the closed door", || TcpStream::connect(site.at).is_err().then_some(()));
        Self { ground, receiver, site, gate }
    }

    /// What the store holds while no gate runs: state and cause of the only claim.
    fn on_disk(site: &Site) -> (String, Option<String>) {
        let db = rusqlite::Connection::open(site.database()).unwrap();
        db.query_row("SELECT processing_state, error_cause FROM claims", [], |r| Ok((r.get(0)?, r.get(1)?)))
            .unwrap()
    }
}

/// C30: what can finish within the drain does.
#[test]
fn c30_sigterm_lets_a_held_step_finish() {
    let Stopping { ground: _ground, receiver, site, gate } = Stopping::new("c30-finish");
    receiver.release();
    assert!(gate.ended().success());
    assert_eq!(Stopping::on_disk(&site), ("done".to_owned(), None));
    let gate = site.start(None);
    let claim = is_done(&gate, FORM, "stop-0");
    assert_eq!((receiver.arrivals().len(), &claim["attempt"]), (1, &json!(1)), "{claim}");
}

/// C30: what cannot is handed back, and the next start takes it up. Takes as long as the drain, about 20 s.
#[test]
fn c30_sigterm_hands_back_what_does_not_finish() {
    let Stopping { ground: _ground, receiver, site, gate } = Stopping::new("c30-hand-back");
    assert!(gate.ended().success());
    assert_eq!(
        Stopping::on_disk(&site),
        ("error".to_owned(), Some("shutdown".to_owned())),
        "nothing is left processing without an owner"
    );
    receiver.release();
    let gate = site.start(None);
    let claim = is_done(&gate, FORM, "stop-0");
    let handed_back = claim["history"].as_array().unwrap().iter().any(|h| h["kind"] == "hand_back");
    assert!(handed_back, "{claim}");
    assert_eq!(claim["retries_used"], 0, "a shutdown costs no retry: {claim}");
    let effects = receiver.arrivals().iter().filter(|a| a.did == "effect").count();
    assert_eq!((receiver.arrivals().len(), effects), (2, 1), "{claim}");
}
