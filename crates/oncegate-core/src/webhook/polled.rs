//! Items that a poll brings: nobody sends them, so nothing is signed, and only the operator knows what names them.

use serde_json::Value;

use super::Request;
use super::default_key::DefaultKey;
use super::rules::{Rules, Signature};

pub(super) struct Polled;

pub(super) const NAME: &str = "poll";

impl Rules for Polled {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        None
    }
}
