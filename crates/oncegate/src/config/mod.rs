//! `oncegate.yaml`: read, checked as a whole, and turned into what the program works with. A mistake is told with
//! file, line, column, and how to mend it; nothing starts on a configuration that is half understood.

mod file;
mod guards;
mod hooks;
mod identity;
mod json;
mod lookup;
mod mail;
mod polls;
mod schedules;
mod secrets;
mod sentence;
mod slips;
mod sources;
mod steps;
mod targets;
mod template;
mod workspaces;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use oncegate_connect::{PrivateAllowance, TargetName};
use oncegate_core::access::WorkspaceName;
use oncegate_core::key::AutomationName;
use oncegate_core::limits;
use oncegate_core::poll::Poll;
use oncegate_core::schedule::Schedule;
use oncegate_core::secret::Secret;
use oncegate_core::webhook::{EventEnvironment, EventRules, MachineMail, Provider, SenderLimit, Trust};
use oncegate_runner::book::Automation;
use oncegate_runner::poller::PollCall;
use oncegate_runner::targets::TargetRules;

use crate::backups::Plan;

pub(crate) use sentence::nearest;

pub use mail::MailServer;
pub use secrets::{Environment, ProcessEnvironment};

/// Everything that is declared.
#[derive(Debug, Default)]
pub struct Config {
    /// Where the world reaches this gate; call-back URLs begin with it.
    pub public_url: Option<String>,
    /// What stands at the top of the file: of the workspace `default`.
    pub default: Declared,
    /// The other workspaces, in the order of the file.
    pub workspaces: Vec<(WorkspaceName, Declared)>,
    /// Whose word on the caller's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// Private addresses that steps may call.
    pub allow_private: Vec<PrivateAllowance>,
    /// The server that takes mails.
    pub mail: Option<MailServer>,
    /// Claims worked on at the same time.
    pub concurrency: Option<usize>,
    /// When and where backups are made.
    pub backup: Plan,
    /// Whether `/metrics` answers without a token.
    pub metrics_public: bool,
}

impl Config {
    /// What each workspace declares, the default one first.
    pub fn all(&self) -> impl Iterator<Item = &Declared> {
        std::iter::once(&self.default).chain(self.workspaces.iter().map(|(_, declared)| declared))
    }

    /// Who would declare a source that is named as in its address, and its name there.
    pub fn declares<'a>(&self, source: &'a str) -> (Option<&Declared>, &'a str) {
        match source.split_once('/') {
            None => (Some(&self.default), source),
            Some((workspace, name)) => {
                let named = self.workspaces.iter().find(|(known, _)| known.as_str() == workspace);
                (named.map(|(_, declared)| declared), name)
            }
        }
    }
}

/// What one workspace declares.
#[derive(Debug, Default)]
pub struct Declared {
    /// By name in `/in/{name}`, or `/in/{workspace}/{name}`.
    pub sources: HashMap<String, Source>,
    /// The sources that run by the clock, by name.
    pub schedules: BTreeMap<String, Timed>,
    /// The sources that ask for news, by name.
    pub polls: BTreeMap<String, Polling>,
    /// By folded name.
    pub automations: HashMap<AutomationName, Automation>,
    /// Automations that were called otherwise before: old name, new name.
    pub renamed: Vec<(AutomationName, AutomationName)>,
    /// How targets may be called: by everybody, where it stands at the top of the file, else by this workspace.
    pub targets: HashMap<TargetName, TargetRules>,
}

impl Declared {
    /// How many sources there are of every kind.
    pub fn all_sources(&self) -> usize {
        self.sources.len() + self.schedules.len() + self.polls.len()
    }

    /// Those whose events have fields that name them.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        self.sources.keys().chain(self.polls.keys())
    }

    /// What names the events of the source of this name; none has those that run by the clock.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.get(name).or_else(|| self.polls.get(name).map(|polling| &polling.source))
    }
}

/// A source that asks an API what is new.
#[derive(Clone, Debug)]
pub struct Polling {
    /// What names its items, and which automation they run.
    pub source: Source,
    /// What is read of the answers, and how often.
    pub poll: Poll,
    /// How it is asked.
    pub call: PollCall,
}

/// A source that runs by the clock.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The automation that its slots run.
    pub automation: AutomationName,
    /// When.
    pub schedule: Schedule,
}

/// One webhook endpoint.
#[derive(Clone, Debug)]
pub struct Source {
    /// Whose signatures and events.
    pub provider: Provider,
    /// By what its requests are believed.
    pub trust: Trust,
    /// The automation that its events run.
    pub automation: AutomationName,
    /// What names its events, and what makes two of them one.
    pub rules: EventRules,
    /// What its events must say to be run; others are kept and take no key.
    pub environment: Option<EventEnvironment>,
    /// How many events of one sender run within a time; more of them are set aside.
    pub sender: Option<SenderLimit>,
    /// What tells mails that no person wrote, which are set aside.
    pub machine_mail: Option<MachineMail>,
}

/// A mistake, where it stands, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Line and column, counted from 1, if the mistake has a place.
    pub place: Option<(u64, u64)>,
    /// The sentence.
    pub message: String,
    /// The file itself could not be read.
    pub unread: bool,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.display();
        match (self.place, self.unread) {
            (_, true) => {
                write!(
                    f,
                    "cannot read the configuration {file}: {}; name another with --config",
                    self.message
                )
            }
            (Some((line, column)), _) => write!(f, "{file}:{line}:{column}: {}", self.message),
            (None, _) => write!(f, "{file}: {}", self.message),
        }
    }
}

/// Reads the secret that a file holds; relative paths begin where the program was started.
///
/// # Errors
/// The file cannot be read, or is blank.
pub fn secret_file(path: &str) -> Result<Secret, String> {
    secrets::Secrets { environment: &ProcessEnvironment, base: Path::new("") }
        .resolve(&format!("file:{path}"))
}

/// Reads the body of a sample, as a sender would send it.
///
/// # Errors
/// It cannot be read.
pub fn sample_file(path: &Path) -> Result<Vec<u8>, String> {
    #[expect(clippy::disallowed_methods, reason = "this is where files are read")]
    std::fs::read(path).map_err(|e| format!("the sample {} cannot be read: {e}", path.display()))
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or something in it is wrong.
pub fn load(path: &Path, environment: &dyn Environment) -> Result<Config, ConfigError> {
    #[expect(clippy::disallowed_methods, reason = "this is where the configuration is read")]
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError {
        file: path.to_owned(),
        place: None,
        message: e.to_string(),
        unread: true,
    })?;
    parse(&text, path, environment)
}

/// Reads text that stands, or would stand, in `path`.
///
/// # Errors
/// Something in it is wrong.
pub fn parse(text: &str, path: &Path, environment: &dyn Environment) -> Result<Config, ConfigError> {
    let at = |location: serde_saphyr::Location, message: String| ConfigError {
        file: path.to_owned(),
        place: (location.line() > 0).then(|| (location.line(), location.column())),
        message,
        unread: false,
    };
    if text.trim().is_empty() {
        return Ok(Config::default());
    }
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: limits::YAML_DEPTH_MAX },
    };
    let file: file::File = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let location = e.location().unwrap_or(serde_saphyr::Location::UNKNOWN);
        let told = sentence::sentence(&e);
        match slips::slip(text, location.line(), location.column(), &told) {
            Some(slip) => ConfigError { place: Some((slip.line, slip.column)), ..at(location, slip.message) },
            None => at(location, told),
        }
    })?;
    let base = path.parent().unwrap_or(Path::new("."));
    let secrets = secrets::Secrets { environment, base };
    let mail = file.smtp.as_ref().map(|smtp| mail::server(smtp, &secrets, &at)).transpose()?;
    let around = Around {
        secrets: &secrets,
        has_public_url: file.public_url.is_some(),
        mail_from: mail.as_ref().map(|server| server.from.as_str()),
    };
    let default = declared((&file.sources, &file.automations, &file.targets), around, &at)?;
    let workspaces = workspaces::workspaces(&file.workspaces, around, &at)?;
    let trusted_proxies = workspaces::networks(&file.trusted_proxies, &at)?;
    if let Some(url) = &file.public_url
        && let Some(why) = steps::wrong_url(&url.value)
    {
        return Err(at(url.referenced, format!("`{}` {why}", url.value)));
    }
    if let Some(concurrency) = &file.runner.concurrency
        && concurrency.value == 0
    {
        let message = "concurrency must be at least 1; pause an automation to keep it from running";
        return Err(at(concurrency.referenced, message.to_owned()));
    }
    let backup = file.backup.plan(base).map_err(|(place, message)| at(place, message))?;
    Ok(Config {
        public_url: file.public_url.map(|url| url.value.trim_end_matches('/').to_owned()),
        default,
        workspaces,
        trusted_proxies,
        allow_private: file.outgoing.allow_private,
        mail,
        concurrency: file.runner.concurrency.map(|n| n.value),
        backup,
        metrics_public: file.metrics.public,
    })
}

/// What everything in the file may need to know of the rest of it.
#[derive(Clone, Copy)]
struct Around<'a> {
    secrets: &'a secrets::Secrets<'a>,
    has_public_url: bool,
    mail_from: Option<&'a str>,
}

type At<'a> = &'a dyn Fn(serde_saphyr::Location, String) -> ConfigError;

/// The sources, automations and targets of one workspace.
type Parts<'a> = (
    &'a file::Members<file::SourceFile>,
    &'a file::Members<file::AutomationFile>,
    &'a file::Members<targets::TargetFile>,
);

fn declared(
    (sources, automations, targets): Parts<'_>,
    around: Around<'_>,
    at: At<'_>,
) -> Result<Declared, ConfigError> {
    let (declared, by_name) = (automations, self::automations(automations, around, at)?);
    let renamed = renamed(declared, &by_name, at)?;
    let sources::Sources { webhooks, schedules, polls } = sources::sources(sources, around, &by_name, at)?;
    let targets = targets::targets(targets, at)?;
    Ok(Declared { sources: webhooks, schedules, polls, automations: by_name, renamed, targets })
}

fn automations(
    file: &file::Members<file::AutomationFile>,
    around: Around<'_>,
    at: At<'_>,
) -> Result<HashMap<AutomationName, Automation>, ConfigError> {
    let mut automations = HashMap::new();
    for (name, declared) in file {
        let folded =
            AutomationName::try_from(name.value.as_str()).map_err(|e| at(name.referenced, e.to_string()))?;
        let flow = steps::flow(&declared.steps, around, at)?;
        let policy = declared
            .policy()
            .map_err(|(place, message)| at(place, format!("automation `{}`: {message}", name.value)))?;
        if let (Some(flow), Some(step)) = (&flow, declared.steps.first()) {
            steps::waits_within(flow, &policy, step).map_err(|(place, message)| at(place, message))?;
        }
        if let Some(record) = &declared.record {
            template::Sees::Payload.check("record", &record.value).map_err(|e| at(record.referenced, e))?;
        }
        let automation = Automation {
            policy: Arc::new(policy),
            flow: flow.map(Arc::new),
            record: declared.record.as_ref().map(|record| record.value.clone()),
            callers: Arc::new(identity::of_callers(declared, at)?),
            retrigger: hooks::retrigger(declared, around.secrets, at)?,
        };
        if automations.insert(folded.clone(), automation).is_some() {
            return Err(at(
                name.referenced,
                format!(
                    "the automation `{folded}` is declared twice, because case and blanks around a name do not \
                     count; merge the two, or rename one"
                ),
            ));
        }
    }
    Ok(automations)
}

fn renamed(
    file: &file::Members<file::AutomationFile>,
    automations: &HashMap<AutomationName, Automation>,
    at: At<'_>,
) -> Result<Vec<(AutomationName, AutomationName)>, ConfigError> {
    let mut renamed = vec![];
    for (name, declared) in file {
        for old in &declared.was {
            let wrong = |why: String| at(old.referenced, why);
            let from = AutomationName::try_from(old.value.as_str()).map_err(|e| wrong(e.to_string()))?;
            let to = AutomationName::try_from(name.value.as_str()).map_err(|e| wrong(e.to_string()))?;
            if automations.contains_key(&from) || renamed.iter().any(|(known, _)| *known == from) {
                return Err(wrong(format!(
                    "`{from}` is declared as well; an old name belongs to one automation"
                )));
            }
            renamed.push((from, to));
        }
    }
    Ok(renamed)
}
