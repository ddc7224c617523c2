//! What arrives, and what the answers mean.

use std::time::Duration;

use http::{HeaderName, Method};
use oncegate_connect::{Failure, OutgoingRequest};
use oncegate_core::limits::STEP_ANSWER_BYTES_MAX;

use crate::server::{serve, serve_text};
use crate::{call, caller, checked, failed, now, post, succeeded, unknown};

#[tokio::test]
async fn a_request_arrives_as_it_was_meant() {
    let (to, seen) =
        serve_text("HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok").await;
    let (status, answer) = succeeded(call(&post(to, "og-1")).await);
    assert_eq!((status, &answer.body[..], answer.cut), (201, &b"ok"[..], false));
    assert_eq!(answer.content_type.as_deref(), Some("text/plain"));
    let read = &seen.reads()[0];
    assert!(read.head.starts_with("POST /hook/s3cret?t=s3cret HTTP/1.1\r\n"), "{}", read.head);
    assert_eq!(read.body, b"{\"s3cret\":1}");
    assert_eq!(read.header("idempotency-key"), Some("og-1"));
    assert_eq!(read.header("user-agent"), Some(concat!("oncegate/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(read.header("authorization"), Some("Bearer s3cret"));
    assert_eq!(read.header("content-length"), Some("12"));
    assert_eq!(read.header("connection"), Some("close"));
    for absent in ["accept-encoding", "cookie", "referer", "transfer-encoding", "expect"] {
        assert_eq!(read.header(absent), None, "{absent}");
    }
}

#[tokio::test]
async fn the_idempotency_header_can_have_another_name() {
    let (to, seen) = serve_text("HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut request = OutgoingRequest::new(Method::DELETE, format!("http://{to}/"), "og-1");
    request.idempotency_header = HeaderName::from_static("x-request-id");
    assert_eq!(succeeded(call(&request).await).0, 204);
    assert_eq!(seen.reads()[0].header("x-request-id"), Some("og-1"));
    assert_eq!(seen.reads()[0].header("idempotency-key"), None);
}

#[tokio::test]
async fn a_post_without_a_body_says_so() {
    let (to, seen) = serve_text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for body in [None, Some(Vec::new())] {
        let mut request = post(to, "og-1");
        request.body = body;
        succeeded(call(&request).await);
    }
    assert!(seen.reads().iter().all(|r| r.header("content-length") == Some("0")), "{:?}", seen.reads());
}

#[tokio::test]
async fn statuses_mean_what_the_table_says() {
    let transient = || Some(Failure::Transient);
    let permanent = || Some(Failure::Permanent);
    let wait = |s| Some(Failure::Throttled { retry_after: Duration::from_secs(s) });
    let table = [
        ("429 Too Many Requests\r\nRetry-After: 60", wait(60)),
        ("429 Too Many Requests\r\nRetry-After: Mon, 05 Jan 2026 10:02:30 GMT", wait(90)),
        ("429 Too Many Requests\r\nRetry-After: 5\r\nRetry-After: 7\r\nRetry-After: x", wait(7)),
        ("429 Too Many Requests", wait(30)),
        ("503 Service Unavailable\r\nRetry-After: 86400", wait(86_400)),
        ("503 Service Unavailable", transient()),
        ("425 Too Early", transient()),
        ("401 Unauthorized", permanent()),
        ("404 Not Found", permanent()),
        ("409 Conflict", permanent()),
        ("500 Internal Server Error", None),
        ("502 Bad Gateway", None),
        ("504 Gateway Timeout", None),
        ("408 Request Timeout", None),
        ("599 Odd", None),
    ];
    for (head, expected) in table {
        let (to, seen) = serve_text(format!("HTTP/1.1 {head}\r\nContent-Length: 2\r\n\r\nno")).await;
        let outcome = call(&post(to, "og-1")).await;
        let status = match expected {
            Some(expected) => {
                let (failure, status, _) = failed(outcome);
                assert_eq!(failure, expected, "{head}");
                status
            }
            None => unknown(outcome).0,
        };
        assert_eq!(status, head[..3].parse().ok());
        assert_eq!(seen.reads().len(), 1, "{head}: nothing retries underneath");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (target, target_seen) = serve_text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for status in [301, 302, 303, 307, 308] {
        let (to, seen) = serve_text(format!(
            "HTTP/1.1 {status} Moved\r\nLocation: http://{target}/s3cret?s3cret\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
        match call(&post(to, "og-1")).await {
            // "See other" is what a form handler says after it has acted.
            oncegate_connect::CallOutcome::Unknown { .. } => assert!(matches!(status, 302 | 303), "{status}"),
            outcome => {
                let (failure, _, note) = failed(outcome);
                assert!(failure == Failure::Permanent && !matches!(status, 302 | 303), "{status}");
                assert!(
                    note.contains(&target.to_string()) && note.contains("Put the final address"),
                    "{note}"
                );
            }
        }
        assert_eq!(seen.reads().len(), 1);
    }
    assert_eq!(target_seen.connections(), 0);
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let (to, _) = serve_text(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    assert_eq!(succeeded(call(&post(to, "og-1")).await).0, 200);
}

#[tokio::test]
async fn a_huge_answer_is_cut_and_not_read_to_its_end() {
    let (to, _) = serve(|mut conn| async move {
        conn.read().await;
        conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        // Without an end; only a reader that stops gets out of it.
        while tokio::io::AsyncWriteExt::write_all(&mut conn.tcp, chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let (_, answer) = succeeded(call(&post(to, "og-1")).await);
    assert_eq!((answer.body.len(), answer.cut), (STEP_ANSWER_BYTES_MAX, true));
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_whole() {
    let body = "x".repeat(STEP_ANSWER_BYTES_MAX);
    let (to, _) =
        serve_text(format!("HTTP/1.1 200 OK\r\nContent-Length: {STEP_ANSWER_BYTES_MAX}\r\n\r\n{body}")).await;
    let (_, answer) = succeeded(call(&post(to, "og-1")).await);
    assert_eq!((answer.body.len(), answer.cut), (STEP_ANSWER_BYTES_MAX, false));
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let (to, seen) = serve_text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let mut request = post(to, "og-1");
    request.body = Some(vec![b'x'; 4 * 1024 * 1024]);
    succeeded(checked(caller().call(&request, now()).await));
    assert_eq!(seen.reads()[0].body.len(), 4 * 1024 * 1024);
}
