//! Signs requests as senders do.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The secret of the source `orders`.
pub(crate) const ORDERS: &str = "orders-secret";

pub(crate) fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    data_encoding::BASE64.encode(bytes)
}

/// A request as its sender made it.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Signed {
    /// With an HMAC in hexadecimal over the raw body in `X-Signature`.
    pub(crate) fn hmac(secret: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let signature = hex(&hmac_sha256(secret.as_bytes(), &body));
        Self::with(&[("content-type", "application/json"), ("x-signature", &signature)], body)
    }

    /// As the source `orders` is sent to.
    pub(crate) fn order(json: &serde_json::Value) -> Self {
        Self::hmac(ORDERS, json.to_string())
    }

    pub(crate) fn with(headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Self { headers, body: body.into() }
    }
}
