//! `oncegate doctor --public`: through a proxy with TLS, as senders come.
#![expect(clippy::disallowed_methods, reason = "this test writes what doctor looks at")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::program::{Program, doctor_with};

/// A proxy that ends TLS as `localhost` and passes everything on; its port.
async fn front(gate: SocketAddr, certificate: &Path) -> u16 {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let (Ok(mut outside), Ok(mut inside)) =
                    (acceptor.accept(stream).await, TcpStream::connect(gate).await)
                else {
                    return;
                };
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    port
}

fn port_of(program: &Program) -> SocketAddr {
    program.api.base().strip_prefix("http://").unwrap().parse().unwrap()
}

/// The mark and the words of one check, with `public_url` set to this port.
async fn check(dir: &Path, port: u16, gate: &str, certificate: &Path, name: &str) -> (String, String) {
    std::fs::write(dir.join("oncegate.yaml"), format!("public_url: https://localhost:{port}\n")).unwrap();
    let (dir, gate, certificate) = (dir.to_owned(), gate.to_owned(), certificate.to_owned());
    let args = tokio::task::spawn_blocking(move || {
        let vars = [("SSL_CERT_FILE", certificate.to_str().unwrap())];
        doctor_with(&dir, &["--json", "--public", "--url", &gate], &vars)
    });
    let output = args.await.unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let found = document["checks"].as_array().unwrap().iter().find(|c| c["check"] == name);
    let found = found.unwrap_or_else(|| panic!("no check {name} in {document}"));
    (found["mark"].as_str().unwrap().to_owned(), found["said"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_comes_as_senders_do_and_knows_its_own_gate_from_another() {
    let new = || tempfile::Builder::new().prefix("public-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dir, other_dir) = (new(), new());
    for dir in [&dir, &other_dir] {
        std::fs::write(dir.path().join("oncegate.yaml"), "automations: {}\n").unwrap();
    }
    let (ours, other) = (Program::serve(dir.path(), &[], &[]), Program::serve(other_dir.path(), &[], &[]));
    let certificate = dir.path().join("proxy.pem");
    let base = ours.api.base().to_owned();

    let port = front(port_of(&ours), &certificate).await;
    let (mark, said) = check(dir.path(), port, &base, &certificate, "public address").await;
    assert_eq!(mark, "ok", "{said}");
    assert!(said.starts_with("this gate answers at https://localhost:"), "{said}");
    let (mark, said) = check(dir.path(), port, &base, &certificate, "certificate").await;
    assert!(mark == "ok" && said.starts_with("trusted, ends in "), "{said}");
    let (mark, said) = check(dir.path(), port, &base, &certificate, "public name").await;
    assert!(mark == "problem" && said.contains("a loopback address"), "{said}");
    // Nothing was stored by being looked at.
    assert_eq!(ours.api.get("/v1/rejected").await.ok()["rejected"].as_array().map(Vec::len), Some(0));

    let elsewhere = dir.path().join("elsewhere.pem");
    let port = front(port_of(&other), &elsewhere).await;
    let (mark, said) = check(dir.path(), port, &base, &elsewhere, "public address").await;
    assert!(mark == "problem" && said.starts_with("another gate answers"), "{said}");
    let (mark, said) = check(dir.path(), port, &base, &certificate, "public address").await;
    assert!(mark == "problem" && said.contains("certificate"), "one that nobody trusts: {said}");

    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (mark, said) = check(dir.path(), gone, &base, &certificate, "public address").await;
    assert!(mark == "problem" && said.contains("refused"), "{said}");
    tokio::task::spawn_blocking(|| (ours.stop(), other.stop())).await.unwrap();
}
