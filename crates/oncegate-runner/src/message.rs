//! Messages to chats: their bodies, and what their answers mean (apis/slack-and-teams-incoming-webhooks.md).

use std::time::Duration;

use oncegate_connect::{CallOutcome, Failure, OutgoingMail, OutgoingRequest, mailbox};
use serde_json::{Value, json};

use crate::flow::{Chat, EmailStep, MessageStep};
use crate::render::{self, RenderError};

/// Longest text, in characters: Slack cuts what is longer.
const SLACK_CHARS_MAX: usize = 40_000;
/// Longest text, in bytes: Teams takes 28 KB for the whole request.
const TEAMS_BYTES_MAX: usize = 20_000;
/// What a Teams connector wants before the next message; it does not say.
const CONNECTOR_PAUSE: Duration = Duration::from_secs(60);

pub(crate) fn message_request(
    message: &MessageStep,
    world: &Value,
    key: String,
) -> Result<OutgoingRequest, RenderError> {
    let url = render::url("url", &message.url, world)?;
    let escaped = |text: &str| escaped(text, message.chat);
    let text = render::text("text", &message.text, &told_plainly(world, &escaped))?;
    let too_long = |size: usize, max: usize, of: &str| {
        RenderError::of("text", format!("{size} {of} are more than a message may have ({max}); shorten it"))
    };
    let body = match message.chat {
        Chat::Slack => match text.chars().count() {
            size if size > SLACK_CHARS_MAX => return Err(too_long(size, SLACK_CHARS_MAX, "characters")),
            _ => json!({ "text": text }),
        },
        Chat::Teams => match text.len() {
            size if size > TEAMS_BYTES_MAX => return Err(too_long(size, TEAMS_BYTES_MAX, "bytes")),
            _ => card(&text),
        },
    };
    let mut request = OutgoingRequest::new(http::Method::POST, url, key);
    request.headers.push(("content-type".into(), "application/json".into()));
    request.body = Some(body.to_string().into_bytes());
    Ok(request)
}

/// An Adaptive Card, which workflows and connectors both take.
fn card(text: &str) -> Value {
    let lines = text.split('\n').map(|line| json!({ "type": "TextBlock", "text": line, "wrap": true }));
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": lines.collect::<Vec<_>>(),
            },
        }],
    })
}

/// What came from outside, with everything escaped that a chat would take for markup: a form's answer must not call
/// the whole channel. The template's own markup stays.
fn told_plainly(world: &Value, escaped: &dyn Fn(&str) -> String) -> Value {
    let mut told = world.clone();
    for member in ["payload", "steps", "idempotency_key"] {
        if let Some(value) = told.get_mut(member) {
            escape(value, escaped);
        }
    }
    told
}

fn escape(value: &mut Value, escaped: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = escaped(text),
        Value::Array(items) => items.iter_mut().for_each(|item| escape(item, escaped)),
        Value::Object(members) => members.values_mut().for_each(|member| escape(member, escaped)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn escaped(text: &str, chat: Chat) -> String {
    match chat {
        Chat::Slack => text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
        Chat::Teams => {
            let markup = |c: char| "\\[]()*_`#<>!|~".contains(c);
            text.chars().flat_map(|c| markup(c).then_some('\\').into_iter().chain([c])).collect()
        }
    }
}

pub(crate) fn mail(email: &EmailStep, world: &Value, key: String) -> Result<OutgoingMail, RenderError> {
    let address = |place: &str, template: &str| {
        let text = render::text(place, template, world)?;
        mailbox(&text).map_err(|why| RenderError::of(place, why))
    };
    // A line break would end the header that it stands in.
    let subject = render::text("subject", &email.subject, world)?;
    let subject = subject.split(char::is_control).collect::<Vec<_>>().join(" ").trim().to_owned();
    let html = |template: &String| render::text("html", template, &told_plainly(world, &in_html));
    Ok(OutgoingMail {
        from: address("from", &email.from)?,
        to: email.to.iter().map(|to| address("to", to)).collect::<Result<_, _>>()?,
        reply_to: email.reply_to.as_ref().map(|to| address("reply_to", to)).transpose()?,
        subject,
        text: render::text("text", &email.text, world)?,
        html: email.html.as_ref().map(html).transpose()?,
        idempotency_key: key,
    })
}

fn in_html(text: &str) -> String {
    let meant = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#39;")];
    meant.iter().fold(text.to_owned(), |text, (mark, meant)| text.replace(mark, meant))
}

/// A Teams connector that has had enough says so in an answer of 200.
pub(crate) fn judged(message: &MessageStep, url: &str, outcome: CallOutcome) -> CallOutcome {
    let CallOutcome::Succeeded { status, answer } = &outcome else { return outcome };
    let host =
        url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', ':']).next().unwrap_or_default();
    let connector = host.ends_with(".webhook.office.com") || host == "outlook.office.com";
    if message.chat != Chat::Teams || !connector || answer.body.trim_ascii() == b"1" {
        return outcome;
    }
    let said = String::from_utf8_lossy(&answer.body);
    let (status, answer) = (Some(*status), Some(answer.clone()));
    match said.contains("HTTP error 429") {
        true => CallOutcome::Failed {
            failure: Failure::Throttled { retry_after: CONNECTOR_PAUSE },
            status,
            answer,
            note: "the Teams connector took too many messages and did not post this one".to_owned(),
        },
        false => CallOutcome::Unknown {
            status,
            answer,
            note: "the Teams connector did not say that it posted the message; look into the channel"
                .to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncegate_connect::Answer;

    fn message(chat: Chat, text: &str) -> MessageStep {
        MessageStep { chat, url: "https://hooks.example.com/x".to_owned(), text: text.to_owned() }
    }

    fn body(chat: Chat, text: &str, payload: Value) -> Value {
        let world = json!({ "payload": payload, "oncegate": { "done_url": "https://g/x?a=<1>" } });
        let request = message_request(&message(chat, text), &world, "k".to_owned()).unwrap();
        serde_json::from_slice(&request.body.unwrap()).unwrap()
    }

    #[test]
    fn what_comes_from_outside_is_no_markup() {
        let payload =
            json!({ "name": "<!channel> & [x](https://evil.example) *b*", "list": [{ "a": "<b>" }] });
        let slack = body(Chat::Slack, "*New:* {{ payload.name }} {{ payload.list[0].a }}", payload.clone());
        let told = "*New:* &lt;!channel&gt; &amp; [x](https://evil.example) *b* &lt;b&gt;";
        assert_eq!(slack, json!({ "text": told }));
        let teams = body(Chat::Teams, "**New:** {{ payload.name }}\n{{ oncegate.done_url }}", payload);
        let lines = &teams["attachments"][0]["content"]["body"];
        assert_eq!(lines[0]["text"], r"**New:** \<\!channel\> & \[x\]\(https://evil.example\) \*b\*");
        assert_eq!(lines[1]["text"], "https://g/x?a=<1>", "ours is not");
    }

    #[test]
    fn a_message_that_is_too_long_goes_to_a_person() {
        for (chat, size, fits) in [
            (Chat::Slack, SLACK_CHARS_MAX, true),
            (Chat::Slack, SLACK_CHARS_MAX + 1, false),
            (Chat::Teams, TEAMS_BYTES_MAX, true),
            (Chat::Teams, TEAMS_BYTES_MAX + 1, false),
        ] {
            let world = json!({ "payload": { "text": "x".repeat(size) } });
            let got = message_request(&message(chat, "{{ payload.text }}"), &world, "k".to_owned());
            assert_eq!(got.is_ok(), fits, "{chat:?} {size}");
        }
    }

    #[test]
    fn a_connector_that_says_200_and_means_429_did_not_post() {
        let answered = |body: &str| CallOutcome::Succeeded {
            status: 200,
            answer: Answer { body: body.as_bytes().to_vec(), content_type: None, cut: false },
        };
        let judge = |chat, url: &str, body: &str| judged(&message(chat, "x"), url, answered(body));
        let connector = "https://acme.webhook.office.com/webhookb2/1@2/IncomingWebhook/3/4";
        let trap =
            "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429";
        assert!(matches!(
            judge(Chat::Teams, connector, trap),
            CallOutcome::Failed { failure: Failure::Throttled { .. }, .. }
        ));
        assert!(matches!(judge(Chat::Teams, connector, "what"), CallOutcome::Unknown { .. }));
        for (chat, url, body) in [
            (Chat::Teams, connector, "1"),
            (Chat::Teams, "https://prod-1.westeurope.logic.azure.com/workflows/1", ""),
            (Chat::Slack, "https://hooks.slack.com/services/T/B/x", "ok"),
        ] {
            assert!(matches!(judge(chat, url, body), CallOutcome::Succeeded { .. }), "{url}");
        }
    }
}
