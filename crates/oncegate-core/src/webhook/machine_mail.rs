//! Mails that no person wrote: bounces, out-of-office notes, lists, our own. Whoever answers them is answered by the
//! next machine (C91).
//!
//! What a mail says of itself is read from its header fields, in whatever form a provider hands them on: as text, or
//! as JSON. Garbage says nothing, and is no reason to set a mail aside.

use serde_json::Value;

use super::Provider;
use super::field::{FieldPath, is_header_name};
use super::request::Headers;
use crate::identity::EmailFolding;
use crate::json::told;
use crate::limits;

/// Where a source's mails say what is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailPlaces {
    /// The header fields: text as in the mail, a JSON list of pairs, of objects with `name` and `value`, or an
    /// object.
    pub headers: Option<FieldPath>,
    /// Who wrote it; the header field `From` where this is not known.
    pub from: Option<FieldPath>,
    /// Where its bounces go (SMTP's `MAIL FROM`): an address, or JSON with one as `from`.
    pub envelope_from: Option<FieldPath>,
}

/// Sets aside what no person wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineMail {
    /// Where it is looked for.
    pub places: MailPlaces,
    /// Addresses that the operator's own systems write from.
    pub own: Vec<String>,
}

impl Provider {
    /// Where its events say what mail they are, of a provider of mails that came in.
    pub fn mail(&self) -> Option<MailPlaces> {
        self.rules().mail()
    }

    /// Whether an event of such a provider is a mail that came in.
    pub fn is_mail(&self, payload: &Value) -> bool {
        self.rules().is_mail(payload)
    }
}

/// What a header field says when a machine wrote the mail.
enum Says {
    /// Anything.
    Anything,
    /// Anything but one of these words.
    Not(&'static [&'static str]),
    /// One of these words.
    Is(&'static [&'static str]),
}

/// By which header fields a mail says that a machine wrote it. The value is compared without its comments, and up to
/// the first `;`.
const FIELDS: [(&str, Says); 7] = [
    // RFC 3834 §5: whatever is not `no`.
    ("auto-submitted", Says::Not(&["no"])),
    // RFC 3464 (delivery status), RFC 8098 (disposition), RFC 5965 (complaints): all of them reports (RFC 6522).
    ("content-type", Says::Is(&["multipart/report"])),
    // Never standardised; RFC 3834 §2 names these words, `auto_reply` is what help desks write.
    ("precedence", Says::Is(&["bulk", "junk", "list", "auto_reply"])),
    // RFC 2919 §3.
    ("list-id", Says::Anything),
    // [MS-OXCMAIL] §2.1.3.2.20: which answers it does not want, so no person waits for them.
    ("x-auto-response-suppress", Says::Not(&["none"])),
    ("x-autoreply", Says::Not(&["no", "false", "0"])),
    ("x-autorespond", Says::Not(&["no", "false", "0"])),
];

/// Mailboxes that only machines write from (RFC 5321 §4.5.1; what senders of bounces call themselves).
const MACHINES: [&str; 2] = ["mailer-daemon", "postmaster"];

impl MachineMail {
    /// Why no person wrote a mail, for a person to read; `None` if one may have.
    pub fn why(&self, headers: &Headers, payload: &Value) -> Option<String> {
        let found = |path: &Option<FieldPath>| path.as_ref()?.value(headers, payload);
        let fields = found(&self.places.headers).map(|value| all(&value)).unwrap_or_default();
        let of = |name: &str| -> Vec<&str> {
            let all = fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            all.map(|(_, value)| value.as_str()).collect()
        };
        let said = FIELDS.iter().find_map(|(name, says)| {
            let value = of(name).into_iter().find(|value| says.fits(value))?;
            Some(format!("its header says `{name}: {}`", told(value)))
        });
        let envelope = found(&self.places.envelope_from).and_then(|value| sender_of(&value));
        let null = |text: &str| matches!(text.trim(), "" | "<>");
        let bounce = || {
            let returns =
                envelope.as_deref().is_some_and(null) || of("return-path").iter().any(|v| v.trim() == "<>");
            returns.then(|| "it has no return path, as bounces have (RFC 5321 §4.5.5)".to_owned())
        };
        let from = || {
            let declared = found(&self.places.from).and_then(|value| Some(value.as_str()?.to_owned()));
            let written = declared.unwrap_or_else(|| of("from").join(","));
            let written: Vec<String> = addresses(&written).into_iter().filter_map(folded).collect();
            if let Some(ours) =
                self.own.iter().filter_map(|own| folded(address(own))).find(|own| written.contains(own))
            {
                return Some(format!("it is from {}, which is an address of our own", told(&ours)));
            }
            let envelope = envelope.as_deref().map(address).and_then(folded);
            let machine = written
                .into_iter()
                .chain(envelope)
                .find(|from| from.split_once('@').is_some_and(|(mailbox, _)| MACHINES.contains(&mailbox)))?;
            Some(format!("it is from {}, which is no person", told(&machine)))
        };
        said.or_else(bounce).or_else(from).map(|why| format!("machine mail: {why}"))
    }
}

impl Says {
    fn fits(&self, value: &str) -> bool {
        let word = without_comments(value);
        let word = word.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match self {
            _ if word.is_empty() => false,
            Self::Anything => true,
            Self::Not(words) => !words.contains(&word.as_str()),
            Self::Is(words) => words.contains(&word.as_str()),
        }
    }
}

/// A value without what stands in parentheses (RFC 5322 §3.2.2).
fn without_comments(value: &str) -> String {
    let mut depth = 0_usize;
    let outside = |c: &char| {
        match c {
            '(' => depth += 1,
            ')' if depth > 0 => {
                depth -= 1;
                return false;
            }
            _ => {}
        }
        depth == 0
    };
    value.chars().filter(outside).collect()
}

/// The header fields of a mail, in their order; of very many the first.
fn all(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::String(raw) => {
            let raw = head(raw);
            // JSON within a form; serde_json stops where lists lie too deep in one another.
            if raw.trim_start().starts_with(['[', '{']) {
                return serde_json::from_str::<Value>(raw)
                    .ok()
                    .filter(|inner| !inner.is_string())
                    .map(|inner| all(&inner))
                    .unwrap_or_default();
            }
            // Behind an empty line stands the mail's text, where all of it is handed on.
            let raw = raw.trim_start_matches(['\r', '\n']);
            let ends = [raw.find("\n\n"), raw.find("\n\r\n")].into_iter().flatten().min();
            let fields =
                fields(&raw[..ends.unwrap_or(raw.len())]).map(|(name, value)| (name.to_owned(), value));
            fields.take(limits::MAIL_FIELDS_MAX).collect()
        }
        Value::Array(items) => {
            let pair = |item: &Value| match item {
                Value::Array(pair) => Some((text(pair.first()?)?, text(pair.get(1)?)?)),
                Value::Object(members) => {
                    let member = |wanted: &str| {
                        let named = members.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
                        named.and_then(|(_, value)| text(value))
                    };
                    Some((member("name")?, member("value")?))
                }
                _ => None,
            };
            items.iter().take(limits::MAIL_FIELDS_MAX).filter_map(pair).collect()
        }
        Value::Object(members) => {
            let each = members.iter().take(limits::MAIL_FIELDS_MAX).flat_map(|(name, value)| {
                let values: Vec<String> = match value {
                    Value::Array(values) => values.iter().filter_map(text).collect(),
                    one => text(one).into_iter().collect(),
                };
                values.into_iter().map(move |value| (name.clone(), value))
            });
            each.take(limits::MAIL_FIELDS_MAX).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => vec![],
    }
}

/// The beginning of a text.
fn head(text: &str) -> &str {
    let mut end = text.len().min(limits::MAIL_HEADER_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The fields of a mail's header. A value may go on in lines that begin with a blank (RFC 5322 §2.2.3); what is no
/// field is passed over.
pub(super) fn fields(text: &str) -> impl Iterator<Item = (&str, String)> {
    let mut lines = text.lines().peekable();
    let is_folded = |line: &&str| line.starts_with([' ', '\t']);
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let field = line.split_once(':').filter(|(name, _)| is_header_name(name.trim_end()));
            let mut value = field.map_or("", |(_, value)| value).to_owned();
            while let Some(more) = lines.next_if(is_folded) {
                value.push_str(more);
            }
            if let Some((name, _)) = field {
                return Some((name.trim_end(), value.trim().to_owned()));
            }
        }
    })
}

/// The envelope's sender: as it is, or in JSON beside the recipients (SendGrid's `envelope`).
fn sender_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.trim_start().starts_with('{') => {
            let envelope: Value = serde_json::from_str(head(text)).ok()?;
            Some(envelope.get("from")?.as_str()?.to_owned())
        }
        Value::String(text) => Some(text.clone()),
        Value::Object(members) => Some(members.get("from")?.as_str()?.to_owned()),
        _ => None,
    }
}

/// The address in a mailbox: `Ann <ann@example.org>` → `ann@example.org`. What is no mailbox stays.
pub(super) fn address(mailbox: &str) -> &str {
    let inside = mailbox.rsplit_once('<').and_then(|(_, behind)| behind.split_once('>'));
    inside.map_or(mailbox, |(address, _)| address).trim()
}

/// Every address of a list of mailboxes. A comma in a name makes pieces that are none.
fn addresses(list: &str) -> Vec<&str> {
    head(list).split(',').map(address).filter(|piece| piece.contains('@')).collect()
}

/// As all spellings of it are compared.
fn folded(address: &str) -> Option<String> {
    EmailFolding::default().fold(address.trim()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guard() -> MachineMail {
        let at = |path: &str| Some(path.parse().unwrap());
        MachineMail {
            places: MailPlaces { headers: at("headers"), from: at("from"), envelope_from: at("envelope") },
            own: vec!["Acme <Support@acme.EXAMPLE>".to_owned()],
        }
    }

    /// What is said of a mail with these header fields, and nothing else that tells.
    fn said(headers: Value) -> Option<String> {
        let mail =
            json!({ "headers": headers, "from": "Ann <ann@example.org>", "envelope": "ann@example.org" });
        guard().why(&Headers::default(), &mail)
    }

    #[test]
    fn a_mail_says_by_its_header_that_no_person_wrote_it() {
        for (field, machine) in [
            ("Auto-Submitted: auto-replied", true),
            ("auto-submitted:AUTO-GENERATED; owner-email=\"a@b\"", true),
            ("Auto-Submitted: no", false),
            ("Auto-Submitted: No (a person) ; x=1", false),
            ("Auto-Submitted: (nothing)", false),
            ("Auto-Submitted:", false),
            ("Content-Type: multipart/report; report-type=delivery-status; boundary=x", true),
            ("Content-Type:\r\n\tMultipart/Report;\r\n report-type=disposition-notification", true),
            ("Content-Type: multipart/mixed; boundary=multipart/report", false),
            ("Precedence: bulk", true),
            ("Precedence: Junk", true),
            ("Precedence: list", true),
            ("Precedence: auto_reply", true),
            ("Precedence: first-class", false),
            ("List-Id: News <news.example.org>", true),
            ("X-Auto-Response-Suppress: DR, OOF, AutoReply", true),
            ("X-Auto-Response-Suppress: None", false),
            ("X-Autoreply: yes", true),
            ("X-Autoreply: no", false),
            ("X-Autorespond: out of office", true),
            ("Return-Path: <>", true),
            ("Return-Path: <ann@example.org>", false),
            ("Subject: Auto-Submitted: auto-replied", false),
            ("X-Note: Auto-Submitted\r\n : auto-replied", false),
        ] {
            let text = format!("Received: from a\r\n\tby b\r\n{field}\r\nSubject: x");
            assert_eq!(said(json!(text)).is_some(), machine, "{field:?}");
            // The same in each form in which providers hand it on.
            let pairs: Vec<Value> = fields(&text).map(|(name, value)| json!([name, value])).collect();
            let objects: Vec<Value> =
                fields(&text).map(|(name, value)| json!({ "Name": name, "Value": value })).collect();
            let members: Value =
                fields(&text).map(|(name, value)| (name.to_lowercase(), json!([value]))).collect();
            for form in [json!(pairs), json!(json!(pairs).to_string()), json!(objects), members] {
                assert_eq!(said(form.clone()).is_some(), machine, "{form}");
            }
        }
        let twice = "Auto-Submitted: no\nauto-submitted: auto-replied";
        assert_eq!(
            said(json!(twice)).as_deref(),
            Some("machine mail: its header says `auto-submitted: auto-replied`")
        );
        assert_eq!(said(json!("Subject: x\n\nAuto-Submitted: auto-replied")), None, "that is its text");
    }

    #[test]
    fn a_mail_is_known_by_who_sent_it() {
        let nobody = Value::Null;
        for (from, envelope, why) in [
            (json!("Ann <ann@example.org>"), json!("ann@example.org"), None),
            (json!("support@ACME.example"), json!("x@acme.example"), Some("an address of our own")),
            (json!("\"Acme, Support\" <support@acme.example>"), nobody.clone(), Some("of our own")),
            (json!("ann@example.org, support@acme.example"), nobody.clone(), Some("of our own")),
            (json!("notsupport@acme.example"), nobody.clone(), None),
            (json!("MAILER-DAEMON@mx.example"), nobody.clone(), Some("no person")),
            (json!("Post Master <Postmaster@mx.example>"), nobody.clone(), Some("no person")),
            (json!("Ann <ann@example.org>"), json!("mailer-daemon@mx.example"), Some("no person")),
            (json!("ann@example.org"), json!("<>"), Some("no return path")),
            (json!("ann@example.org"), json!(""), Some("no return path")),
            (
                json!("ann@example.org"),
                json!("{\"to\":[\"a@b.example\"],\"from\":\"\"}"),
                Some("no return path"),
            ),
            (json!("ann@example.org"), json!({ "from": "" }), Some("no return path")),
            (json!("ann@example.org"), json!("{\"to\":[]}"), None),
            (json!("ann@example.org"), json!("{not JSON"), None),
            (json!("ann@example.org"), json!(7), None),
            (json!(["support@acme.example"]), nobody.clone(), None),
            (nobody.clone(), nobody, None),
        ] {
            let found = guard().why(&Headers::default(), &json!({ "from": from, "envelope": envelope }));
            assert_eq!(found.is_some(), why.is_some(), "{from} {envelope}: {found:?}");
            assert!(found.unwrap_or_default().contains(why.unwrap_or_default()), "{from} {envelope}");
        }
        // Where `from` is not handed on, the header field counts.
        let found = guard().why(&Headers::default(), &json!({ "headers": "From: support@acme.example" }));
        assert!(found.is_some());
    }

    #[test]
    fn what_tells_of_a_mail_that_was_sent_is_no_mail_that_came_in() {
        for (provider, payload, mail) in [
            (Provider::Mailgun, json!({ "from": "ann@example.org", "message-headers": "[]" }), true),
            (Provider::Mailgun, json!({ "event-data": { "event": "delivered" } }), false),
            (Provider::Mailgun, json!({ "event": "delivered", "message-headers": "[]" }), false),
            (Provider::SendgridInbound, json!({ "headers": "" }), true),
        ] {
            assert!(provider.mail().is_some());
            assert_eq!(provider.is_mail(&payload), mail, "{provider} {payload}");
        }
        assert_eq!(Provider::Sendgrid.mail(), None);
    }

    #[test]
    fn garbage_is_no_reason() {
        let deep = "[".repeat(100_000);
        let last = "Auto-Submitted: auto-replied";
        let long = format!("X: {}\n{last}", "x".repeat(limits::MAIL_HEADER_BYTES_MAX));
        let many = format!("{}{last}", "X: x\n".repeat(limits::MAIL_FIELDS_MAX));
        for headers in [
            json!(""),
            json!(null),
            json!(7),
            json!(deep),
            json!("[[\"Auto-Submitted\"]]"),
            json!("[[\"Auto-Submitted\", 1]]"),
            json!("{\"a\":"),
            json!("\"Auto-Submitted: auto-replied\""),
            json!(":::\n :\n\t\n\u{0}: x\nno colon\n auto-submitted: yes"),
            json!([[], {}, "x", 1, null, ["a"], { "name": 1 }]),
            json!(long),
            json!(many),
        ] {
            assert_eq!(said(headers.clone()), None, "{:.80}", headers.to_string());
        }
    }

    #[test]
    fn the_address_is_what_stands_in_a_mailbox() {
        for (mailbox, inside) in [
            ("Ann <ann@example.org>", "ann@example.org"),
            ("\"a <b>\" <ann@example.org>", "ann@example.org"),
            (" ann@example.org ", "ann@example.org"),
            ("<ann@example.org", "<ann@example.org"),
            ("", ""),
        ] {
            assert_eq!(address(mailbox), inside, "{mailbox}");
        }
    }
}
