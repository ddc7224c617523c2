//! Gravity Forms' add-on for webhooks: the entry as JSON or as a form, not signed; a header can be set
//! (webhooks/README.md §2 and §3, "Gravity Forms").

use serde_json::Value;

use super::Request;
use super::default_key::{DefaultKey, KeyPart, path};
use super::rules::{Rules, Signature};
use super::woocommerce::host;

pub(super) struct GravityForms;

impl Rules for GravityForms {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    /// Entries are numbered on each site. A feed that selects fields has to select `id` and `form_id` too.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        let site = payload.get("source_url").and_then(Value::as_str).and_then(host);
        let site = site.map(|address| address.split(['/', '?']).next().unwrap_or_default().to_owned());
        let parts = vec![
            KeyPart::Read { at: path("source_url"), value: site.map(Value::String) },
            KeyPart::Id(path("form_id")),
            KeyPart::Id(path("id")),
        ];
        Some(DefaultKey::from(parts))
    }
}
