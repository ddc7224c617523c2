//! The verbs that talk to a gate which runs: all of them are calls of its API.

mod acts;
mod audit;
mod claim;
mod finish;
mod gate;
mod inbox;
mod list;
mod once;
mod show;
mod target;
mod trouble;
mod watch;

use super::ending::Failure;

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
    /// One claim with its whole story, or a webhook delivery with its body.
    #[command(
        after_help = "Examples:\n  oncegate show welcome-mail contact-form:8812\n  oncegate show --delivery 6"
    )]
    Show(show::Args),
    /// Let it run again from the start.
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
    /// It shall not happen; or the mark in the inbox has been looked at.
    #[command(
        after_help = "Example:\n  oncegate dismiss welcome-mail contact-form:8812 --reason 'a test entry'"
    )]
    Dismiss(acts::Simple),
    /// Run a rejected webhook after its source was mended.
    #[command(after_help = "Example:\n  oncegate release 6 --reason 'key corrected'")]
    Release(acts::Release),
    /// Let nothing of an automation start; webhooks are still taken.
    #[command(after_help = "Example:\n  oncegate pause welcome-mail --reason 'the CRM sends duplicates'")]
    Pause(acts::Automation),
    /// Let what waits start.
    #[command(after_help = "Example:\n  oncegate resume welcome-mail --reason 'cleaned up'")]
    Resume(acts::Automation),
    /// What people did: who, what, when, why.
    #[command(after_help = "Examples:\n  oncegate audit\n  oncegate audit --all --json")]
    Audit(audit::Args),
}

const CLAIM: &str = "\
Examples:
  oncegate claim welcome-mail contact-form:8812
  oncegate claim welcome-mail --key-field form_id=f1 --key-field submission_id=8812
  oncegate claim backup 2026-01-05 -- /usr/local/bin/backup.sh

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
  oncegate list --state done --all --json";

const RESET: &str = "\
Examples:
  oncegate reset welcome-mail contact-form:8812 --reason 'the CRM is back'
  oncegate reset 048f1c0e2c06781dddb7e568fbc1ccf5 --reason 'mail lost' --verified";

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
        Verb::MarkDone(args) => acts::simple(args, "mark-done").await,
        Verb::Dismiss(args) => acts::simple(args, "dismiss").await,
        Verb::Release(args) => acts::release(args).await,
        Verb::Pause(args) => acts::set_paused(args, "pause").await,
        Verb::Resume(args) => acts::set_paused(args, "resume").await,
        Verb::Audit(args) => audit::run(args).await,
    }
}
