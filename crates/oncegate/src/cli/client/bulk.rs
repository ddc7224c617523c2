//! `oncegate bulk`: one act on every claim that fits. Counted first, done only to as many as were counted.

use std::io::{BufRead, IsTerminal};

use serde_json::{Value, json};

use super::super::ending::{Exit, Failure};
use super::super::term::{self, Screen, Style, age};
use super::acts::Why;
use super::bulk_pages::{self, reasons};
use super::filter::{self, Filters};
use super::gate::{Answer, Connection, Gate};
use super::trouble::Trouble;
use super::{groups, progress};

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Bulk {
    /// Let them run again from the start.
    #[command(
        after_help = "Example:\n  oncegate bulk reset --inbox error --automation welcome-mail --reason 'the CRM is back'"
    )]
    Reset(Reset),
    /// Reset them and put oncegate's own steps into the queue.
    #[command(
        after_help = "Example:\n  oncegate bulk run-now --inbox parked --automation welcome-mail --reason 'checked'"
    )]
    RunNow(Plain),
    /// Mark them as errors, e.g. mass duplicates.
    #[command(
        after_help = "Example:\n  oncegate bulk mark-error --as mass-duplicate -q import-17 --reason 'the import ran twice'"
    )]
    MarkError(Filed),
    /// They did happen: from error to done.
    #[command(
        after_help = "Example:\n  oncegate bulk mark-done --tag import-17 --state error --reason 'seen in the CRM'"
    )]
    MarkDone(Plain),
    /// They shall not happen; or the marks in the inbox have been looked at.
    #[command(
        after_help = "Example:\n  oncegate bulk dismiss --inbox mismatch --older-than 7d --reason 'looked through'"
    )]
    Dismiss(Plain),
    /// File them under a tag, or take it away.
    #[command(after_help = TAG)]
    Tag(Retag),
    /// Which there were, newest first.
    #[command(after_help = "Example:\n  oncegate bulk list")]
    List(bulk_pages::List),
    /// One of them: how far it is, and what was refused.
    #[command(after_help = "Examples:\n  oncegate bulk show 7\n  oncegate bulk show 7 --claims")]
    Show(bulk_pages::Show),
    /// Take one back, for 30 days; what was touched since stays.
    #[command(after_help = "Example:\n  oncegate bulk undo 7 --reason 'wrong list'")]
    Undo(Undo),
}

const TAG: &str = "\
Examples:
  oncegate bulk tag --as import-17 -q import-17 --reason 'to be looked at'
  oncegate bulk tag --remove --tag import-17 --reason 'looked at'";

/// Which claims, and whether it is meant.
#[derive(Debug, clap::Args)]
struct Common {
    /// Only what stands in this list of the inbox.
    #[arg(long, value_name = "LIST", value_parser = ["stuck", "error", "mismatch", "parked", "late"],
          help_heading = "Which claims")]
    inbox: Option<String>,
    #[command(flatten)]
    filters: Filters,
    /// Only count.
    #[arg(long, conflicts_with_all = ["expect", "yes"], help_heading = "How it is done")]
    dry_run: bool,
    /// Do it if exactly so many fit, without asking: for scripts.
    #[arg(long, value_name = "COUNT", conflicts_with = "yes", help_heading = "How it is done")]
    expect: Option<u64>,
    /// On a terminal: count, and do it without asking.
    #[arg(long, help_heading = "How it is done")]
    yes: bool,
    /// Why; it stands in the history and in the audit.
    #[arg(long, required_unless_present = "dry_run", help_heading = "How it is done")]
    reason: Option<String>,
    /// Who does it, if several share a token.
    #[arg(long, env = "USER", hide_env = true, value_name = "NAME", help_heading = "How it is done")]
    by: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Plain {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Reset {
    /// For what is done: somebody checked that it must happen again.
    #[arg(long)]
    verified: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Filed {
    /// What they are counted under from then on, e.g. `mass-duplicate`.
    #[arg(long = "as", value_name = "TAG")]
    filed: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Retag {
    /// The tag that they get.
    #[arg(long = "as", value_name = "TAG", required_unless_present = "remove")]
    filed: Option<String>,
    /// Take their tags away.
    #[arg(long, conflicts_with = "filed")]
    remove: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Undo {
    /// Its number, as `oncegate bulk list` shows it.
    id: u64,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(verb: Bulk) -> Result<u8, Failure> {
    match verb {
        Bulk::Reset(args) => {
            let act = json!({ "action": "reset", "verified": args.verified });
            act_on(args.common, "reset", act).await
        }
        Bulk::RunNow(args) => act_on(args.common, "run-now", json!({ "action": "run_now" })).await,
        Bulk::MarkError(args) => {
            act_on(args.common, "mark-error", json!({ "action": "mark_error", "tag": args.filed })).await
        }
        Bulk::MarkDone(args) => act_on(args.common, "mark-done", json!({ "action": "mark_done" })).await,
        Bulk::Dismiss(args) => act_on(args.common, "dismiss", json!({ "action": "dismiss" })).await,
        Bulk::Tag(args) => act_on(args.common, "tag", json!({ "action": "tag", "tag": args.filed })).await,
        Bulk::List(args) => bulk_pages::list(args).await,
        Bulk::Show(args) => bulk_pages::show(args).await,
        Bulk::Undo(args) => undo(args).await,
    }
}

async fn act_on(args: Common, verb: &str, mut call: Value) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    call["filter"] = args.filters.fields(args.inbox.as_deref());
    let expect = match args.expect {
        Some(expect) => expect,
        None => {
            call["dry_run"] = true.into();
            let counted = gate.post(&["v1", "bulk"], &call).await?;
            if args.dry_run && gate.json {
                gate.print(&counted, |_| String::new());
                return Ok(0);
            }
            let query = args.filters.query(args.inbox.as_deref());
            let oldest = groups::ask(&gate, query).await?;
            let page = count_page(&Screen::stdout(), verb, &call["filter"], &counted, &oldest);
            if args.dry_run {
                term::write(&page);
                return Ok(0);
            }
            match confirmed(&counted.body, args.yes, &page)? {
                Some(expect) => expect,
                None => return Ok(0),
            }
        }
    };
    call["dry_run"] = false.into();
    call["expect"] = expect.into();
    call["reason"] = args.reason.into();
    call["by"] = args.by.into();
    let begun = gate.act(&["v1", "bulk"], &call).await.map_err(count_changed)?;
    finish(&gate, begun, verb).await
}

/// What would happen, before anything does.
fn count_page(screen: &Screen, verb: &str, filter: &Value, counted: &Answer, oldest: &Answer) -> String {
    let count = |name: &str| counted.body[name].as_u64().unwrap_or_default();
    let mut page = format!(
        "\n  {}  {}\n\n",
        screen.paint(Style::Bold, &format!("{verb} {}", claims(count("matched")))),
        screen.paint(Style::Dim, &filter::words(filter))
    );
    let mut fact = |name: &str, text: &str| {
        if !text.is_empty() {
            page.push_str(&format!("  {}{text}\n", screen.paint(Style::Dim, &format!("{name:<14}"))));
        }
    };
    fact("would act", &count("would_act").to_string());
    let refused = &counted.body["would_refuse"];
    match reasons(refused).as_str() {
        "" => {}
        why => fact("would refuse", &format!("{}: {why}", bulk_pages::sum(refused))),
    }
    let groups = oldest.body["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(at) = groups.iter().filter_map(|group| age::read(&group["oldest_at"])).min() {
        fact("the oldest", &format!("{}, since {} UTC", age::words(oldest.now.since(at)), age::clock(at)));
    }
    if counted.body["too_many"] == true {
        fact("too many", "an act takes at most 100,000 claims: narrow the filter");
    }
    if count("matched") > 0 {
        page.push('\n');
        page.push_str(&groups::shown(screen, oldest));
    }
    page.push('\n');
    page
}

fn claims(n: u64) -> String {
    format!("{n} claim{}", if n == 1 { "" } else { "s" })
}

/// How many a person meant; nobody, if there is nothing to do or it is not meant.
fn confirmed(counted: &Value, yes: bool, page: &str) -> Result<Option<u64>, Failure> {
    let count = |name: &str| counted[name].as_u64().unwrap_or_default();
    let matched = count("matched");
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    // The count is asked for by who looks at it; stdout stays for what was done.
    term::aside(page);
    if matched == 0 {
        term::aside("  Nothing fits; nothing was done.\n");
        return Ok(None);
    }
    if counted["too_many"] == true || count("would_act") == 0 {
        return Err(Failure::new(Exit::Refused, "nothing was done: none of it would be, see above"));
    }
    if !terminal {
        return Err(Failure::usage("nothing was done: nobody can be asked here")
            .hint(format!("if {} is what you expect: the same with --expect {matched}", claims(matched))));
    }
    if yes {
        return Ok(Some(matched));
    }
    term::aside(&format!("  Type {matched} to do it: "));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| format!("nothing was done: {e}"))?;
    if line.trim() == matched.to_string() {
        return Ok(Some(matched));
    }
    term::aside("  Nothing was done.\n");
    Ok(None)
}

fn count_changed(trouble: Trouble) -> Failure {
    let changed = trouble.code() == "count_changed";
    let failure = Failure::from(trouble);
    match changed {
        true => failure.hint("count again: the same with --dry-run instead of --expect"),
        false => failure,
    }
}

/// Waits for its end, and says how it went. It goes on by itself if this command is ended.
async fn finish(gate: &Gate, begun: Answer, verb: &str) -> Result<u8, Failure> {
    let done = progress::until_finished(gate, begun, verb).await?;
    let (acted, matched) = (bulk_pages::acted(&done.body), bulk_pages::number(&done.body, "matched"));
    gate.print(&done, |_| {
        let id = &done.body["bulk_id"];
        let mut page = format!("bulk {id}: {verb} {acted} of {}", claims(matched));
        let refused = bulk_pages::left(&done.body);
        match reasons(refused).as_str() {
            "" => page.push('\n'),
            why => page.push_str(&format!("; refused {}: {why}\n", bulk_pages::sum(refused))),
        }
        if acted > 0 {
            page.push_str(&format!("  → to take it back: oncegate bulk undo {id} --reason '…'\n"));
        }
        page
    });
    Ok(if acted == 0 && matched > 0 { Exit::Refused as u8 } else { 0 })
}

async fn undo(args: Undo) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let begun = gate.act(&["v1", "bulk", &args.id.to_string(), "undo"], &args.why.fields()).await?;
    let done = progress::until_finished(&gate, begun, "undo").await?;
    let (reversed, failed) = (bulk_pages::acted(&done.body), bulk_pages::number(&done.body, "failed"));
    let kept = bulk_pages::left(&done.body);
    gate.print(&done, |_| {
        let mut page =
            format!("bulk {}: took back {} of bulk {}", done.body["bulk_id"], claims(reversed), args.id);
        match reasons(kept).as_str() {
            "" => {}
            why => page.push_str(&format!("; kept {}: {why}", bulk_pages::sum(kept))),
        }
        if failed > 0 {
            page.push_str(&format!("; failed {failed}"));
        }
        page.push('\n');
        page
    });
    let nothing = reversed == 0 && bulk_pages::sum(kept) + failed > 0;
    Ok(if nothing || failed > 0 { Exit::Refused as u8 } else { 0 })
}
