//! The client with which the command line talks to its own gate: not an effect, so no outcome is told.

use std::time::Duration;

use oncegate_core::time::Timestamp;
use reqwest::redirect;
use x509_cert::der::Decode;

use crate::caller::SetupError;
use crate::tls;

/// For looking up the name, connecting and the TLS handshake together.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A client for calls to a gate. Nothing is sent twice underneath and redirects are not followed: a token goes where
/// it was meant to, once. `direct` leaves the proxies of the environment out, as calls to one's own machine must.
///
/// A machine without root certificates can call over http.
///
/// # Errors
/// The client cannot be set up.
pub fn gate_client(direct: bool) -> Result<reqwest::Client, SetupError> {
    let client = builder()?;
    let client = if direct { client.no_proxy() } else { client };
    Ok(client.build()?)
}

/// The same for a look at a gate from where its senders are: [`certificate_life`] knows its answers.
///
/// # Errors
/// The client cannot be set up.
pub fn outside_client() -> Result<reqwest::Client, SetupError> {
    Ok(builder()?.tls_info(true).build()?)
}

/// From when until when the certificate is good that the server showed for this answer; `None` without TLS, or if it
/// cannot be read.
pub fn certificate_life(answer: &reqwest::Response) -> Option<(Timestamp, Timestamp)> {
    let shown = answer.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate()?;
    let certificate = x509_cert::Certificate::from_der(shown).ok()?;
    let instant = |time: x509_cert::time::Time| {
        i64::try_from(time.to_unix_duration().as_millis()).ok().map(Timestamp::from_millis)
    };
    let validity = certificate.tbs_certificate.validity;
    Some((instant(validity.not_before)?, instant(validity.not_after)?))
}

fn builder() -> Result<reqwest::ClientBuilder, SetupError> {
    Ok(reqwest::Client::builder()
        .user_agent(concat!("oncegate/", env!("CARGO_PKG_VERSION")))
        .http1_only()
        .retry(reqwest::retry::never())
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_MAX)
        .tls_backend_preconfigured(tls::config(&[])?.config))
}
