//! Shopify: HMAC-SHA256 over the raw body, base64, no time signed (webhooks/README.md §2 and §3, "Shopify").
//!
//! Shop, topic and ids stand in headers, which are not signed: whoever captured a request could send it again under a
//! new id. Where that matters, declare key fields from the body.

use serde_json::Value;

use super::default_key::DefaultKey;
use super::rules::{DefaultRepeat, Rules, SAME_BODY, Signature, instant};
use super::signature::{BodySignature, Encoding};
use super::{FieldPath, Headers, Request};
use crate::time::Timestamp;

pub(super) struct Shopify;

/// The headers of a subscription. Those called "Events" drop the `x-`, and all of one request are of one family.
struct Names {
    signature: &'static str,
    shop: &'static str,
    topic: &'static str,
    event: &'static str,
    webhook: &'static str,
}

const CLASSIC: Names = Names {
    signature: "x-shopify-hmac-sha256",
    shop: "x-shopify-shop-domain",
    topic: "x-shopify-topic",
    event: "x-shopify-event-id",
    webhook: "x-shopify-webhook-id",
};
const EVENTS: Names = Names {
    signature: "shopify-hmac-sha256",
    shop: "shopify-shop-domain",
    topic: "shopify-topic",
    event: "shopify-event-id",
    webhook: "shopify-webhook-id",
};

fn names(headers: &Headers) -> &'static Names {
    match headers.get(CLASSIC.signature).is_none() && headers.get(EVENTS.signature).is_some() {
        true => &EVENTS,
        false => &CLASSIC,
    }
}

impl Rules for Shopify {
    fn signature(&self, req: &Request<'_>) -> Signature<'_> {
        Signature::Body(BodySignature::sha256(names(req.headers).signature, "", Encoding::Base64))
    }

    /// Two subscriptions of one topic send one event under two webhook ids, so it is the event's id that counts.
    fn default_key(&self, req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        let names = names(req.headers);
        Some(DefaultKey::of([names.shop, names.topic, names.event].map(FieldPath::header)))
    }

    /// The ids are not signed: a captured request under new ones has the body of the first, unless its kind is
    /// changed too.
    fn repeat(&self) -> Option<DefaultRepeat> {
        Some(SAME_BODY)
    }

    fn delivery_id(&self, req: &Request<'_>) -> Option<FieldPath> {
        Some(FieldPath::header(names(req.headers).webhook))
    }

    /// Of orders, products and customers; other topics tell no date that stays.
    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/updated_at").or_else(|| instant(payload, "/created_at"))
    }

    fn event_type(&self, req: &Request<'_>, _payload: &Value) -> Option<String> {
        req.headers.get(names(req.headers).topic).map(str::to_owned)
    }
}
