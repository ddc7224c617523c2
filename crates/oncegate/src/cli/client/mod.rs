//! The verbs that talk to a gate which runs: all of them are calls of its API.

mod access;
mod acts;
mod audit;
mod automations;
mod bulk;
mod bulk_pages;
mod claim;
mod export;
mod filter;
mod finish;
mod gate;
mod groups;
mod inbox;
mod list;
mod nodes;
mod notices;
mod once;
mod parent;
mod persons;
mod progress;
mod show;
mod sources;
mod target;
mod trouble;
mod watch;

use serde_json::Value;

pub(super) use gate::Connection;

use super::ending::Failure;

/// A delivery that the gate has kept, with its body and its headers.
pub(super) async fn delivery(connection: &Connection, number: u64) -> Result<Value, Failure> {
    let gate = connection.open()?;
    Ok(gate.get(&["v1", "rejected", &number.to_string()], &[]).await?.body)
}

/// A request that came to a source lately, by its number there; and the name of the source, as in its address.
pub(super) async fn recent(connection: &Connection, source: &str, number: u64) -> Result<Value, Failure> {
    let gate = connection.open()?;
    let name = source.rsplit('/').next().unwrap_or(source);
    let mut came = gate.get(&["v1", "sources", name], &[]).await?.body["deliveries"].take();
    let found = came.as_array_mut().into_iter().flatten().find(|sample| sample["number"] == number);
    found.map(Value::take).ok_or_else(|| {
        let why = format!(
            "the gate has no delivery number {number} of {source} in memory; see: oncegate sources {name}"
        );
        Failure::new(super::ending::Exit::NotFound, why)
    })
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// May I run? With a command behind `--`, run it once.
    #[command(after_help = CLAIM)]
    Claim(Box<claim::Args>),
    /// The effect happened.
    #[command(after_help = DONE)]
    Done(finish::Done),
    /// It failed.
    #[command(after_help = ERROR)]
    Error(finish::Error),
    /// Still at work.
    #[command(after_help = "Example:\n  oncegate heartbeat \"$ONCEGATE_HEARTBEAT_URL\"")]
    Heartbeat(finish::Heartbeat),
    /// What is there, and what needs a person.
    #[command(after_help = LIST)]
    List(list::Args),
    /// One claim with its whole story, or a delivery with its body.
    #[command(
        after_help = "Examples:\n  oncegate show welcome-mail contact-form:8812\n  oncegate show --delivery 6"
    )]
    Show(show::Args),
    /// Let it run again: fresh retries, finished steps stay done.
    #[command(after_help = RESET)]
    Reset(acts::Reset),
    /// Reset it and start oncegate's own steps at once.
    #[command(
        after_help = "Example:\n  oncegate run-now welcome-mail contact-form:8812 --reason 'the CRM is back'"
    )]
    RunNow(acts::Simple),
    /// Mark it as an error, e.g. a mass duplicate.
    #[command(
        after_help = "Example:\n  oncegate mark-error import row:17 --tag mass-duplicate --reason 'import of Monday ran twice'"
    )]
    MarkError(acts::MarkError),
    /// It did happen: from error to done.
    #[command(
        after_help = "Example:\n  oncegate mark-done welcome-mail contact-form:8812 --reason 'seen in the outbox'"
    )]
    MarkDone(acts::Simple),
    /// It shall not happen; or its mark has been looked at.
    #[command(
        after_help = "Example:\n  oncegate dismiss welcome-mail contact-form:8812 --reason 'a test entry'"
    )]
    Dismiss(acts::Simple),
    /// Yes, to what a step asks: it goes on.
    #[command(
        after_help = "Example:\n  oncegate approve refunds order:8812 --reason 'the customer is right'"
    )]
    Approve(acts::Simple),
    /// No, to what a step asks: it shall not happen.
    #[command(after_help = "Example:\n  oncegate decline refunds order:8812 --reason 'refunded already'")]
    Decline(acts::Simple),
    /// File it under a tag, or take the tag away.
    #[command(after_help = TAG)]
    Tag(acts::Tag),
    /// One act on every claim that fits: counted first, done, undone.
    #[command(subcommand, after_help = BULK)]
    Bulk(bulk::Bulk),
    /// Run a rejected webhook after its source was mended.
    #[command(after_help = "Example:\n  oncegate release 6 --reason 'key corrected'")]
    Release(acts::Release),
    /// Let nothing of an automation start; webhooks are still taken.
    #[command(after_help = "Example:\n  oncegate pause welcome-mail --reason 'the CRM sends duplicates'")]
    Pause(acts::Automation),
    /// Let what waits start.
    #[command(after_help = "Example:\n  oncegate resume welcome-mail --reason 'cleaned up'")]
    Resume(acts::Automation),
    /// Which automations there are and how they stand; rename one.
    #[command(after_help = AUTOMATIONS)]
    Automations(automations::Args),
    /// Where webhooks come in, and what came lately.
    #[command(after_help = "Examples:\n  oncegate sources\n  oncegate sources contact-form")]
    Sources(sources::Args),
    /// What a person should know though nothing waits for them.
    #[command(
        after_help = "Examples:\n  oncegate notices\n  oncegate notices dismiss 4 --reason 'the new name is meant'"
    )]
    Notices(notices::Args),
    /// The processes that share the gate's store (server admins only).
    #[command(after_help = "Example:\n  oncegate nodes")]
    Nodes(nodes::Args),
    /// What people did: who, what, when, why.
    #[command(
        after_help = "Examples:\n  oncegate audit\n  oncegate audit --actor mia --since 7d\n  oncegate audit --export csv > audit.csv"
    )]
    Audit(audit::Args),
    /// API tokens: list, create, revoke.
    #[command(
        subcommand,
        after_help = "Example:\n  oncegate token create Mia --role operator --expires-in 90d"
    )]
    Token(access::Token),
    /// Workspaces, one per client: list, create, export, delete.
    #[command(subcommand, after_help = "Example:\n  oncegate workspace create acme")]
    Workspace(access::Workspace),
    /// Hand out everything that is kept of one person, as JSON lines.
    #[command(after_help = "Example:\n  oncegate person --match email=ann@example.com > ann.jsonl")]
    Person(persons::Hand),
    /// Forget one person, or one key; counts first.
    #[command(after_help = FORGET)]
    Forget(persons::Forget),
}

const CLAIM: &str = "\
Examples:
  oncegate claim welcome-mail contact-form:8812
  oncegate claim welcome-mail --key-field form_id=f1 --key-field submission_id=8812
  oncegate claim backup 2026-01-05 -- /usr/local/bin/backup.sh
  oncegate claim mail s1 --parent        # in a command that runs under a claim

The command finds ONCEGATE_DONE_URL, ONCEGATE_ERROR_URL, ONCEGATE_HEARTBEAT_URL, ONCEGATE_CLAIM_ID,
ONCEGATE_IDEMPOTENCY_KEY, ONCEGATE_ATTEMPT and ONCEGATE_RUN_REASON. Its exit status is returned.";

const DONE: &str = "\
Examples:
  oncegate done \"$DONE_URL\" --result '{\"contact\": \"crm-7\"}'
  oncegate claim welcome-mail contact-form:8812 --json > claim.json
  oncegate done - < claim.json";

const ERROR: &str = "\
Examples:
  oncegate error \"$DONE_URL\" --note 'the CRM said 503' --retryable
  oncegate error - --note 'no such contact' < claim.json";

const LIST: &str = "\
Examples:
  oncegate list --inbox --watch
  oncegate list --inbox error --automation welcome-mail
  oncegate list --older-than 1d -q crm --order oldest
  oncegate list --inbox stuck --group
  oncegate list --tag import-17 --csv claims.csv";

const TAG: &str = "\
Examples:
  oncegate tag welcome-mail contact-form:8812 --tag import-17 --reason 'to be looked at'
  oncegate tag welcome-mail contact-form:8812 --remove --reason 'looked at'";

const BULK: &str = "\
Examples:
  oncegate bulk reset --inbox error --automation welcome-mail --reason 'the CRM is back'
  oncegate bulk mark-error --as mass-duplicate -q import-17 --reason 'ran twice' --expect 500
  oncegate bulk undo 7 --reason 'wrong list'

It counts and asks first. Without a terminal, --expect says how many must fit, or nothing is done.
It goes on by itself if this command is ended.";

const AUTOMATIONS: &str = "\
Examples:
  oncegate automations
  oncegate automations rename welcome-mial welcome-mail --reason 'a typing error'";

const FORGET: &str = "\
Examples:
  oncegate forget --match email=ann@example.com --reason 'ticket 4711'
  oncegate forget --match email=ann@example.com --reason 'ticket 4711' --yes
  oncegate forget --automation welcome-mail --key contact-form:8812 --reason 'ticket 4711' --yes

The reason stands in the audit for ever: write a ticket's number, not the person's name.";

const RESET: &str = "\
Examples:
  oncegate reset welcome-mail contact-form:8812 --reason 'the CRM is back'
  oncegate reset 048f1c0e2c06781dddb7e568fbc1ccf5 --reason 'mail lost' --verified
  oncegate reset welcome-mail 8812 --reason 'list wiped' --from-start --confirm-sent mail row";

pub(super) async fn run(verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::Claim(args) => claim::run(*args).await,
        Verb::Done(args) => finish::done(args).await,
        Verb::Error(args) => finish::error(args).await,
        Verb::Heartbeat(args) => finish::heartbeat(args).await,
        Verb::List(args) => list::run(args).await,
        Verb::Show(args) => show::run(args).await,
        Verb::Reset(args) => acts::reset(args).await,
        Verb::RunNow(args) => acts::simple(args, "run-now").await,
        Verb::MarkError(args) => acts::mark_error(args).await,
        Verb::Approve(args) => acts::simple(args, "approve").await,
        Verb::Decline(args) => acts::simple(args, "decline").await,
        Verb::MarkDone(args) => acts::simple(args, "mark-done").await,
        Verb::Dismiss(args) => acts::simple(args, "dismiss").await,
        Verb::Tag(args) => acts::tag(args).await,
        Verb::Bulk(verb) => bulk::run(verb).await,
        Verb::Automations(args) => automations::run(args).await,
        Verb::Sources(args) => sources::run(args).await,
        Verb::Notices(args) => notices::run(args).await,
        Verb::Nodes(args) => nodes::run(args).await,
        Verb::Release(args) => acts::release(args).await,
        Verb::Pause(args) => acts::set_paused(args, "pause").await,
        Verb::Resume(args) => acts::set_paused(args, "resume").await,
        Verb::Audit(args) => audit::run(args).await,
        Verb::Token(verb) => access::token(verb).await,
        Verb::Workspace(verb) => access::workspace(verb).await,
        Verb::Person(args) => persons::hand(args).await,
        Verb::Forget(args) => persons::forget(args).await,
    }
}
