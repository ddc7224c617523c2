//! Bytes that are no HTTP, or HTTP with two readings: the connection ends, and what came on it is not a second request.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::rows;
use crate::harness::{ADMIN, Gate, Raw, Setup, eventually};

/// What came back until the gate closed the connection.
async fn answered(gate: &Gate, bytes: &[u8]) -> String {
    let mut raw = Raw::connect(gate).await;
    // It may have been refused before all of it was sent.
    let _ = raw.0.write_all(bytes).await;
    raw.until_closed().await
}

fn body(key: &str) -> String {
    json!({ "automation": "never seen", "idempotency_key": key }).to_string()
}

fn post(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/claims HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {ADMIN}\r\n\
         content-type: application/json\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_and_nothing_is_stored() {
    let gate = Setup::alone("").start().await;
    let (claim, many) = (body("k"), "x-h: 1\r\n".repeat(10_000));
    let (long, chunk) =
        (format!("x-h: {}\r\n", "x".repeat(8_000_000)), format!("{:x}\r\n{}\r\n", claim.len(), claim));
    let length = claim.len();
    let chunked = "transfer-encoding: chunked\r\n";
    let before = rows(&gate);
    for (what, bytes, status) in [
        ("noise", vec![0xff; 5_000], 400),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), 400),
        ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec(), 400),
        ("a header without a colon", post("nonsense\r\n", ""), 400),
        ("a header folded over two lines", post("x-a: 1\r\n b: 2\r\n", ""), 400),
        ("a blank before the colon", post(&format!("content-length : {length}\r\n"), &claim), 400),
        ("a NUL in a header", post("x-a: \0\r\n", ""), 400),
        ("10,000 headers", post(&many, ""), 431),
        ("a header of 8 MB, of which the sender is still sending", post(&long, ""), 431),
        ("a target of 100 kB", format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)).into_bytes(), 414),
        ("a negative length", post("content-length: -1\r\n", &claim), 400),
        ("a length with a sign", post(&format!("content-length: +{length}\r\n"), &claim), 400),
        ("a length that is none", post("content-length: 0x10\r\n", &claim), 400),
        ("a length beyond 64 bits", post("content-length: 99999999999999999999\r\n", &claim), 400),
        ("two lengths", post(&format!("content-length: 0\r\ncontent-length: {length}\r\n"), &claim), 400),
        ("a list of lengths", post(&format!("content-length: 0, {length}\r\n"), &claim), 400),
        ("a coding that is not known", post("transfer-encoding: gzip\r\n", &claim), 400),
        ("chunked, and then not", post("transfer-encoding: chunked, identity\r\n", &chunk), 400),
        ("chunked twice over", post("transfer-encoding: xchunked\r\n", &chunk), 400),
        ("a chunk of no size", post(chunked, "zz\r\nx\r\n0\r\n\r\n"), 400),
        ("a chunk of a negative size", post(chunked, "-1\r\nx\r\n0\r\n\r\n"), 400),
        ("a chunk of too many digits", post(chunked, "fffffffffffffffff\r\nx\r\n"), 400),
        ("a chunk that does not end", post(chunked, &format!("2\r\n{claim}\r\n0\r\n\r\n")), 400),
    ] {
        let answer = answered(&gate, &bytes).await;
        let starts = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&starts), "{what}: wanted {status}, got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
        assert_eq!(rows(&gate), before, "{what}");
    }
    // What does not come to its end is not a smaller one.
    for bytes in [post(chunked, &chunk), post(&format!("content-length: {}\r\n", length + 1), &claim)] {
        let mut raw = Raw::connect(&gate).await;
        raw.send(&bytes).await;
        raw.0.shutdown().await.unwrap();
        let answer = raw.until_closed().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(rows(&gate), before);
    }
    gate.api.claim("never seen", "k").await.is("run first");
}

#[tokio::test]
async fn what_hides_behind_a_request_is_not_a_request() {
    let gate = Setup::alone("").start().await;
    let hidden =
        String::from_utf8(post(&format!("content-length: {}\r\n", body("hidden").len()), &body("hidden")))
            .unwrap();
    let chunked = "transfer-encoding: chunked\r\n";
    for bytes in [
        // A proxy that goes by the length sends this as one request.
        post(&format!("content-length: {}\r\n{chunked}", hidden.len() + 5), &format!("0\r\n\r\n{hidden}")),
        post(&format!("{chunked}content-length: {}\r\n", hidden.len() + 5), &format!("0\r\n\r\n{hidden}")),
        post(
            &format!("transfer-encoding:\tchunked\r\ncontent-length: {}\r\n", hidden.len() + 5),
            &format!("0\r\n\r\n{hidden}"),
        ),
        // A proxy that does not know this coding likewise.
        post("transfer-encoding: xchunked\r\ncontent-length: 3\r\n", &format!("0\r\n\r\n{hidden}")),
        post(&format!("content-length: 0\r\ncontent-length: {}\r\n", hidden.len()), &hidden),
    ] {
        let answer = answered(&gate, &bytes).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        assert_eq!(rows(&gate)["claims"], 0, "{}", String::from_utf8_lossy(&bytes));
    }
    // A length beside chunks does not count, and nothing may follow (RFC 9112 §6.1).
    let (both, claim) = (format!("content-length: 3\r\n{chunked}"), body("chunked"));
    let chunks = format!("{:x}\r\n{claim}\r\n0\r\n\r\n{hidden}", claim.len());
    let answer = answered(&gate, &post(&both, &chunks)).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.matches("HTTP/1.1 ").count() == 1, "{answer}");
    assert_eq!(rows(&gate)["claims"], 1);
    // Two that are two are two.
    let mut raw = Raw::connect(&gate).await;
    let one = post(&format!("content-length: {}\r\n", body("one").len()), &body("one"));
    raw.send([one, hidden.into_bytes()].concat()).await;
    eventually("both are answered", async || Some(rows(&gate)["claims"]).filter(|claims| *claims == 3)).await;
}

#[tokio::test]
async fn a_caller_that_stands_still_keeps_nobody_waiting() {
    let gate = Setup::alone("").start().await;
    let mut still = vec![];
    for n in 0..200 {
        let mut raw = Raw::connect(&gate).await;
        let sent: &[u8] = match n % 4 {
            0 => b"",
            1 => b"POST /v1/claims HTTP/1.1\r\nhost: ga",
            2 => b"POST /v1/claims HTTP/1.1\r\nhost: gate\r\ncontent-length: 1000\r\n\r\n{",
            _ => b"POST /in/x HTTP/1.1\r\nhost: gate\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
        };
        raw.send(sent).await;
        still.push(raw);
    }
    let answered = tokio::time::timeout(Duration::from_secs(10), gate.api.another().claim("a", "k")).await;
    answered.expect("an answer in time").is("run first");
}
