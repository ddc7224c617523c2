//! Fillout: JSON, one submission or a list of them, not signed; a header can be set (webhooks/README.md §3,
//! "Formstack, Fillout, Paperform"; uncertain in detail).

use serde_json::Value;

use super::Request;
use super::body::Body;
use super::default_key::{DefaultKey, first_of, path};
use super::rules::{Rules, Signature, instant};
use crate::time::Timestamp;

pub(super) struct Fillout;

impl Rules for Fillout {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        body.items()
    }

    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        let submission = first_of(payload, &["submission.submissionId", "submissionId"]);
        Some(DefaultKey::of([path("formId"), submission]))
    }

    fn dated(&self, payload: &Value) -> Option<Timestamp> {
        instant(payload, "/submission/submissionTime").or_else(|| instant(payload, "/submissionTime"))
    }
}
