//! WPForms' add-on for webhooks: fields as somebody mapped them, not signed (webhooks/README.md §3, "WPForms";
//! uncertain). Where no entries are stored, `entry_id` is 0 for all of them.

use serde_json::Value;

use super::Request;
use super::default_key::{DefaultKey, KeyPart, path};
use super::rules::{Rules, Signature};

pub(super) struct WpForms;

impl Rules for WpForms {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::from(vec![KeyPart::Id(path("form_id")), KeyPart::Id(path("entry_id"))]))
    }
}
