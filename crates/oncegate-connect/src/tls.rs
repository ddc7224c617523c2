//! TLS by rustls on *ring*: builds with a C compiler alone, and is a single backend on every platform.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::Verifier;

/// Certificates are checked against the system's roots and `extra_roots` (DER).
///
/// # Errors
/// No root could be loaded at all, or one of `extra_roots` is not a certificate.
pub(crate) fn config(extra_roots: &[Vec<u8>]) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let extra = extra_roots.iter().map(|der| der.clone().into());
    let verifier = Verifier::new_with_extra_roots(extra, Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        // "Dangerous" names the door, not what comes through it: this verifier checks everything.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Early data is sent before the handshake and may be replayed by anyone (RFC 8446 §8).
    config.enable_early_data = false;
    Ok(config)
}
