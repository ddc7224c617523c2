//! What an automation does when oncegate runs it: its steps, and what a repeat of each would do.

use std::time::Duration;

use oncegate_connect::TargetName;
use oncegate_core::key::RecordName;
use oncegate_core::secret::Secret;
use serde_json::Value;

pub use crate::render::names::Names;

/// The steps of one automation, in order.
#[derive(Clone, Debug)]
pub struct Flow {
    /// At least one.
    pub steps: Vec<Step>,
}

impl Flow {
    /// Whom its first call is for, if every event makes that call and no template says where to.
    pub(crate) fn first_target(&self) -> Option<TargetName> {
        let step = self.steps.first().filter(|step| step.when.is_none() && step.for_each.is_none())?;
        let url = match &step.action {
            Action::Http(step) => &step.url,
            Action::Forward(step) => &step.url,
            Action::Message(step) => &step.url,
            Action::Email(_) => return Some(TargetName::smtp()),
            Action::Wait(_) | Action::Review(_) => return None,
        };
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#', '\\']).next()?;
        if scheme.contains('{') || authority.contains('{') {
            return None;
        }
        TargetName::of_url(&format!("{scheme}://{authority}/"))
    }
}

/// One action.
#[derive(Clone, Debug)]
pub struct Step {
    /// Unique within its flow; part of the key it sends, so renaming it makes it a new step.
    pub name: String,
    /// What it does.
    pub action: Action,
    /// An expression; where it is false, the step is left out.
    pub when: Option<String>,
    /// An expression that gives a list: the step is done once for each of its items.
    pub for_each: Option<String>,
    /// Of one item of a list: what it is, as part of the key that is sent for it. Set while a list is worked on.
    pub item: Option<String>,
    /// How to find out whether an effect of which nobody knows has happened.
    pub lookup: Option<Lookup>,
    /// What a repeat would do.
    pub repeat: Repeat,
    /// How long one call may take.
    pub timeout: Duration,
    /// Whoever knows its URL may use it: it is shown to nobody.
    pub secret_url: bool,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// A request to any API.
    Http(HttpStep),
    /// Hands the event to a hook of Zapier, Make or n8n.
    Forward(ForwardStep),
    /// Tells people in a chat.
    Message(MessageStep),
    /// Sends a mail.
    Email(EmailStep),
    /// Does nothing for a while. Nobody works meanwhile, and a restart does not shorten it.
    Wait(Wait),
    /// Asks a person, and goes on when somebody approves.
    Review(ReviewStep),
}

impl Action {
    /// Whether nothing leaves this process by it.
    pub fn sends_nothing(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Review(_))
    }
}

/// What a person is asked.
#[derive(Clone, Debug)]
pub struct ReviewStep {
    /// Template; shown with the claim.
    pub ask: String,
}

/// A message to an incoming webhook of a chat (apis/slack-and-teams-incoming-webhooks.md).
#[derive(Clone, Debug)]
pub struct MessageStep {
    /// Whose.
    pub chat: Chat,
    /// Template.
    pub url: String,
    /// Template; what comes from outside is told letter by letter, never as markup.
    pub text: String,
}

/// A mail whose parts are templates.
#[derive(Clone, Debug)]
pub struct EmailStep {
    /// Who sends it.
    pub from: String,
    /// Who gets it: each is one address.
    pub to: Vec<String>,
    /// Where answers go.
    pub reply_to: Option<String>,
    /// One line.
    pub subject: String,
    /// For everybody.
    pub text: String,
    /// For those who can show it; what comes from outside is no markup there.
    pub html: Option<String>,
}

/// Where people chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chat {
    /// Slack: an incoming webhook of an app.
    Slack,
    /// Microsoft Teams: a workflow's webhook, or a connector.
    Teams,
}

/// How long a step waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// From when it is first reached.
    For(Duration),
    /// Until an instant that a template tells.
    Until(String),
}

/// A request whose parts are templates over the payload and earlier answers.
#[derive(Clone, Debug)]
pub struct HttpStep {
    /// The method.
    pub method: http::Method,
    /// Template.
    pub url: String,
    /// Header names and values.
    pub headers: Vec<(String, HeaderText)>,
    /// What is sent.
    pub body: Body,
    /// The header that carries the key, where the target does not call it `Idempotency-Key`.
    pub idempotency_header: http::HeaderName,
}

/// A header's value.
#[derive(Clone, Debug)]
pub enum HeaderText {
    /// Rendered.
    Template(String),
    /// Sent as it is and shown to nobody.
    Secret(Secret),
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// JSON whose strings are templates; a string that is one expression keeps the expression's type.
    Json(Value),
    /// Text from a template.
    Text(String),
    /// The payload, byte for byte as it came.
    Payload,
}

/// Where an event is handed to.
#[derive(Clone, Debug)]
pub struct ForwardStep {
    /// Template.
    pub url: String,
    /// What is sent instead of the payload with the call-back URLs.
    pub json: Option<Value>,
    /// When the effect counts as done.
    pub until: Until,
}

/// When a forwarded event counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the hook's run calls done_url.
    Finished,
    /// When the hook answered 2xx; shown as handed over.
    Accepted,
}

/// What a repeat of a step would do (DESIGN §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The same thing again, harmlessly: an upsert by unique key, a PUT.
    Natural,
    /// Nothing, because the receiver knows the key, for as long as it remembers it.
    ByKey {
        /// How long the receiver remembers a key, from the first send.
        window: Duration,
    },
    /// A second effect: at most once, an unknown outcome goes to a person.
    Never,
}

/// How long receivers are believed to remember a key unless stated: the shortest that is common.
pub const KEY_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// How the note of a claim begins that waits at the step `wait` of this name.
pub fn waiting_note(step: &str) -> String {
    format!("step `{step}` waits until")
}

/// Looks for an effect before it is repeated (DESIGN §6, "checkable").
#[derive(Clone, Debug)]
pub struct Lookup {
    /// A request that changes nothing.
    pub request: HttpStep,
    /// An expression over `response`: whether the effect is there.
    pub found: String,
    /// An expression over `response`: what stands for the step's answer; all of the response's JSON unless given.
    pub answer: Option<String>,
    /// How long after the call whose outcome is unknown "not there" is believed: it may still be at work, or its trace
    /// not yet be seen by searches.
    pub settle: Duration,
    /// Its URL is shown to nobody.
    pub secret_url: bool,
}

/// Renders one template, as the steps do; for what is rendered at the door, e.g. a record's name.
///
/// # Errors
/// A sentence that names the place and the variable.
pub fn render_text(place: &str, template: &str, world: &Value) -> Result<String, String> {
    crate::render::text(place, template, world).map_err(|e| e.to_string())
}

/// The record that an event touches, by the template of its automation.
///
/// # Errors
/// A sentence that names the variable, or what is wrong with the name.
pub fn record(template: &str, payload: &Value) -> Result<RecordName, String> {
    let text = render_text("record", template, &serde_json::json!({ "payload": payload }))?;
    RecordName::try_from(text.trim()).map_err(|e| e.to_string())
}

/// Whether a text is one expression in braces, and which: what `when` wants.
pub fn expression(template: &str) -> Option<&str> {
    crate::render::one_expression(template)
}

/// Reads one template, for the check of the configuration, which judges what it names.
///
/// # Errors
/// A sentence that says where it cannot be read any further.
pub fn names(place: &str, template: &str) -> Result<Names, String> {
    crate::render::names(place, template).map_err(|e| e.to_string())
}

/// The filters that people use.
pub const FILTERS: &[&str] = &crate::render::names::FILTERS;

/// The tests that people use, as in `payload.id is defined`.
pub const TESTS: &[&str] = &crate::render::names::TESTS;
