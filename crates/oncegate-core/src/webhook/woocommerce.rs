//! WooCommerce: HMAC-SHA256 over the raw body, base64, no time signed (webhooks/README.md §2 and §3, "WooCommerce").
//!
//! Shop, topic and webhook id stand in headers, which are not signed. `X-WC-Webhook-Delivery-ID` is made of the
//! webhook and the second: two orders of one second share it, so nothing is named by it.

use std::borrow::Cow;

use serde_json::Value;

use super::default_key::{DefaultKey, KeyPart, path};
use super::rules::{Answer, DefaultRepeat, Rules, SAME_BODY, Signature};
use super::signature::{BodySignature, Encoding, SecretError};
use super::trust::Trust;
use super::{FieldPath, Request, SignatureError};
use crate::secret::Secret;
use crate::time::Timestamp;

pub(super) struct WooCommerce;

const SIGNATURE: &str = "x-wc-webhook-signature";
const SOURCE: &str = "x-wc-webhook-source";
const TOPIC: &str = "x-wc-webhook-topic";

impl Rules for WooCommerce {
    /// WooCommerce decodes the secret it has stored before it signs, and so must whoever checks.
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        if secret.expose().trim_ascii().is_empty() {
            return Err(SecretError::Blank);
        }
        Ok(Cow::Owned(decoded(secret.expose())))
    }

    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256(SIGNATURE, "", Encoding::Base64))
    }

    /// Sent when the webhook is made: unsigned, and wants exactly 200. It starts nothing, so nobody is harmed by a
    /// false one.
    fn greeting(&self, req: &Request<'_>, _trust: &Trust) -> Option<Result<Answer, SignatureError>> {
        let id = req.body.strip_prefix(b"webhook_id=")?;
        let ping =
            req.headers.get(SIGNATURE).is_none() && id.len() <= 20 && id.iter().all(u8::is_ascii_digit);
        (ping && !id.is_empty() && req.method == "POST").then_some(Ok(Answer::NOTHING))
    }

    /// Of a deletion nothing but the id comes; whatever else is deleted, restored and deleted again is one.
    fn default_key(&self, req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        let shop = req.headers.get(SOURCE).and_then(host);
        let mut parts = vec![
            KeyPart::Read { at: FieldPath::header(SOURCE), value: shop.map(Value::String) },
            KeyPart::Field(FieldPath::header("x-wc-webhook-id")),
            KeyPart::Field(FieldPath::header(TOPIC)),
            KeyPart::Field(path("id")),
        ];
        let deleted = req.headers.get(TOPIC).is_some_and(|topic| topic.ends_with(".deleted"));
        if !deleted || payload.get("date_modified_gmt").is_some() {
            parts.push(KeyPart::Field(path("date_modified_gmt")));
        }
        Some(DefaultKey::from(parts))
    }

    /// The ids are not signed: a captured request under new ones has the body of the first, unless its kind is
    /// changed too.
    fn repeat(&self) -> Option<DefaultRepeat> {
        Some(SAME_BODY)
    }

    fn event_type(&self, req: &Request<'_>, _payload: &Value) -> Option<String> {
        req.headers.get(TOPIC).map(str::to_owned)
    }

    /// Greenwich time without saying so.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        let text = payload.get("date_modified_gmt")?.as_str()?;
        Timestamp::parse_rfc3339(&format!("{text}Z")).ok()
    }
}

/// The host of an address, with its port and the path of a shop that has one.
pub(super) fn host(address: &str) -> Option<String> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.trim().trim_end_matches('/');
    (!rest.is_empty()).then(|| rest.to_ascii_lowercase())
}

/// What WordPress makes of text it has escaped (`wp_specialchars_decode` with both kinds of quotes): in one pass, so
/// that `&amp;lt;` becomes `&lt;`.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let entity = (first == b'&').then(|| after.iter().take(12).position(|b| *b == b';')).flatten();
        match entity.and_then(|end| Some((meant(&after[..end])?, end))) {
            Some((meant, end)) => {
                out.push(meant);
                rest = &after[end + 1..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

fn meant(entity: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(entity).ok()?;
    let number = match text.strip_prefix('#') {
        None => {
            let names = [("lt", b'<'), ("gt", b'>'), ("quot", b'"'), ("amp", b'&')];
            return names.into_iter().find(|(name, _)| *name == text).map(|(_, meant)| meant);
        }
        Some(number) => number,
    };
    // `parse` would read a sign too.
    if !number.trim_start_matches(['x', 'X']).bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    // In hexadecimal only quotes and the ampersand are known to WordPress.
    let (number, known): (u32, &[u8]) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (u32::from_str_radix(digits, 16).ok()?, b"'\"&"),
        None => (number.parse().ok()?, b"'\"&<>"),
    };
    known.iter().copied().find(|known| u32::from(*known) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_decoded_once_as_wordpress_does() {
        for (stored, meant) in [
            ("plain & <raw> \"'", "plain & <raw> \"'"),
            ("a &amp; b", "a & b"),
            ("&amp;lt;", "&lt;"),
            ("&lt;&gt;&quot;&#039;&#39;&#x27;&#0034;&#x026;", "<>\"''' \"&".replace(' ', "").as_str()),
            ("&copy; &#65; & &; &#x3c;", "&copy; &#65; & &; &#x3c;"),
            ("&#+39;", "&#+39;"),
        ] {
            let got = String::from_utf8(decoded(stored.as_bytes())).unwrap();
            assert_eq!(got, meant, "{stored}");
        }
    }

    #[test]
    fn a_shop_is_named_by_its_host() {
        assert_eq!(host("https://shop.example.com/").as_deref(), Some("shop.example.com"));
        assert_eq!(host("http://Example.com/de/").as_deref(), Some("example.com/de"));
        assert_eq!(host(" "), None);
        assert_eq!(host("https://"), None);
    }
}
