//! The shape of `oncegate.yaml`, as serde sees it. Unknown members are refused: a misspelt policy must not be
//! silently the default one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_connect::PrivateAllowance;
use oncegate_core::identity::{KeyField, MemberRule};
use oncegate_core::policy::{
    DurationError, Finish, LoopLimit, OnMismatch, OnStale, Policy, RetryPolicy, Ttl, parse_duration,
};
use oncegate_core::schedule::time_of_day;
use oncegate_core::webhook::{FieldPath, HmacScheme, SecretPlace};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};

use super::guards::{MachineMailWord, MailFile, SenderFile};
use super::json::Json;
use super::mail::SmtpFile;
use super::polls::PollFile;
use super::schedules::ScheduleFile;
use super::steps::StepFile;
use super::targets::TargetFile;
use crate::backups::Plan;

/// Members in the order of the file, with their places.
pub(super) type Members<T> = Vec<(Spanned<String>, T)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) public_url: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "members")]
    pub(super) sources: Members<SourceFile>,
    #[serde(default, deserialize_with = "members")]
    pub(super) automations: Members<AutomationFile>,
    #[serde(default, deserialize_with = "members")]
    pub(super) workspaces: Members<WorkspaceFile>,
    #[serde(default, deserialize_with = "members")]
    pub(super) targets: Members<TargetFile>,
    #[serde(default)]
    pub(super) trusted_proxies: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) outgoing: OutgoingFile,
    #[serde(default)]
    pub(super) smtp: Option<SmtpFile>,
    #[serde(default)]
    pub(super) runner: RunnerFile,
    #[serde(default)]
    pub(super) backup: BackupFile,
    #[serde(default)]
    pub(super) metrics: MetricsFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkspaceFile {
    #[serde(default, deserialize_with = "members")]
    pub(super) sources: Members<SourceFile>,
    #[serde(default, deserialize_with = "members")]
    pub(super) automations: Members<AutomationFile>,
    #[serde(default, deserialize_with = "members")]
    pub(super) targets: Members<TargetFile>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutgoingFile {
    #[serde(default)]
    pub(super) allow_private: Vec<PrivateAllowance>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunnerFile {
    #[serde(default)]
    pub(super) concurrency: Option<Spanned<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackupFile {
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    directory: Option<PathBuf>,
    #[serde(default)]
    at: Option<Spanned<String>>,
    #[serde(default)]
    keep: Option<Spanned<usize>>,
}

impl BackupFile {
    /// What is declared; a directory is relative to the configuration file.
    pub(super) fn plan(&self, base: &Path) -> Result<Plan, (Location, String)> {
        let mut plan = Plan { directory: self.directory.as_ref().map(|d| base.join(d)), ..Plan::default() };
        plan.enabled = self.enabled.unwrap_or(plan.enabled);
        if let Some(keep) = &self.keep {
            if keep.value == 0 {
                let message = "backup.keep must be at least 1; write `enabled: false` for none by itself";
                return Err((keep.referenced, message.to_owned()));
            }
            plan.keep = keep.value;
        }
        if let Some(at) = &self.at {
            plan.at = time_of_day(&at.value).ok_or_else(|| {
                let message =
                    format!("`{}` is no time of day; write hours and minutes in UTC, e.g. `03:00`", at.value);
                (at.referenced, message)
            })?;
        }
        Ok(plan)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsFile {
    #[serde(default)]
    pub(super) public: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceFile {
    #[serde(default)]
    pub(super) provider: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) schedule: Option<Spanned<ScheduleFile>>,
    #[serde(default)]
    pub(super) poll: Option<PollFile>,
    pub(super) automation: Spanned<String>,
    #[serde(default)]
    pub(super) secret: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) secrets: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) secret_in: Option<Spanned<SecretPlace>>,
    #[serde(default)]
    pub(super) verify_token: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) organization: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) key: Option<Spanned<Vec<KeyField>>>,
    #[serde(default)]
    pub(super) volatile: Vec<FieldPath>,
    #[serde(default)]
    pub(super) repeat: Option<Spanned<RepeatFile>>,
    #[serde(default)]
    pub(super) identity: Vec<KeyField>,
    #[serde(default)]
    pub(super) delivery_id: Option<FieldPath>,
    #[serde(default)]
    pub(super) batch: Option<Spanned<BatchFile>>,
    #[serde(default)]
    pub(super) hmac: Option<HmacScheme>,
    #[serde(default)]
    pub(super) environment: Option<EnvironmentFile>,
    #[serde(default)]
    pub(super) sender: Option<Spanned<SenderFile>>,
    #[serde(default)]
    pub(super) mail: Option<Spanned<MailFile>>,
    #[serde(default)]
    pub(super) machine_mail: Option<Spanned<MachineMailWord>>,
}

impl SourceFile {
    /// A member that says something of what senders send.
    pub(super) fn of_senders(&self) -> Option<&'static str> {
        said([
            (self.provider.is_some(), "provider"),
            (self.secret.is_some(), "secret"),
            (!self.secrets.is_empty(), "secrets"),
            (self.secret_in.is_some(), "secret_in"),
            (self.verify_token.is_some(), "verify_token"),
            (self.organization.is_some(), "organization"),
            (self.delivery_id.is_some(), "delivery_id"),
            (self.batch.is_some(), "batch"),
            (self.hmac.is_some(), "hmac"),
            (self.sender.is_some(), "sender"),
            (self.mail.is_some(), "mail"),
            (self.machine_mail.is_some(), "machine_mail"),
        ])
    }

    /// A member that says something of events.
    pub(super) fn of_events(&self) -> Option<&'static str> {
        said([
            (self.key.is_some(), "key"),
            (!self.volatile.is_empty(), "volatile"),
            (self.repeat.is_some(), "repeat"),
            (!self.identity.is_empty(), "identity"),
            (self.environment.is_some(), "environment"),
        ])
    }
}

fn said<const N: usize>(members: [(bool, &'static str); N]) -> Option<&'static str> {
    members.into_iter().find(|(is_said, _)| *is_said).map(|(_, member)| member)
}

/// `true`, or the field that holds the list.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum BatchFile {
    Body(bool),
    At(FieldPath),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvironmentFile {
    pub(super) field: FieldPath,
    pub(super) is: Spanned<Json>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AutomationFile {
    #[serde(default)]
    ttl: Option<Spanned<Period>>,
    #[serde(default)]
    ttl_override: bool,
    #[serde(default)]
    on_stale: OnStale,
    #[serde(default)]
    retries: Option<Spanned<Vec<Period>>>,
    #[serde(default)]
    retention: Option<Spanned<Period>>,
    #[serde(default)]
    payload_retention: Option<Spanned<Period>>,
    #[serde(default)]
    sla: Option<Period>,
    #[serde(default)]
    finish: Finish,
    #[serde(default)]
    on_mismatch: OnMismatch,
    #[serde(default)]
    loop_limit: Option<Spanned<LoopFile>>,
    #[serde(default)]
    pub(super) was: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) record: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "members")]
    pub(super) key_fields: Members<MemberRule>,
    #[serde(default)]
    pub(super) repeat: Option<Spanned<RepeatFile>>,
    #[serde(default)]
    pub(super) identity: Vec<KeyField>,
    #[serde(default)]
    pub(super) retrigger: Option<RetriggerFile>,
    #[serde(default, deserialize_with = "steps")]
    pub(super) steps: Vec<StepFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetriggerFile {
    pub(super) url: Spanned<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepeatFile {
    pub(super) fields: Vec<KeyField>,
    pub(super) within: Period,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopFile {
    runs: u32,
    within: Period,
}

/// A duration with its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period(pub(super) Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Period;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration with its unit, e.g. `10m`, `90s`, `4h` or `90d`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Period, E> {
                parse_duration(text).map(Period).map_err(E::custom)
            }
        }
        d.deserialize_str(Visitor)
    }
}

impl AutomationFile {
    /// The declared policy, or where and why it cannot be.
    pub(super) fn policy(&self) -> Result<Policy, (Location, String)> {
        let mut policy = Policy::default();
        policy.on_stale = self.on_stale;
        policy.finish = self.finish;
        policy.on_mismatch = self.on_mismatch;
        policy.retrigger = self.retrigger.is_some();
        if let Some(ttl) = &self.ttl {
            let Period(given) = ttl.value;
            let read = if self.ttl_override { Ttl::overridden(given) } else { Ttl::new(given) };
            let hint =
                if self.ttl_override { "" } else { "; set `ttl_override: true` beside it if you mean it" };
            policy.ttl = read.map_err(|e| (ttl.referenced, format!("{e}{hint}")))?;
        }
        if let Some(delays) = &self.retries {
            policy.retries = RetryPolicy::new(delays.value.iter().map(|p| p.0).collect())
                .map_err(|e| (delays.referenced, e))?;
        }
        if let Some(Period(sla)) = self.sla {
            policy.sla = sla;
        }
        if let Some(limit) = &self.loop_limit {
            let LoopFile { runs, within: Period(within) } = limit.value;
            if runs == 0 {
                return Err((limit.referenced, "loop_limit.runs must be at least 1".to_owned()));
            }
            if within > LoopLimit::WITHIN_MAX {
                return Err((limit.referenced, "loop_limit.within must be at most 24h".to_owned()));
            }
            policy.loop_limit = LoopLimit { runs, within };
        }
        // Ten years with their leap days; the reference says it in years.
        let told = |e: DurationError| {
            e.to_string().replace("1d to 3653d", "1 day to 10 years").replace("3653d", "10 years")
        };
        if let Some(kept) = &self.payload_retention {
            policy = policy.with_payload_retention(kept.value.0).map_err(|e| (kept.referenced, told(e)))?;
        }
        match &self.retention {
            Some(retention) => {
                policy.with_retention(retention.value.0).map_err(|e| (retention.referenced, told(e)))
            }
            None => Ok(policy),
        }
    }
}

/// A mapping as a list, so that the places of its keys survive.
fn members<'de, D, T>(d: D) -> Result<Members<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Visitor<T>(std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<T> {
        type Value = Members<T>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("names with their declarations below them")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(vec![])
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = vec![];
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    // Not `deserialize_map`, which refuses a member that nothing stands under yet.
    d.deserialize_any(Visitor(std::marker::PhantomData))
}

/// The steps of an automation; names with declarations below them, which other tools use, are told how to be mended.
fn steps<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<StepFile>, D::Error> {
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Vec<StepFile>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list; begin each step with `- name:`")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(vec![])
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut steps = vec![];
            while let Some(step) = seq.next_element()? {
                steps.push(step);
            }
            Ok(steps)
        }
    }
    d.deserialize_any(Visitor)
}
