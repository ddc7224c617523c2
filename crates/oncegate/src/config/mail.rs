//! What stands in the file about mails: the server that takes them, and the step `email`.

use oncegate_connect::{Security, Smtp, mailbox};
use oncegate_runner::flow::EmailStep;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::secrets::Secrets;
use super::template::Sees;
use super::{At, ConfigError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SmtpFile {
    host: Spanned<String>,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    security: SecurityWord,
    #[serde(default)]
    username: Option<Spanned<String>>,
    #[serde(default)]
    password: Option<Spanned<String>>,
    from: Spanned<String>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum SecurityWord {
    #[default]
    Starttls,
    Tls,
    None,
}

/// The server, and who sends unless a step says.
#[derive(Clone, Debug)]
pub struct MailServer {
    /// How it is reached.
    pub smtp: Smtp,
    /// Who sends.
    pub from: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmailFile {
    to: Spanned<Recipients>,
    subject: Spanned<String>,
    text: Spanned<String>,
    #[serde(default)]
    html: Option<Spanned<String>>,
    #[serde(default)]
    from: Option<Spanned<String>>,
    #[serde(default)]
    reply_to: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an address, or a list of them")]
enum Recipients {
    One(String),
    Many(Vec<String>),
}

/// Recipients of one mail; a list of people is sent by what is made for it.
const RECIPIENTS_MAX: usize = 50;

/// The declared server.
pub(super) fn server(
    declared: &SmtpFile,
    secrets: &Secrets<'_>,
    at: At<'_>,
) -> Result<MailServer, ConfigError> {
    let host = declared.host.value.trim();
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/:@".contains(c)) {
        let message =
            format!("`{host}` is no name of a server; write e.g. smtp.example.com, and the port as `port`");
        return Err(at(declared.host.referenced, message));
    }
    mailbox(&declared.from.value).map_err(|e| at(declared.from.referenced, e))?;
    let here = matches!(host, "localhost" | "127.0.0.1");
    let credentials = match (&declared.username, &declared.password) {
        (None, None) => None,
        (Some(name), Some(password)) => {
            if declared.security == SecurityWord::None && !here {
                let message =
                    "the password would go over the network in the clear; set `security` to starttls or tls";
                return Err(at(password.referenced, message.to_owned()));
            }
            let name = match Secrets::is_reference(&name.value) {
                true => {
                    let read = secrets.resolve(&name.value).map_err(|e| at(name.referenced, e))?;
                    String::from_utf8_lossy(read.expose()).trim().to_owned()
                }
                false => name.value.clone(),
            };
            let password = secrets.resolve(&password.value).map_err(|e| at(password.referenced, e))?;
            Some((name, password))
        }
        (Some(alone), None) | (None, Some(alone)) => {
            let message = "`username` and `password` belong together; add the other one";
            return Err(at(alone.referenced, message.to_owned()));
        }
    };
    let (security, port) = match declared.security {
        SecurityWord::Starttls => (Security::Starttls, 587),
        SecurityWord::Tls => (Security::Tls, 465),
        SecurityWord::None => (Security::None, 25),
    };
    let port = declared.port.unwrap_or(port);
    let smtp = Smtp { host: host.to_owned(), port, security, credentials, extra_roots: vec![] };
    Ok(MailServer { smtp, from: declared.from.value.clone() })
}

/// The step.
pub(super) fn email(
    declared: &EmailFile,
    from: Option<&str>,
    sees: Sees<'_>,
    at: At<'_>,
) -> Result<EmailStep, ConfigError> {
    let template = |place: &str, text: &Spanned<String>| {
        sees.check(place, &text.value).map_err(|e| at(text.referenced, e))?;
        match text.value.trim().is_empty() {
            true => Err(at(text.referenced, format!("`{place}` is blank"))),
            false => Ok(text.value.clone()),
        }
    };
    let address = |place: &str, text: &Spanned<String>| {
        let text_of = template(place, text)?;
        // What a template becomes is known only when it runs.
        if !text_of.contains("{{") && !text_of.contains("{%") {
            mailbox(&text_of).map_err(|e| at(text.referenced, format!("{place}: {e}")))?;
        }
        Ok(text_of)
    };
    let place = declared.to.referenced;
    let to = match &declared.to.value {
        Recipients::One(one) => vec![one.clone()],
        Recipients::Many(many) => many.clone(),
    };
    if to.is_empty() || to.len() > RECIPIENTS_MAX {
        return Err(at(place, format!("`to` must name 1 to {RECIPIENTS_MAX} addresses")));
    }
    for one in &to {
        sees.check("to", one).map_err(|e| at(place, e))?;
        if !one.contains("{{") && !one.contains("{%") {
            mailbox(one).map_err(|e| at(place, format!("to: {e}")))?;
        }
    }
    let Some(server_from) = from else {
        let message = "mails need a server: add `smtp: { host: …, from: … }` at the top of the file";
        return Err(at(place, message.to_owned()));
    };
    let from = declared.from.as_ref().map(|from| address("from", from)).transpose()?;
    Ok(EmailStep {
        from: from.unwrap_or_else(|| server_from.to_owned()),
        to,
        reply_to: declared.reply_to.as_ref().map(|to| address("reply_to", to)).transpose()?,
        subject: template("subject", &declared.subject)?,
        text: template("text", &declared.text)?,
        html: declared.html.as_ref().map(|html| template("html", html)).transpose()?,
    })
}
