//! Calls that bring no answer, or half of one.

use std::time::Duration;

use oncegate_connect::{CallOutcome, Failure};
use tokio::net::TcpListener;

use crate::server::serve;
use crate::{call, failed, post, succeeded, unknown};

#[tokio::test]
async fn a_refused_connection_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    drop(listener);
    for body in [None, Some(b"x".to_vec())] {
        let mut request = post(to, "og-1");
        request.body = body;
        let (failure, status, note) = failed(call(&request).await);
        assert_eq!((failure, status), (Failure::Transient, None));
        assert!(note.contains(&to.to_string()) && note.contains("refused"), "{note}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_sent_nothing() {
    let mut request = post("127.0.0.1:1".parse().unwrap(), "og-1");
    // RFC 6761 §6.4: never exists.
    request.url = "http://nowhere.invalid/s3cret".into();
    request.timeout = Duration::from_secs(30);
    let (failure, _, note) = failed(call(&request).await);
    assert_eq!(failure, Failure::Transient);
    assert!(note.contains("looked up"), "{note}");
}

#[tokio::test]
async fn silence_is_unknown() {
    let (to, seen) = serve(|mut conn| async move {
        conn.read().await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut request = post(to, "og-1");
    request.timeout = Duration::from_millis(300);
    let (status, note) = unknown(call(&request).await);
    assert_eq!(status, None);
    assert!(note.contains("300 ms"), "{note}");
    assert_eq!(seen.with_key("og-1"), 1);
}

#[tokio::test]
async fn a_server_that_never_takes_the_whole_request_is_unknown() {
    let (to, seen) = serve(|conn| async move {
        let _held = conn;
        std::future::pending::<()>().await;
    })
    .await;
    let mut request = post(to, "og-1");
    request.body = Some(vec![b'x'; 64 * 1024 * 1024]);
    request.timeout = Duration::from_millis(300);
    unknown(call(&request).await);
    assert_eq!(seen.with_key("og-1"), 0, "cautious, not wrong");
}

#[tokio::test]
async fn a_close_or_reset_after_the_commit_is_unknown() {
    for reset in [false, true] {
        let (to, seen) = serve(move |mut conn| async move {
            conn.read().await;
            if reset {
                conn.reset();
            }
        })
        .await;
        assert_eq!(unknown(call(&post(to, "og-1")).await).0, None);
        assert_eq!(seen.with_key("og-1"), 1);
    }
}

#[tokio::test]
async fn half_a_head_is_unknown() {
    for head in
        ["HTTP/1.1 20", "HTTP/1.1 200 OK\r\nContent-Le", "nonsense\r\n\r\n", "HTTP/1.1 99999 x\r\n\r\n"]
    {
        let (to, _) = serve(move |mut conn| async move {
            conn.read().await;
            conn.write(head).await;
        })
        .await;
        unknown(call(&post(to, "og-1")).await);
    }
}

#[tokio::test]
async fn half_an_answer_after_2xx_is_a_success_with_a_cut_answer() {
    let (to, _) = serve(|mut conn| async move {
        conn.read().await;
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    })
    .await;
    let (_, answer) = succeeded(call(&post(to, "og-1")).await);
    assert_eq!((&answer.body[..], answer.cut), (&b"half"[..], true));
}

#[tokio::test]
async fn a_slow_trickle_ends_with_the_timeout() {
    for (status, done) in [("200 OK", true), ("500 Oops", false)] {
        let (to, _) = serve(move |mut conn| async move {
            conn.read().await;
            conn.write(&format!("HTTP/1.1 {status}\r\nContent-Length: 10000\r\n\r\n")).await;
            loop {
                conn.write("x").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let mut request = post(to, "og-1");
        request.timeout = Duration::from_millis(400);
        let outcome = call(&request).await;
        if done {
            let (_, answer) = succeeded(outcome);
            assert!(answer.cut && !answer.body.is_empty());
        } else {
            assert_eq!(unknown(outcome).0, Some(500));
        }
    }
}

#[tokio::test]
async fn a_head_without_end_stops() {
    let (to, _) = serve(|mut conn| async move {
        conn.read().await;
        conn.write("HTTP/1.1 200 OK\r\n").await;
        let line = format!("X-Filler: {}\r\n", "x".repeat(4096));
        while tokio::io::AsyncWriteExt::write_all(&mut conn.tcp, line.as_bytes()).await.is_ok() {}
    })
    .await;
    unknown(call(&post(to, "og-1")).await);
}

/// As Docker's port forwarding does when nothing listens behind it.
#[tokio::test]
async fn a_close_right_after_accepting_is_never_a_success() {
    let (to, seen) = serve(|conn| async move { drop(conn) }).await;
    for _ in 0..50 {
        match call(&post(to, "og-1")).await {
            CallOutcome::Failed { failure: Failure::Transient, .. } | CallOutcome::Unknown { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen.with_key("og-1"), 0);
    assert_eq!(seen.connections(), 50);
}
