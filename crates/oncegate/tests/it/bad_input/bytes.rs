//! Any bytes to any address: never a 5xx, nothing stored by what was refused, and the server goes on.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use reqwest::Method;

use super::rows;
use crate::harness::{ADMIN, Dice, Gate, Raw, Setup, WELCOME, send};
use tokio::io::AsyncWriteExt;

const ID: &str = "0123456789abcdef0123456789abcdef";

/// Every address that the server says it has, and some that it has not; `{}` stands for what bytes may fill.
async fn addresses(gate: &Gate) -> Vec<String> {
    let described = gate.api.get("/openapi.json").await.ok();
    let mut all: Vec<String> = ["/{}", "/v1/{}", "/in/orders", "/in/{}"].map(str::to_owned).into();
    for path in described["paths"].as_object().unwrap().keys() {
        let segments = path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
        let path = segments.collect::<Vec<_>>().join("/");
        all.extend([path.replace("{}", ID), format!("{}?{{}}", path.replace("{}", ID)), path]);
    }
    assert!(all.iter().any(|path| path == "/v1/claims/{}/reset"), "{all:?}");
    all
}

#[derive(Clone)]
struct Call {
    method: Method,
    path: String,
    kind: &'static str,
    body: Vec<u8>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let begins = self.body[..self.body.len().min(300)].escape_ascii();
        write!(f, "{} {} ({}, {} bytes) {begins}", self.method, self.path, self.kind, self.body.len())
    }
}

/// Texts that a parser takes for the beginning of something.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let name = select(vec![
        "automation",
        "idempotency_key",
        "key_fields",
        "payload",
        "ttl",
        "wait",
        "reason",
        "by",
        "tag",
        "token",
        "result",
        "note",
        "retryable",
        "limit",
        "cursor",
        "state",
        "inbox",
        "verified",
        "run_now",
        "stop_status",
        "zzz",
        "",
    ]);
    let value = prop_oneof![
        select(vec![
            "1",
            "-1",
            "1e400",
            "null",
            "true",
            "\"\"",
            "\"10m\"",
            "\"a\\u0000b\"",
            "\"\\ud800\"",
            "[]",
            "{}",
            "{\"a\":1,\"a\":2}",
            "18446744073709551616",
            "\"2026-01-05T10:00:00Z\"",
            "\"welcome\"",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,12}",
        "\\PC{0,8}",
    ];
    let json = vec((name.clone(), value.clone()), 0..5).prop_map(|members| {
        let members: Vec<String> =
            members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(",")).into_bytes()
    });
    let form = vec((name, value, "(%[0-9a-fz]{0,2})?"), 0..5).prop_map(|pairs| {
        let pairs: Vec<String> =
            pairs.iter().map(|(name, value, odd)| format!("{name}={value}{odd}")).collect();
        pairs.join("&").into_bytes()
    });
    prop_oneof![3 => json, 3 => form, 1 => vec(any::<u8>(), 0..200), 1 => Just(b"[".repeat(10_000))]
}

/// Bytes that an address may hold.
fn written(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_graphic() && !b"\"#<>`{}|\\^?/".contains(b) || *b == b'%';
    bytes
        .iter()
        .take(300)
        .map(|b| if plain(b) { char::from(*b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn call(addresses: Vec<String>) -> impl Strategy<Value = Call> {
    let method = select(vec![Method::POST, Method::POST, Method::GET, Method::PUT, Method::HEAD]);
    let kind = select(vec!["application/json", "application/x-www-form-urlencoded", "text/plain", ""]);
    let path = (select(addresses), text()).prop_map(|(path, bytes)| path.replace("{}", &written(&bytes)));
    (method, path, kind, text()).prop_map(|(method, path, kind, body)| Call { method, path, kind, body })
}

/// Different ones at each run; the seed is printed.
fn runner() -> TestRunner {
    let mut dice = Dice::roll();
    let seed: Vec<u8> = (0..32).map(|_| u8::try_from(dice.below(256)).unwrap()).collect();
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

async fn is_well(gate: &Gate, n: usize) {
    gate.api.claim("after all", &format!("k{n}")).await.is("run first");
}

#[tokio::test]
async fn whatever_is_sent_to_any_address_is_answered_below_500() {
    let gate = Setup::alone(&WELCOME.replace("$RECEIVER", "https://a.example")).start().await;
    let (mut runner, calls) = (runner(), call(addresses(&gate).await));
    let (mut refused, mut taken) = (0, 0);
    for n in 0..600 {
        let call = calls.new_tree(&mut runner).unwrap().current();
        let before = rows(&gate);
        let request = gate.api.request(call.method.clone(), &call.path).header("content-type", call.kind);
        let said = send(request.body(call.body.clone())).await;
        assert!((200..500).contains(&said.status), "{call:?}: {said:?}");
        if said.status >= 400 {
            refused += 1;
            assert_eq!(rows(&gate), before, "{call:?}: {said:?}");
            let head = call.method == Method::HEAD;
            assert!(
                head || said.body["detail"].as_str().is_some_and(|d| d.len() < 4_000),
                "{call:?}: {said:?}"
            );
        } else {
            taken += 1;
        }
        if n % 100 == 0 {
            is_well(&gate, n).await;
        }
    }
    assert!(refused > 100 && taken > 10, "{refused} refused, {taken} taken: the calls are too much alike");
    is_well(&gate, 1_000).await;
}

#[tokio::test]
async fn whatever_comes_on_a_connection_ends_with_it() {
    let gate = Setup::alone("").start().await;
    let mut runner = runner();
    let before = rows(&gate);
    let head = format!("POST /v1/claims HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {ADMIN}\r\n");
    let pieces = select(vec![
        head.clone().into_bytes(),
        b"transfer-encoding: chunked\r\n".to_vec(),
        b"content-length: 5\r\n".to_vec(),
        b"expect: 100-continue\r\n".to_vec(),
        b"upgrade: h2c\r\nconnection: upgrade\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"\r\n".to_vec(),
        b"\r\n\r\n".to_vec(),
        b"5\r\n".to_vec(),
        b"0\r\n\r\n".to_vec(),
        b"{\"a\"".to_vec(),
    ]);
    let piece = prop_oneof![3 => pieces, 1 => vec(any::<u8>(), 0..40)];
    let bytes = vec(piece, 1..8).prop_map(|pieces| pieces.concat());
    for _ in 0..150 {
        let bytes = bytes.new_tree(&mut runner).unwrap().current();
        let mut raw = Raw::connect(&gate).await;
        let _ = raw.0.write_all(&bytes).await;
        let _ = raw.0.shutdown().await;
        let answer = raw.until_closed().await;
        assert!(!answer.contains("HTTP/1.1 5") && !answer.contains("HTTP/1.1 200"), "{bytes:?}: {answer}");
        assert_eq!(rows(&gate), before, "{:?}", String::from_utf8_lossy(&bytes));
    }
    is_well(&gate, 0).await;
}
