//! Everybody who signs the raw body with an HMAC in one header: Shopify, WooCommerce, Meta, home-grown senders.

use serde::Deserialize;
use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::field::is_header_name;
use super::rules::{Rules, Signature};
use super::signature::{Algorithm, BodySignature, Encoding};

pub(super) const NAME: &str = "hmac";

/// What is signed where, for a sender without rules of its own here. The whole raw body is signed; no time is.
///
/// In YAML: `{ header: X-Signature, algorithm: sha256 | sha512, encoding: hex | base64, prefix: "sha256=" }`;
/// all but `header` may be left out (`sha256`, `hex`, no prefix).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct HmacScheme {
    header: String,
    algorithm: Algorithm,
    encoding: Encoding,
    prefix: String,
}

/// The scheme as it stands in the configuration, before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    header: String,
    #[serde(default)]
    algorithm: Algorithm,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    prefix: String,
}

impl TryFrom<Written> for HmacScheme {
    type Error = HmacSchemeError;

    fn try_from(w: Written) -> Result<Self, HmacSchemeError> {
        Self::new(&w.header, w.algorithm, w.encoding, &w.prefix)
    }
}

/// Why a scheme is refused; the sentence a user reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HmacSchemeError {
    /// No HTTP header can have this name.
    #[error(
        "`{header}` cannot be the name of a header; write the one the sender signs in, e.g. `X-Signature`"
    )]
    BadHeaderName {
        /// The name as written.
        header: String,
    },
    /// A prefix with a comma or white space, at which repeated signatures are split.
    #[error(
        "the prefix `{prefix}` has a comma or white space in it; write what stands right before the signature"
    )]
    BadPrefix {
        /// The prefix as written.
        prefix: String,
    },
}

impl HmacScheme {
    /// A scheme: the header with the signature, the hash, how its bytes are written, and what stands before
    /// them (`sha256=`, often nothing).
    ///
    /// # Errors
    /// The header's name or the prefix cannot occur in a request.
    pub fn new(
        header: &str,
        algorithm: Algorithm,
        encoding: Encoding,
        prefix: &str,
    ) -> Result<Self, HmacSchemeError> {
        if !is_header_name(header) {
            return Err(HmacSchemeError::BadHeaderName { header: header.to_owned() });
        }
        if prefix.contains(|c: char| c == ',' || c.is_whitespace() || c.is_control()) {
            return Err(HmacSchemeError::BadPrefix { prefix: prefix.to_owned() });
        }
        Ok(Self { header: header.to_ascii_lowercase(), algorithm, encoding, prefix: prefix.to_owned() })
    }
}

impl Rules for HmacScheme {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        let Self { header, algorithm, encoding, prefix } = self;
        Signature::Body(BodySignature {
            header,
            prefix,
            algorithm: *algorithm,
            encoding: *encoding,
            salt: b"",
        })
    }

    /// Nobody but the operator knows what names an event of an unknown sender.
    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        None
    }
}
