//! The client with which the command line talks to its own gate: not an effect, so no outcome is told.

use std::time::Duration;

use reqwest::redirect;

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
    let client = reqwest::Client::builder()
        .user_agent(concat!("oncegate/", env!("CARGO_PKG_VERSION")))
        .http1_only()
        .retry(reqwest::retry::never())
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_MAX)
        .tls_backend_preconfigured(tls::config(&[])?.config);
    let client = if direct { client.no_proxy() } else { client };
    Ok(client.build()?)
}
