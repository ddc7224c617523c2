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

    /// A list of notifications, each with what it needs to know of its message. Stored ones are such JSON already.
    fn body(&self, req: &Request<'_>) -> Body {
        if matches!(req.body.first(), Some(b'{' | b'[')) {
            return Body::json(req.body);
        }
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
}

fn notifications(envelope: &Element) -> Result<Vec<Value>, String> {
    let message = envelope.child("Body").and_then(|body| body.child("notifications"));
    let message = message.ok_or("there is no `notifications` in its `Body`")?;
    let of = |name: &str| message.child(name).map(Element::value);
    let about = json!({
        "OrganizationId": of("OrganizationId"),
        "ActionId": of("ActionId"),
        "EnterpriseUrl": of("EnterpriseUrl"),
        "PartnerUrl": of("PartnerUrl"),
    });
    let notifications = message.children.iter().filter(|child| child.name == "Notification");
    let events = notifications.map(|notification| {
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

/// Ids have 15 characters, or 18, of which the last three only guard the letters' case.
fn same_organization(one: &str, other: &str) -> bool {
    let short = |id: &str| id.trim().get(..15).map(str::to_owned);
    short(one).is_some() && short(one) == short(other)
}
