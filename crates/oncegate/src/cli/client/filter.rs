//! Which claims are meant: the filters that lists, groups, exports and acts on many claims share.

use serde_json::{Map, Value};

use super::super::term::text::{clean, shell_word};

/// All that are given must fit.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Which claims")]
pub(super) struct Filters {
    /// Only claims in this state.
    #[arg(long, value_parser = ["none", "processing", "done", "error"])]
    pub(super) state: Option<String>,
    /// Only claims of this automation.
    #[arg(long, value_name = "NAME")]
    pub(super) automation: Option<String>,
    /// Only claims that name this business record.
    #[arg(long)]
    record: Option<String>,
    /// Only what runs, or ran last, under this id.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Only claims filed under this tag.
    #[arg(long)]
    tag: Option<String>,
    /// Only what is in error for this.
    #[arg(long, value_name = "CAUSE", value_parser = [
        "failed", "outcome_unknown", "stale", "shutdown", "asked_to_wait", "marked", "marked_after_done", "restored",
    ])]
    error_cause: Option<String>,
    /// Only what is held back for this.
    #[arg(long, value_name = "WHY", value_parser = ["needs_replay", "loop_suspected", "incident", "reset", "restored", "repeat", "review"])]
    parked: Option<String>,
    /// Only claims with this text in key, record, run URL or note.
    #[arg(short = 'q', long, value_name = "TEXT")]
    search: Option<String>,
    /// Only what has stood in its state for longer, e.g. `10m`, `30d`.
    #[arg(long, value_name = "DURATION")]
    older_than: Option<String>,
    /// Only what has stood in its state for less long.
    #[arg(long, value_name = "DURATION")]
    newer_than: Option<String>,
}

impl Filters {
    /// As the API names them; the list of the inbox is the verb's own.
    pub(super) fn query(&self, inbox: Option<&str>) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("inbox", inbox.map(str::to_owned)),
            ("state", self.state.clone()),
            ("automation", self.automation.clone()),
            ("record", self.record.clone()),
            ("run_id", self.run_id.clone()),
            ("tag", self.tag.clone()),
            ("error_cause", self.error_cause.clone()),
            ("parked", self.parked.clone()),
            ("q", self.search.clone()),
            ("older_than", self.older_than.clone()),
            ("newer_than", self.newer_than.clone()),
        ]
    }

    /// The same as a document.
    pub(super) fn fields(&self, inbox: Option<&str>) -> Value {
        let given = self.query(inbox).into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>().into()
    }

    /// Whether something is asked for that only claims have; webhook deliveries have an automation.
    pub(super) fn only_claims(&self) -> bool {
        self.query(None).iter().any(|(name, value)| *name != "automation" && value.is_some())
    }

    /// As it is typed, e.g. ` --automation welcome-mail --state error`.
    pub(super) fn typed(&self) -> String {
        let given = self.query(None).into_iter().filter_map(|(name, value)| Some((name, value?)));
        given
            .map(|(name, value)| {
                let flag = if name == "q" { "search".to_owned() } else { name.replace('_', "-") };
                format!(" --{flag} {}", shell_word(&value).unwrap_or_else(|| "…".into()))
            })
            .collect()
    }
}

/// A filter in words, as the gate tells it of an act: `inbox error, automation welcome-mail`.
pub(super) fn words(filter: &Value) -> String {
    let members = filter.as_object().into_iter().flatten();
    let said = members.map(|(name, value)| {
        let name = if name == "q" { "text".to_owned() } else { clean(name).replace('_', " ") };
        match value.as_str() {
            Some(text) => format!("{name} {}", clean(text)),
            None => format!("{name} {}", clean(&value.to_string())),
        }
    });
    said.collect::<Vec<_>>().join(", ")
}
