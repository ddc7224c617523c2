//! What is not called unless allowed.

use oncegate_connect::{Caller, Failure, Options};

use crate::server::serve_text;
use crate::{checked, failed, now, post, succeeded};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn private_addresses_are_not_called_in_any_spelling() {
    let (to, seen) = serve_text(OK).await;
    let port = to.port();
    let caller = Caller::new(&Options::default()).unwrap();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "LOCALHOST",
    ] {
        let mut request = post(to, "og-1");
        request.url = format!("http://{host}:{port}/s3cret?s3cret");
        let (failure, status, note) = failed(checked(caller.call(&request, now()).await));
        assert_eq!((failure, status), (Failure::Permanent, None), "{host}: {note}");
        assert!(note.contains(&format!(":{port} to outgoing.allow_private")), "{host}: {note}");
    }
    assert_eq!(seen.connections(), 0);
}

#[tokio::test]
async fn an_allowance_opens_a_name_an_address_or_a_network() {
    let (to, seen) = serve_text(OK).await;
    let port = to.port();
    let open = [
        (format!("localhost:{port}"), "localhost"),
        ("localhost".to_owned(), "localhost"),
        ("127.0.0.0/8".to_owned(), "localhost"),
        ("127.0.0.1".to_owned(), "127.0.0.1"),
        (format!("127.0.0.1:{port}"), "127.0.0.1"),
        (format!("127.0.0.1:{port}"), "2130706433"),
        ("127.0.0.0/8".to_owned(), "[::ffff:127.0.0.1]"),
    ];
    let tried = open.len();
    for (allowance, host) in open {
        let options = Options { allow_private: vec![allowance.parse().unwrap()], ..Options::default() };
        let mut request = post(to, "og-1");
        request.url = format!("http://{host}:{port}/");
        succeeded(checked(Caller::new(&options).unwrap().call(&request, now()).await));
    }
    assert_eq!(seen.reads().len(), tried);

    for allowance in ["localhost:1", "127.0.0.1:1", "10.0.0.0/8", "example.com"] {
        let options = Options { allow_private: vec![allowance.parse().unwrap()], ..Options::default() };
        let caller = Caller::new(&options).unwrap();
        for host in ["localhost", "127.0.0.1"] {
            let mut request = post(to, "og-1");
            request.url = format!("http://{host}:{port}/");
            assert_eq!(
                failed(caller.call(&request, now()).await).0,
                Failure::Permanent,
                "{allowance} {host}"
            );
        }
    }
    assert_eq!(seen.reads().len(), tried);
}

#[tokio::test]
async fn what_is_no_request_is_refused_before_anything_is_sent() {
    let (to, seen) = serve_text(OK).await;
    let caller = crate::caller();
    let mut requests = Vec::new();
    for url in
        ["ftp://127.0.0.1/", "file:///etc/passwd", "nonsense", "", "http://u:s3cret@127.0.0.1/", "http://"]
    {
        let mut request = post(to, "og-1");
        request.url = url.into();
        assert!(caller.check_url(url).is_err(), "{url}");
        requests.push(request);
    }
    let mut smuggler = post(to, "og-1");
    smuggler.headers.push(("Transfer-Encoding".into(), "chunked".into()));
    requests.push(smuggler);
    let mut keyless = post(to, "");
    keyless.idempotency_key.clear();
    requests.push(keyless);
    let mut tunnel = post(to, "og-1");
    tunnel.method = http::Method::CONNECT;
    requests.push(tunnel);
    let mut endless = post(to, "og-1");
    endless.url = format!("http://{to}/{}", "x".repeat(70_000));
    requests.push(endless);
    for request in requests {
        let (failure, status, note) = failed(checked(caller.call(&request, now()).await));
        assert_eq!((failure, status), (Failure::Permanent, None), "{request:?} {note}");
    }
    assert_eq!(seen.connections(), 0);
}
