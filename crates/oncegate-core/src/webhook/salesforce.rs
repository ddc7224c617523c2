//! Salesforce outbound messages: SOAP, not signed (webhooks/README.md §2 and §3, "Salesforce outbound messages").
//!
//! One message has up to a hundred notifications and one answer for all of them. What is not answered with
//! `<Ack>true</Ack>` comes again for a day, with the fields as they are by then. `SessionId` is a credential, so it
//! is dropped before anything is stored.

use serde_json::{Value, json};

use super::body::Body;
use super::default_key::{DefaultKey, path};
use super::rules::{Answer, Rules, Signature, text};
use super::soap::{self, Element};
use super::trust::Trust;
use super::{FieldPath, Request, SignatureError};

pub(super) struct Salesforce;

/// What the WSDL allows (webhooks/README.md §3, "Salesforce outbound messages").
const NOTIFICATIONS_MAX: usize = 100;
/// Longest value before the notifications, in bytes: ids and addresses.
const HEAD_BYTES_MAX: usize = 512;

impl Rules for Salesforce {
    fn signature(&self, _req: &Request<'_>) -> Signature<'_> {
        Signature::Nothing
    }

    fn signs(&self) -> bool {
        false
    }

    /// What cannot be read is not acknowledged: it was cut on its way, and comes again whole; or it is nothing that
    /// Salesforce sends.
    fn accepts(&self, req: &Request<'_>, trust: &Trust) -> Result<(), SignatureError> {
        const FIELD: &str = "OrganizationId";
        let body = self.body(req);
        if let Some(why) = body.unreadable {
            return Err(SignatureError::Unreadable { why });
        }
        let Some(ours) = &trust.organization else { return Ok(()) };
        for event in body.items() {
            let found = text(&event.payload, "/OrganizationId").unwrap_or_default();
            if !same_organization(&found, ours) {
                let found: String = found.chars().take(18).collect();
                let mend = "check `organization` in oncegate.yaml, and who knows this address";
                return Err(SignatureError::WrongSource { field: FIELD, found, mend });
            }
        }
        Ok(())
    }

    /// A list of notifications, each with what it needs to know of its message.
    fn body(&self, req: &Request<'_>) -> Body {
        match soap::read(req.body).and_then(|envelope| notifications(&envelope)) {
            Ok(events) => Body::of(Value::Array(events)),
            Err(why) => {
                let why = format!("the body is no outbound message ({why})");
                // Not its text: that may hold the session.
                Body { unreadable: Some(why), ..Body::of(Value::Null) }
            }
        }
    }

    fn events(&self, _req: &Request<'_>, body: Body) -> Vec<Body> {
        body.items()
    }

    fn default_key(&self, _req: &Request<'_>, _payload: &Value) -> Option<DefaultKey> {
        Some(DefaultKey::body(["OrganizationId", "Notification.Id"]))
    }

    fn event_type(&self, _req: &Request<'_>, payload: &Value) -> Option<String> {
        text(payload, "/Notification/sObject/type")
    }

    /// The record as it is by now.
    fn volatile(&self) -> Vec<FieldPath> {
        ["Notification.sObject", "EnterpriseUrl", "PartnerUrl"].map(path).into()
    }

    fn acknowledgement(&self, _req: &Request<'_>) -> Option<Answer> {
        Some(Answer {
            content_type: "text/xml; charset=utf-8",
            body: "<?xml version=\"1.0\" encoding=\"UTF-8\"?><soapenv:Envelope \
                xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\"><soapenv:Body><notificationsResponse \
                xmlns=\"http://soap.sforce.com/2005/09/outbound\"><Ack>true</Ack></notificationsResponse>\
                </soapenv:Body></soapenv:Envelope>"
                .to_owned(),
        })
    }

    fn redacted(&self, req: &Request<'_>) -> Option<Vec<u8>> {
        Some(self.body(req).payload.to_string().into_bytes())
    }

    /// Without reading it: nobody has proved who sent it.
    fn redacted_unread(&self, req: &Request<'_>) -> Option<Vec<u8>> {
        Some(without_session(req.body))
    }
}

fn notifications(envelope: &Element) -> Result<Vec<Value>, String> {
    let message = envelope.child("Body").and_then(|body| body.child("notifications"));
    let message = message.ok_or("there is no `notifications` in its `Body`")?;
    let notifications = || message.children.iter().filter(|child| child.name == "Notification");
    // Each takes along what stands before them: not of more than there may be, nor of what is no id and no address.
    match notifications().count() {
        0 => return Err("there is no `Notification` in it".to_owned()),
        1..=NOTIFICATIONS_MAX => {}
        many => return Err(format!("{many} notifications are more than a message may have")),
    }
    let short = |value: &Value| value.as_str().is_none_or(|text| text.len() <= HEAD_BYTES_MAX);
    let of = |name: &str| message.child(name).map(Element::value).filter(short);
    let about = json!({
        "OrganizationId": of("OrganizationId"),
        "ActionId": of("ActionId"),
        "EnterpriseUrl": of("EnterpriseUrl"),
        "PartnerUrl": of("PartnerUrl"),
    });
    let events = notifications().map(|notification| {
        let mut members = notification.members();
        // Of which type a record is stands in an attribute.
        if let Some(record) = notification.child("sObject")
            && let Some(Value::Object(fields)) = members.get_mut("sObject")
            && let Some(kind) = &record.kind
        {
            fields.insert("type".to_owned(), Value::String(kind.clone()));
        }
        let mut event = about.clone();
        event["Notification"] = Value::Object(members);
        event
    });
    Ok(events.collect())
}

/// The text of every `SessionId` left out.
fn without_session(body: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"SessionId";
    let find = |from: &[u8], what: &[u8]| from.windows(what.len()).position(|window| window == what);
    let (mut kept, mut rest) = (Vec::with_capacity(body.len()), body);
    while let Some(at) = find(rest, NAME) {
        let (before, after) = rest.split_at(at + NAME.len());
        kept.extend_from_slice(before);
        // From the end of its opening tag to the end of the element; a text that never ends is left out to its end.
        let closing = find(after, NAME);
        let opened =
            before.iter().rposition(|b| *b == b'<').is_some_and(|lt| before.get(lt + 1) != Some(&b'/'));
        let empty = find(after, b">").is_some_and(|gt| gt > 0 && after[gt - 1] == b'/');
        rest = match (opened && !empty, closing) {
            (true, Some(closing)) => {
                let start = after[..closing].iter().rposition(|b| *b == b'<').unwrap_or(closing);
                kept.push(b'>');
                &after[start..]
            }
            (true, None) => b"",
            (false, _) => after,
        };
    }
    kept.extend_from_slice(rest);
    kept
}

/// Ids have 15 characters, or 18, of which the last three only guard the letters' case.
fn same_organization(one: &str, other: &str) -> bool {
    let short = |id: &str| id.trim().get(..15).map(str::to_owned);
    short(one).is_some() && short(one) == short(other)
}

#[cfg(test)]
mod tests {
    use super::without_session;

    #[test]
    fn a_session_is_left_out_wherever_it_stands() {
        for (body, kept) in [
            ("<a><SessionId>s3cret</SessionId><b/></a>", "<a><SessionId></SessionId><b/></a>"),
            ("<x:SessionId a='1'><![CDATA[s3cret]]></x:SessionId>.", "<x:SessionId></x:SessionId>."),
            ("<SessionId xsi:nil=\"true\"/><b>1</b>", "<SessionId xsi:nil=\"true\"/><b>1</b>"),
            ("<SessionId>s3cret", "<SessionId"),
            ("<a>1</a>", "<a>1</a>"),
        ] {
            assert_eq!(String::from_utf8(without_session(body.as_bytes())).unwrap(), kept, "{body}");
        }
    }
}
