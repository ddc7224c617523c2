//! Sends one mail by SMTP (RFC 5321) and says what came of it.
//!
//! Until the server was handed the whole text, it surely sent nothing; from then on only its answer tells. Nothing is
//! sent twice underneath: one call is one connection and at most one message.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use lettre::address::Address;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use lettre::transport::smtp::response::Response;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;

use crate::outcome::{Answer, CallOutcome, Failure};

/// How the connection is kept from being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte (port 465).
    Tls,
    /// TLS after a word in the clear (port 587); without it nothing is sent.
    Starttls,
    /// None: for a server on this machine.
    None,
}

/// The server that takes our mails.
#[derive(Clone, Debug)]
pub struct Smtp {
    /// Its name, which its certificate must bear.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How it is reached.
    pub security: Security,
    /// Name and password, if it asks for them.
    pub credentials: Option<(String, Secret)>,
    /// Certificates (DER) trusted besides the system's.
    pub extra_roots: Vec<Vec<u8>>,
}

/// One mail.
#[derive(Clone)]
pub struct OutgoingMail {
    /// Who sends it.
    pub from: Mailbox,
    /// Who gets it; at least one.
    pub to: Vec<Mailbox>,
    /// Where answers go.
    pub reply_to: Option<Mailbox>,
    /// One line.
    pub subject: String,
    /// For everybody.
    pub text: String,
    /// For those who can show it.
    pub html: Option<String>,
    /// Names the effect: it is part of the message's id, and stands in a header.
    pub idempotency_key: String,
}

impl fmt::Debug for OutgoingMail {
    /// Mails are nobody's business in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingMail").field("to", &self.to.len()).finish_non_exhaustive()
    }
}

/// Reads one address, with a name before it or without: `Ann <ann@example.com>`.
///
/// # Errors
/// It is none, or more than one.
pub fn mailbox(text: &str) -> Result<Mailbox, String> {
    let shown = || text.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
    let wrong = || format!("`{}` is not one e-mail address; write e.g. ann@example.com", shown());
    let whole = text.trim();
    // A name may be anything that a person typed into a form (`Doe, Ann`), but no second address and no second line.
    let (name, address) = match whole.strip_suffix('>').and_then(|whole| whole.rsplit_once('<')) {
        None => (None, whole),
        Some((name, address)) => (Some(name.trim().trim_matches('"').trim()), address.trim()),
    };
    let odd = |name: &str| name.contains('@') || name.contains(char::is_control);
    if name.is_some_and(odd) || address.contains(char::is_control) {
        return Err(wrong());
    }
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    address.parse::<Address>().map(|address| Mailbox::new(name, address)).map_err(|_| wrong())
}

/// Sends mails; cheap to clone.
#[derive(Clone)]
pub struct Mailer {
    smtp: Smtp,
    tls: Option<TlsParameters>,
}

impl fmt::Debug for Mailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailer").field("smtp", &self.smtp).finish_non_exhaustive()
    }
}

/// What went wrong before the text was handed over.
struct Broken {
    /// What was being done.
    stage: &'static str,
    error: lettre::transport::smtp::Error,
}

impl Mailer {
    /// Sets up how the server is reached.
    ///
    /// # Errors
    /// A certificate cannot be read, or none can be checked.
    pub fn new(smtp: Smtp) -> Result<Self, String> {
        let tls = match smtp.security {
            Security::None => None,
            Security::Tls | Security::Starttls => {
                let mut builder = TlsParameters::builder(smtp.host.clone());
                for der in &smtp.extra_roots {
                    let root = Certificate::from_der(der.clone());
                    builder = builder.add_root_certificate(root.map_err(|e| e.to_string())?);
                }
                Some(builder.build_rustls().map_err(|e| e.to_string())?)
            }
        };
        Ok(Self { smtp, tls })
    }

    /// Where mails go, for people.
    pub fn target(&self) -> String {
        format!("SMTP {}:{}", self.smtp.host, self.smtp.port)
    }

    /// Hands one mail to the server, once. `wall_now` becomes its date.
    ///
    /// If the returned future is dropped before it is ready, the outcome is unknown.
    pub async fn send(&self, mail: &OutgoingMail, wall_now: Timestamp, timeout: Duration) -> CallOutcome {
        let message = match message(mail, wall_now) {
            Ok(message) => message,
            Err(why) => {
                return failed(Failure::Permanent, None, None, format!("the mail cannot be made: {why}"));
            }
        };
        let handed = AtomicBool::new(false);
        let server = self.target();
        match tokio::time::timeout(timeout, self.talk(mail, &message, timeout, &handed)).await {
            Ok(Ok(response)) => accepted(&response),
            Ok(Err(broken)) => self.told(&broken, handed.load(Ordering::Relaxed)),
            Err(_) if handed.load(Ordering::Relaxed) => CallOutcome::Unknown {
                status: None,
                answer: None,
                note: format!(
                    "{server} got the mail and did not say within {} s that it took it; look into its log",
                    timeout.as_secs()
                ),
            },
            Err(_) => {
                let note = format!("{server} did not take the mail within {} s", timeout.as_secs());
                failed(Failure::Transient, None, None, note)
            }
        }
    }

    async fn talk(
        &self,
        mail: &OutgoingMail,
        message: &[u8],
        timeout: Duration,
        handed: &AtomicBool,
    ) -> Result<Response, Broken> {
        let at = |stage: &'static str| move |error| Broken { stage, error };
        let Smtp { host, port, security, credentials, .. } = &self.smtp;
        // The name that we give ourselves is that of our address: a server may look it up.
        let hello = ClientId::Domain(mail.from.email.domain().to_owned());
        let first = self.tls.clone().filter(|_| *security == Security::Tls);
        let server = (host.as_str(), *port);
        let connected = AsyncSmtpConnection::connect_tokio1(server, Some(timeout), &hello, first, None);
        let mut connection = connected.await.map_err(at("the connection"))?;
        if let (Security::Starttls, Some(tls)) = (security, &self.tls) {
            connection.starttls(tls.clone(), &hello).await.map_err(at("STARTTLS"))?;
        }
        if let Some((name, password)) = credentials {
            let password = String::from_utf8_lossy(password.expose()).into_owned();
            let credentials = Credentials::new(name.clone(), password);
            connection.auth(DEFAULT_MECHANISMS, &credentials).await.map_err(at("the login"))?;
        }
        let sender: Address = mail.from.email.clone();
        let beyond_ascii = |address: &Address| !AsRef::<str>::as_ref(address).is_ascii();
        let odd = beyond_ascii(&sender) || mail.to.iter().any(|to| beyond_ascii(&to.email));
        let options = match odd && connection.server_info().supports_feature(Extension::SmtpUtfEight) {
            true => vec![MailParameter::SmtpUtfEight],
            false => vec![],
        };
        connection.command(Mail::new(Some(sender), options)).await.map_err(at("the sender"))?;
        for to in &mail.to {
            let recipient = Rcpt::new(to.email.clone(), vec![]);
            connection.command(recipient).await.map_err(at("a recipient"))?;
        }
        connection.command(Data).await.map_err(at("DATA"))?;
        handed.store(true, Ordering::Relaxed);
        let response = connection.message(message).await.map_err(at("the mail"))?;
        // What it says to a farewell changes nothing any more.
        let _ = tokio::time::timeout(Duration::from_secs(1), connection.quit()).await;
        Ok(response)
    }

    fn told(&self, broken: &Broken, handed: bool) -> CallOutcome {
        let Broken { stage, error } = broken;
        let server = self.target();
        let status = error.status().map(|code| number(&code.to_string()));
        let answer = std::error::Error::source(error).map(|said| Answer {
            body: said.to_string().into_bytes(),
            content_type: None,
            cut: false,
        });
        match status {
            // RFC 5321 §4.2.1: 4xx may go later as it is, 5xx not before somebody changed something.
            Some(code) if error.is_transient() => {
                failed(Failure::Transient, Some(code), answer, format!("{server} answered {code} to {stage}"))
            }
            Some(code) => {
                let mend = match *stage {
                    "the login" => "; check `smtp.username` and `smtp.password`",
                    "a recipient" => "; check the address",
                    "the sender" => "; check `from`",
                    _ => "",
                };
                failed(
                    Failure::Permanent,
                    Some(code),
                    answer,
                    format!("{server} answered {code} to {stage}{mend}"),
                )
            }
            None if handed => CallOutcome::Unknown {
                status: None,
                answer: None,
                note: format!(
                    "{server} got the mail, and the connection ended before it said that it took it"
                ),
            },
            None if error.is_client() => {
                let mend = "; check `smtp.security` and `smtp.username`";
                failed(Failure::Permanent, None, None, format!("{server} cannot do {stage}: {error}{mend}"))
            }
            None => failed(Failure::Transient, None, None, format!("{stage} with {server} failed: {error}")),
        }
    }
}

fn message(mail: &OutgoingMail, wall_now: Timestamp) -> Result<Vec<u8>, String> {
    let domain = mail.from.email.domain();
    let ms = u64::try_from(wall_now.as_millis()).unwrap_or_default();
    let mut builder = lettre::Message::builder()
        .from(mail.from.clone())
        .subject(mail.subject.clone())
        .date(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
        // The same on every attempt: whoever gets it twice can tell.
        .message_id(Some(format!("<{}@{domain}>", mail.idempotency_key)));
    for to in &mail.to {
        builder = builder.to(to.clone());
    }
    if let Some(reply_to) = &mail.reply_to {
        builder = builder.reply_to(reply_to.clone());
    }
    // RFC 3834 §5: nobody's out-of-office notice shall answer it, and start something here.
    for (name, value) in [("Auto-Submitted", "auto-generated"), ("Idempotency-Key", &mail.idempotency_key)] {
        let name = HeaderName::new_from_ascii(name.to_owned()).map_err(|e| e.to_string())?;
        builder = builder.raw_header(HeaderValue::new(name, value.to_owned()));
    }
    let text = SinglePart::builder().header(ContentType::TEXT_PLAIN).body(mail.text.clone());
    let message = match &mail.html {
        None => builder.singlepart(text),
        Some(html) => {
            let html = SinglePart::builder().header(ContentType::TEXT_HTML).body(html.clone());
            builder.multipart(MultiPart::alternative().singlepart(text).singlepart(html))
        }
    };
    message.map(|message| message.formatted()).map_err(|e| e.to_string())
}

fn accepted(response: &Response) -> CallOutcome {
    let body = response.message().collect::<Vec<_>>().join("\n").into_bytes();
    let answer = Answer { body, content_type: None, cut: false };
    CallOutcome::Succeeded { status: number(&response.code().to_string()), answer }
}

fn number(code: &str) -> u16 {
    code.parse().unwrap_or(250)
}

fn failed(failure: Failure, status: Option<u16>, answer: Option<Answer>, note: String) -> CallOutcome {
    CallOutcome::Failed { failure, status, answer, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail() -> OutgoingMail {
        OutgoingMail {
            from: mailbox("The gate <gate@example.com>").unwrap(),
            to: vec![mailbox("Ann Ö <ann@example.org>").unwrap()],
            reply_to: Some(mailbox("ops@example.com").unwrap()),
            subject: "Grüße".to_owned(),
            text: "Hello Ö\n.\nbye".to_owned(),
            html: Some("<p>Hello</p>".to_owned()),
            idempotency_key: "og-12".to_owned(),
        }
    }

    #[test]
    fn a_mail_says_that_a_machine_sent_it_and_which_effect_it_is() {
        let text = String::from_utf8(message(&mail(), Timestamp::from_secs(1_767_607_200)).unwrap()).unwrap();
        for line in [
            "Auto-Submitted: auto-generated\r\n",
            "Idempotency-Key: og-12\r\n",
            "Message-ID: <og-12@example.com>\r\n",
            "Date: Mon, 05 Jan 2026 10:00:00 +0000\r\n",
            "Reply-To: ops@example.com\r\n",
            "multipart/alternative",
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
        assert!(text.is_ascii(), "every server takes it: {text}");
    }

    #[test]
    fn an_address_is_one_address() {
        for text in [
            "ann@example.com",
            "Ann <ann@example.com>",
            "  ann@example.com ",
            "\"Doe, Ann\" <ann@example.com>",
            "Doe, Ann <ann@example.com>",
            "Ann <b>Ö</b> <ann@example.com>",
            "<ann@example.com>",
        ] {
            mailbox(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
        for text in [
            "",
            "ann",
            "ann@example.com, bob@example.com",
            "ann@example.com bob@example.com",
            "ann@example.com\r\nBcc: bob@example.com",
            "<ann@example.com>, <bob@example.com>",
            "ann@example.com <bob@example.com>",
            "Ann <ann@example.com, bob@example.com>",
            "Ann\r\nBcc: x <bob@example.com>",
            "a@b@c",
        ] {
            assert!(mailbox(text).is_err(), "{text}");
        }
    }
}
