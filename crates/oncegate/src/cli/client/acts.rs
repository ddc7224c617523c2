//! What people do: reset, run now, mark, tag, dismiss, release, pause, resume. Each with a reason, each audited.

use serde_json::{Value, json};

use super::super::ending::Failure;
use super::super::term::age;
use super::super::term::text::{clean, shell_word};
use super::gate::{Answer, Connection, Gate};
use super::show;
use super::target::Target;
use super::trouble::Trouble;

/// Why, and who.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Why {
    /// Why; it stands in the history and in the audit.
    #[arg(long)]
    reason: String,
    /// Who does it, if several share a token.
    #[arg(long, env = "USER", hide_env = true, value_name = "NAME")]
    by: Option<String>,
}

impl Why {
    pub(super) fn fields(&self) -> Value {
        json!({ "reason": self.reason, "by": self.by })
    }
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Simple {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Reset {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    why: Why,
    /// Start oncegate's own work at once.
    #[arg(long)]
    run_now: bool,
    /// For what is done: somebody checked that it must happen again.
    #[arg(long)]
    verified: bool,
    /// For what somebody is working on: the holder's name, which the refusal tells.
    #[arg(long, value_name = "HOLDER")]
    confirm_holder: Option<String>,
    /// Begin at the first step again, instead of where it failed.
    #[arg(long)]
    from_start: bool,
    /// With --from-start: steps that were sent and may be sent once more; the refusal tells which.
    #[arg(long, value_name = "STEP", num_args = 1.., requires = "from_start")]
    confirm_sent: Vec<String>,
    /// With --from-start: receivers see new keys, so that they do it once more; without, they may know the old ones.
    #[arg(long, requires = "from_start")]
    new_keys: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct MarkError {
    #[command(flatten)]
    target: Target,
    /// What it is counted under, e.g. `mass-duplicate`.
    #[arg(long)]
    tag: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Tag {
    #[command(flatten)]
    target: Target,
    /// The tag; a claim has one at most.
    #[arg(long, required_unless_present = "remove")]
    tag: Option<String>,
    /// Take its tag away.
    #[arg(long, conflicts_with = "tag")]
    remove: bool,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Release {
    /// The delivery's number, as `oncegate list --inbox rejected` shows it.
    delivery: u64,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Automation {
    /// The automation's name.
    automation: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn reset(args: Reset) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let mut fields = args.why.fields();
    fields["run_now"] = args.run_now.into();
    fields["verified"] = args.verified.into();
    fields["confirm_holder"] = args.confirm_holder.clone().into();
    if args.from_start {
        fields["from_start"] = true.into();
        fields["new_keys"] = args.new_keys.into();
        fields["confirm_sent"] = args.confirm_sent.clone().into();
    }
    let id = args.target.id(&gate).await?;
    match gate.act(&["v1", "claims", &id, "reset"], &fields).await {
        Ok(answer) => say(&gate, &answer),
        Err(trouble) => Err(with_flag(trouble, "reset", &args.target, &args.flags())),
    }
}

impl Reset {
    /// What was said already, for the command that says one thing more.
    fn flags(&self) -> String {
        let mut flags = String::new();
        for (given, flag) in [
            (self.run_now, " --run-now"),
            (self.verified, " --verified"),
            (self.from_start, " --from-start"),
            (self.new_keys, " --new-keys"),
        ] {
            flags.push_str(if given { flag } else { "" });
        }
        if let Some(holder) = self.confirm_holder.as_deref().and_then(shell_word) {
            flags.push_str(&format!(" --confirm-holder {holder}"));
        }
        if !self.confirm_sent.is_empty() {
            flags.push_str(&confirm_sent(self.confirm_sent.iter().map(String::as_str)));
        }
        flags
    }
}

fn confirm_sent<'a>(steps: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = steps.filter_map(shell_word).collect();
    format!(" --confirm-sent {}", words.join(" "))
}

pub(super) async fn simple(args: Simple, verb: &str) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let id = args.target.id(&gate).await?;
    match gate.act(&["v1", "claims", &id, verb], &args.why.fields()).await {
        Ok(answer) => say(&gate, &answer),
        Err(trouble) => Err(with_flag(trouble, verb, &args.target, "")),
    }
}

pub(super) async fn mark_error(args: MarkError) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let mut fields = args.why.fields();
    fields["tag"] = args.tag.into();
    let id = args.target.id(&gate).await?;
    say(&gate, &gate.act(&["v1", "claims", &id, "mark-error"], &fields).await?)
}

pub(super) async fn tag(args: Tag) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let mut fields = args.why.fields();
    match args.remove {
        true => fields["remove"] = true.into(),
        false => fields["tag"] = args.tag.into(),
    }
    let id = args.target.id(&gate).await?;
    let answer = gate.act(&["v1", "claims", &id, "tag"], &fields).await?;
    gate.print(&answer, |_| {
        let text = |name: &str| clean(answer.body[name].as_str().unwrap_or_default());
        let so = if answer.body["changed"] == true { "" } else { ", as before" };
        let tag = match text("tag").as_str() {
            "" => "no tag".to_owned(),
            tag => format!("filed under {tag}"),
        };
        format!("{} {}: {tag}{so}\n", text("automation"), text("idempotency_key"))
    });
    Ok(0)
}

/// A refusal that a second word overcomes says exactly which.
fn with_flag(trouble: Trouble, verb: &str, target: &Target, given: &str) -> Failure {
    let again = |flag: &str| format!("oncegate reset {} --reason '…'{given} {flag}", target.typed());
    let hint = match (&trouble, trouble.code()) {
        (Trouble::Refused(refused), "live_holder") => {
            let holder = refused.member("holder").and_then(shell_word).unwrap_or_else(|| "HOLDER".into());
            Some(format!("if you are sure that it is dead: {}", again(&format!("--confirm-holder {holder}"))))
        }
        (_, "needs_verified") => {
            Some(format!("if somebody checked that it must happen again: {}", again("--verified")))
        }
        (Trouble::Refused(refused), "needs_confirm_sent") => {
            let sent = refused.body["sent"].as_array().map(Vec::as_slice).unwrap_or_default();
            let flag = confirm_sent(sent.iter().filter_map(Value::as_str));
            Some(format!("if they may be sent once more: {}", again(flag.trim_start())))
        }
        (Trouble::Refused(refused), "no_runner") => {
            refused.member("run_url").map(|url| format!("replay it: {}", clean(url)))
        }
        (Trouble::Refused(refused), "nothing_to_do") if verb == "mark-done" && refused.status == 409 => {
            Some(format!("oncegate show {} tells where it stands", target.typed()))
        }
        _ => None,
    };
    let failure = Failure::from(trouble);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// One line: what it is now, and where it waits if it does.
fn say(gate: &Gate, answer: &Answer) -> Result<u8, Failure> {
    gate.print(answer, |_| {
        let claim = &answer.body;
        let text = |name: &str| clean(claim[name].as_str().unwrap_or_default());
        let mut line =
            format!("{} {}: {}", text("automation"), text("idempotency_key"), text("processing_state"));
        if claim["dismissed"] == true {
            line.push_str(", dismissed");
        }
        match (text("answer").as_str(), text("parked").as_str()) {
            ("queued", _) => line.push_str(", starts now"),
            (_, "needs_replay") => match claim["run_url"].as_str() {
                Some(url) => line.push_str(&format!("; replay its run: {}", clean(url))),
                None => line.push_str("; replay its run where it came from"),
            },
            (_, "reset") => line.push_str("; waits for run-now, or for its event to come again"),
            _ => {}
        }
        match age::read(&claim["due_at"]) {
            Some(due) if due > answer.now => {
                line.push_str(&format!(", due {}", age::relative(answer.now, due)));
            }
            Some(_) if text("processing_state") == "processing" => line.push_str(", goes on now"),
            _ => {}
        }
        line.push('\n');
        if let Some(newer) = show::neighbour(&claim["overtaken_by"]) {
            line.push_str(&format!(
                "warning: {newer} came later and has written this record; when this one runs, it writes what is older\n"
            ));
        }
        line
    });
    Ok(0)
}

pub(super) async fn release(args: Release) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let number = args.delivery.to_string();
    let answer = gate.act(&["v1", "rejected", &number, "release"], &args.why.fields()).await?;
    gate.print(&answer, |_| {
        let events = answer.body["events"].as_u64().unwrap_or(0);
        let s = if events == 1 { "" } else { "s" };
        format!(
            "delivery {number}: {}, {events} event{s}\n",
            clean(answer.body["status"].as_str().unwrap_or(""))
        )
    });
    Ok(0)
}

pub(super) async fn set_paused(args: Automation, verb: &str) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let answer = gate.act(&["v1", "automations", &args.automation, verb], &args.why.fields()).await?;
    gate.print(&answer, |_| {
        let name = clean(answer.body["automation"].as_str().unwrap_or_default());
        match (answer.body["paused"] == true, answer.body["changed"] == true) {
            (true, true) => format!("{name}: paused. Webhooks are still taken; nothing starts.\n"),
            (true, false) => format!("{name}: was paused already.\n"),
            (false, true) => format!("{name}: resumed. What waits starts.\n"),
            (false, false) => format!("{name}: was not paused.\n"),
        }
    });
    Ok(0)
}
