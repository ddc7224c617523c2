//! TLS by rustls on *ring*: builds with a C compiler alone, and is a single backend on every platform.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

/// How certificates are checked.
pub(crate) struct Tls {
    pub(crate) config: ClientConfig,
    /// Whether there is any root to check against; without one, nothing can be called over https.
    pub(crate) has_roots: bool,
}

/// Certificates are checked against the system's roots and `extra_roots` (DER).
///
/// A machine without roots, e.g. a bare container, can still be called from over http.
///
/// # Errors
/// One of `extra_roots` is not a certificate.
pub(crate) fn config(extra_roots: &[Vec<u8>]) -> Result<Tls, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let extra = extra_roots.iter().map(|der| der.clone().into());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let (mut config, has_roots) = match Verifier::new_with_extra_roots(extra, provider) {
        Ok(verifier) => {
            // "Dangerous" names the door, not what comes through it: this verifier checks everything.
            let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
            (builder.with_no_client_auth(), true)
        }
        Err(_) if extra_roots.is_empty() => {
            (builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(), false)
        }
        Err(error) => return Err(error),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Early data is sent before the handshake and may be replayed by anyone (RFC 8446 §8).
    config.enable_early_data = false;
    Ok(Tls { config, has_roots })
}
