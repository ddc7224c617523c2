//! Case C51: requests on the wire = calls, with and without reused connections.

use std::time::Duration;

use oncegate_connect::{CallOutcome, Caller, Failure, Options, OutgoingRequest};

use crate::server::serve;
use crate::{checked, now, options, post, succeeded, unknown};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
/// Long enough for the client's connection task to put the connection back, or to see that it was closed.
const SETTLE: Duration = Duration::from_millis(50);

fn caller(reuse_connections: bool) -> Caller {
    Caller::new(&Options { reuse_connections, ..options() }).unwrap()
}

fn bodyless(to: std::net::SocketAddr, key: &str) -> OutgoingRequest {
    OutgoingRequest { method: http::Method::DELETE, body: None, ..post(to, key) }
}

/// Case C51 to the letter: read whole, committed, reset; the first request on a reused connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_after_the_commit_is_never_sent_again() {
    for reuse in [true, false] {
        for with_body in [true, false] {
            let (to, seen) = serve(|mut conn| async move {
                while let Some(read) = conn.read().await {
                    if read.header("idempotency-key") == Some("og-2") {
                        return conn.reset();
                    }
                    conn.write(OK).await;
                }
            })
            .await;
            let caller = caller(reuse);
            succeeded(caller.call(&post(to, "og-1"), now()).await);
            tokio::time::sleep(SETTLE).await;
            let second = if with_body { post(to, "og-2") } else { bodyless(to, "og-2") };
            unknown(checked(caller.call(&second, now()).await));
            tokio::time::sleep(SETTLE).await;
            assert_eq!(seen.with_key("og-2"), 1);
            assert_eq!(seen.connections(), if reuse { 1 } else { 2 }, "reuse {reuse}");
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    succeeded: usize,
    transient: usize,
    unknown: usize,
    unknown_but_unread: usize,
}

/// A server closes (FIN or RST) each connection some time after its first answer, while the next request is
/// being written to it. `flavour` varies how long after, and how.
async fn race(reuse: bool, reset: bool, calls: u64) -> Tally {
    let (to, seen) = serve(move |mut conn| async move {
        if conn.read().await.is_some() {
            conn.write(OK).await;
            // Spread over the time in which the client sends its next request.
            for _ in 0..(conn.number % 40) {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_micros((conn.number as u64 * 37) % 400)).await;
            if reset {
                conn.reset();
            }
        }
    })
    .await;
    let caller = caller(reuse);
    let mut tally = Tally::default();
    for i in 0..calls {
        let key = format!("og-{i}");
        let outcome = checked(caller.call(&post(to, &key), now()).await);
        tokio::time::sleep(Duration::from_micros(i * 53 % 500)).await;
        let read = seen.with_key(&key);
        assert!(read <= 1, "sent twice: {outcome:?}");
        match outcome {
            CallOutcome::Succeeded { .. } => {
                assert_eq!(read, 1);
                tally.succeeded += 1;
            }
            CallOutcome::Failed { failure, .. } => {
                assert_eq!((failure, read), (Failure::Transient, 0));
                tally.transient += 1;
            }
            CallOutcome::Unknown { .. } => {
                tally.unknown += 1;
                tally.unknown_but_unread += usize::from(read == 0);
            }
        }
    }
    tokio::time::sleep(SETTLE).await;
    for i in 0..calls {
        assert!(seen.with_key(&format!("og-{i}")) <= 1, "sent twice, late");
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_crosses_a_request_never_doubles_it() {
    for reset in [false, true] {
        let reused = race(true, reset, 400).await;
        let fresh = race(false, reset, 400).await;
        println!("reset {reset}: reused {reused:?}, fresh {fresh:?}");
        if !reset {
            // Why connections are not reused by default.
            assert_eq!(fresh.succeeded, 400, "{fresh:?}");
        }
    }
}

/// Whatever moment a timeout strikes, "never sent" is true, also for the connection task that is still alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_at_any_moment_tells_the_truth() {
    let (to, seen) = serve(|mut conn| async move {
        while conn.read().await.is_some() {
            conn.write(OK).await;
        }
    })
    .await;
    for reuse in [true, false] {
        let caller = caller(reuse);
        // All at once, so that the scheduler scatters them: timers tick in whole milliseconds.
        let tasks: Vec<_> = (0..600_u64)
            .map(|i| {
                let (caller, key) = (caller.clone(), format!("og-{reuse}-{i}"));
                let request = OutgoingRequest { timeout: Duration::from_millis(i % 60), ..post(to, &key) };
                tokio::spawn(async move { (key, checked(caller.call(&request, now()).await)) })
            })
            .collect();
        let (mut outcomes, mut never) = ([0; 3], Vec::new());
        for task in tasks {
            match task.await.unwrap() {
                (_, CallOutcome::Succeeded { .. }) => outcomes[0] += 1,
                (key, CallOutcome::Failed { .. }) => {
                    outcomes[1] += 1;
                    never.push(key);
                }
                (_, CallOutcome::Unknown { .. }) => outcomes[2] += 1,
            }
        }
        tokio::time::sleep(SETTLE).await;
        println!("reuse {reuse}: succeeded, never sent, unknown: {outcomes:?}");
        for key in never {
            assert_eq!(seen.with_key(&key), 0, "{key}");
        }
    }
}
