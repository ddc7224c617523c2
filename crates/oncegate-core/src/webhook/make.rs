//! Make: its HTTP module sends what a person mapped, unsigned; its own event subscriptions are signed as Standard
//! Webhooks (webhooks/README.md §3, "Zapier and Make as senders"). An execution id is new whenever a scenario runs
//! again, so it names nothing.

use std::borrow::Cow;

use serde_json::Value;

use super::default_key::DefaultKey;
use super::rules::{Rules, Signature, instant, text};
use super::signature::SecretError;
use super::standard_webhooks::{self, StandardWebhooks};
use super::{FieldPath, Request, zapier};
use crate::secret::Secret;
use crate::time::Timestamp;

pub(super) struct Make;

const ID: &str = "webhook-id";

impl Rules for Make {
    /// `whsec_…` signs; anything else is shown.
    fn key<'s>(&self, secret: &'s Secret) -> Result<Cow<'s, [u8]>, SecretError> {
        match secret.expose().starts_with(b"whsec_") {
            true => StandardWebhooks.key(secret),
            false if secret.expose().trim_ascii().is_empty() => Err(SecretError::Blank),
            false => Ok(Cow::Borrowed(secret.expose())),
        }
    }

    fn signature(&self, req: &Request<'_>) -> Signature<'_> {
        match standard_webhooks::signs(req.headers) {
            true => Signature::Own(standard_webhooks::check),
            false => Signature::Nothing,
        }
    }

    /// Its HTTP module does not.
    fn signs(&self) -> bool {
        false
    }

    fn default_key(&self, req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        Some(match standard_webhooks::signs(req.headers) {
            true => DefaultKey::of([FieldPath::header(ID)]),
            false => zapier::by_hand(req, payload),
        })
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/timestamp")
    }

    fn delivery_id(&self, req: &Request<'_>) -> Option<FieldPath> {
        standard_webhooks::signs(req.headers).then(|| FieldPath::header(ID))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/type")
    }
}
