//! SendGrid's Inbound Parse: a mail as a multipart form, not signed (webhooks/README.md §3, "SendGrid"). Each field
//! may have a character set of its own.

use serde_json::Value;

use super::Request;
use super::default_key::{DefaultKey, KeyPart, path};
use super::machine_mail::{MailPlaces, fields};
use super::rules::{Rules, Signature};

pub(super) struct SendgridInbound;

impl Rules for SendgridInbound {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    /// A mail to two addresses that come here is two events. To whom this one went says the envelope, not the header.
    fn default_key(&self, _req: &Request<'_>, payload: &Value) -> Option<DefaultKey> {
        let id = payload.get("headers").and_then(Value::as_str).and_then(message_id);
        let message = KeyPart::Read { at: path("headers.Message-ID"), value: id.map(Value::String) };
        let to = KeyPart::Read { at: path("envelope.to"), value: recipients(payload).map(Value::String) };
        Some(DefaultKey::from(vec![to, message]))
    }

    fn mail(&self) -> Option<MailPlaces> {
        Some(MailPlaces {
            headers: Some(path("headers")),
            from: Some(path("from")),
            envelope_from: Some(path("envelope")),
        })
    }
}

fn recipients(payload: &Value) -> Option<String> {
    let envelope = payload.get("envelope").and_then(Value::as_str);
    let envelope: Option<Value> = envelope.and_then(|json| serde_json::from_str(json).ok());
    let mut all: Vec<String> = match envelope.as_ref().and_then(|envelope| envelope.get("to")) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![payload.get("to")?.as_str()?.to_owned()],
    };
    all.sort_unstable();
    Some(all.join(","))
}

/// The value of `Message-ID` among a mail's header lines.
fn message_id(headers: &str) -> Option<String> {
    let id = fields(headers).find(|(name, _)| name.eq_ignore_ascii_case("message-id"));
    id.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::message_id;

    #[test]
    fn a_message_id_is_found_among_other_lines() {
        for (headers, id) in [
            ("Message-ID: <a@b>\r\nSubject: x", Some("<a@b>")),
            ("Subject: Message-ID: no\nmessage-id:\r\n <a@b>\r\nTo: x", Some("<a@b>")),
            ("DKIM-Signature: v=1;\r\n\tmessage-id:to:x;\r\nMessage-ID: <a@b>", Some("<a@b>")),
            ("Subject: x", None),
            ("", None),
        ] {
            assert_eq!(message_id(headers).as_deref(), id, "{headers:?}");
        }
    }
}
