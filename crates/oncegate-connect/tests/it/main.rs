//! Calls to real TCP servers that misbehave.
#![expect(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod answers;
mod blocked;
mod broken;
mod resend;
mod server;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use oncegate_connect::{Answer, CallOutcome, Caller, Failure, Options, OutgoingRequest};
use oncegate_core::time::Timestamp;

fn now() -> Timestamp {
    Timestamp::parse_rfc3339("2026-01-05T10:01:00Z").unwrap()
}

fn options() -> Options {
    Options { allow_private: vec!["127.0.0.1".parse().unwrap()], ..Options::default() }
}

fn caller() -> Caller {
    Caller::new(&options()).unwrap()
}

fn post(to: SocketAddr, key: &str) -> OutgoingRequest {
    let mut request = OutgoingRequest::new(Method::POST, format!("http://{to}/hook/s3cret?t=s3cret"), key);
    request.headers.push(("Authorization".into(), "Bearer s3cret".into()));
    request.body = Some(b"{\"s3cret\":1}".to_vec());
    request.timeout = Duration::from_secs(5);
    request
}

async fn call(request: &OutgoingRequest) -> CallOutcome {
    checked(caller().call(request, now()).await)
}

/// No note shows a secret, whatever happened.
fn checked(outcome: CallOutcome) -> CallOutcome {
    if let CallOutcome::Failed { note, .. } | CallOutcome::Unknown { note, .. } = &outcome {
        assert!(!note.contains("s3cret") && note.len() > 20, "{note}");
    }
    outcome
}

fn succeeded(outcome: CallOutcome) -> (u16, Answer) {
    match outcome {
        CallOutcome::Succeeded { status, answer } => (status, answer),
        other => panic!("{other:?}"),
    }
}

fn failed(outcome: CallOutcome) -> (Failure, Option<u16>, String) {
    match outcome {
        CallOutcome::Failed { failure, status, note, .. } => (failure, status, note),
        other => panic!("{other:?}"),
    }
}

fn unknown(outcome: CallOutcome) -> (Option<u16>, String) {
    match outcome {
        CallOutcome::Unknown { status, note, .. } => (status, note),
        other => panic!("{other:?}"),
    }
}
