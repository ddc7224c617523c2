//! TLS: a receiver that is trusted, one that is not, and one that does not speak it.

use std::sync::Arc;
use std::time::Duration;

use oncegate_connect::{Caller, Failure, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::server::serve;
use crate::{call, checked, failed, now, options, post, succeeded};

/// A server with a certificate of its own making for `localhost`; returns its port and the certificate.
async fn tls_server() -> (u16, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let der = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            let _ = tls.read(&mut [0; 4096]).await;
            let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            let _ = tls.shutdown().await;
        }
    });
    (port, der.to_vec())
}

#[tokio::test]
async fn a_trusted_certificate_is_needed_and_enough() {
    let (port, der) = tls_server().await;
    let mut request = post("127.0.0.1:1".parse().unwrap(), "og-1");
    request.url = format!("https://localhost:{port}/");

    let (failure, status, note) = failed(call(&request).await);
    assert_eq!((failure, status), (Failure::Transient, None));
    assert!(note.contains("certificate"), "{note}");

    let caller = Caller::new(&Options { extra_roots: vec![der], ..options() }).unwrap();
    assert_eq!(succeeded(checked(caller.call(&request, now()).await)).1.body, b"ok");

    request.url = format!("https://127.0.0.1:{port}/");
    let (failure, _, note) = failed(checked(caller.call(&request, now()).await));
    assert_eq!(failure, Failure::Transient, "another name: {note}");
}

#[tokio::test]
async fn a_handshake_that_fails_or_hangs_sent_nothing() {
    let (plain, seen) = serve(|mut conn| async move {
        conn.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let mut request = post(plain, "og-1");
    request.url = format!("https://{plain}/");
    assert_eq!(failed(call(&request).await).0, Failure::Transient);

    let (silent, _) = serve(|conn| async move {
        let _held = conn;
        std::future::pending::<()>().await;
    })
    .await;
    request.url = format!("https://{silent}/");
    request.timeout = Duration::from_millis(300);
    let (failure, _, note) = failed(call(&request).await);
    assert_eq!(failure, Failure::Transient);
    assert!(note.contains("300 ms"), "{note}");

    let quick = Caller::new(&Options { connect_timeout: Duration::from_millis(200), ..options() }).unwrap();
    request.timeout = Duration::from_secs(5);
    for body in [None, Some(b"x".to_vec())] {
        request.body = body;
        let (failure, _, note) = failed(checked(quick.call(&request, now()).await));
        assert_eq!(failure, Failure::Transient);
        assert!(note.contains("in time"), "{note}");
    }
    assert!(seen.reads().is_empty());
}

#[test]
fn what_is_no_certificate_is_reported() {
    let made = Caller::new(&Options { extra_roots: vec![b"no certificate".to_vec()], ..Options::default() });
    assert!(made.is_err());
}
