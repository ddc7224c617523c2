//! One request over one connection, and what became of it. Nothing is reused, followed or repeated here.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub(in crate::cli) struct Answer {
    pub(in crate::cli) status: u16,
    pub(in crate::cli) body: Bytes,
}

/// No answer.
#[derive(Debug)]
pub(in crate::cli) enum Lost {
    /// Nobody was there, so nothing was sent.
    NotSent(String),
    /// The connection broke, or nothing came for too long.
    NoAnswer(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "no connection ({why})"),
            Self::NoAnswer(why) => write!(f, "no answer ({why})"),
        }
    }
}

/// Sends to the host in the request's own URI and waits up to `patience` for the whole answer.
pub(in crate::cli) async fn send(
    mut request: Request<Full<Bytes>>,
    patience: Duration,
) -> Result<Answer, Lost> {
    let not_sent = |e: &dyn std::fmt::Display| Lost::NotSent(e.to_string());
    let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let tcp = TcpStream::connect(&host).await.map_err(|e| not_sent(&e))?;
    // An origin server is asked by path alone (RFC 9112 §3.2.1).
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
    *request.uri_mut() = path.parse().map_err(|e: http::uri::InvalidUri| not_sent(&e))?;
    let host = HeaderValue::try_from(host).map_err(|e| not_sent(&e))?;
    request.headers_mut().insert(header::HOST, host);
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await?;
        let (answer, _) = tokio::join!(
            async move {
                let answer = sender.send_request(request).await?;
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await?.to_bytes();
                // Lets the connection end, which the other half of the join waits for.
                drop(sender);
                Ok::<_, hyper::Error>(Answer { status, body })
            },
            connection
        );
        answer
    };
    match tokio::time::timeout(patience, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(e)) => Err(Lost::NoAnswer(e.to_string())),
        Err(_) => Err(Lost::NoAnswer(format!("nothing within {} s", patience.as_secs()))),
    }
}
