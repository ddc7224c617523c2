//! `oncegate token` and `oncegate workspace`: who may call, and whose everything is.

use serde_json::{Value, json};

use super::super::ending::Failure;
use super::super::term::table::{Cell, Column, Shrink, table};
use super::super::term::text::clean;
use super::super::term::{Style, age};
use super::acts::Why;
use super::gate::{Asked, Connection};
use super::trouble::Trouble;

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Token {
    /// Whose tokens there are, what they may do, and when they were last used.
    #[command(after_help = "Example:\n  oncegate token list")]
    List(Plain),
    /// Make a token. It is shown this once.
    #[command(after_help = CREATE)]
    Create(Create),
    /// End a token: it opens nothing from the next call on.
    #[command(after_help = "Example:\n  oncegate token revoke 7 --reason 'stood in a public repository'")]
    Revoke(Revoke),
}

const CREATE: &str = "\
Examples:
  oncegate token create 'Zap of the order form' --role caller --automation welcome-mail
  oncegate token create Mia --role operator --expires-in 90d
  oncegate token create 'acme admin' --role admin --workspace acme";

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Workspace {
    /// Which there are.
    #[command(after_help = "Example:\n  oncegate workspace list")]
    List(Plain),
    /// Make one.
    #[command(after_help = "Example:\n  oncegate workspace create acme")]
    Create(Make),
    /// Everything of one, as JSON lines on stdout.
    #[command(after_help = "Example:\n  oncegate workspace export acme > acme.jsonl")]
    Export(Make),
    /// Delete one with everything in it, for ever.
    #[command(
        after_help = "Example:\n  oncegate workspace delete acme --confirm acme --reason 'contract ended'"
    )]
    Delete(Delete),
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Plain {
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Create {
    /// What it is called in history and audit.
    name: String,
    /// What it may do.
    #[arg(long, value_parser = ["caller", "viewer", "operator", "admin"])]
    role: String,
    /// Bind it to this automation; may be given several times.
    #[arg(long, value_name = "NAME")]
    automation: Vec<String>,
    /// When it ends, e.g. `90d`; otherwise it lives until it is revoked.
    #[arg(long, value_name = "DURATION")]
    expires_in: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Revoke {
    /// Its number, as `oncegate token list` shows it.
    id: u64,
    #[command(flatten)]
    why: Why,
    /// Although nobody could administer the server any more.
    #[arg(long)]
    although_last_admin: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Make {
    /// Its name: lower-case letters, digits, - and _.
    name: String,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Delete {
    /// Its name.
    name: String,
    /// Its name once more.
    #[arg(long, value_name = "NAME")]
    confirm: String,
    /// Although claims of it are being worked on.
    #[arg(long)]
    although_live: bool,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

fn word(value: &Value, name: &str) -> String {
    clean(value[name].as_str().unwrap_or_default())
}

fn bound(token: &Value) -> String {
    match token["automations"].as_array() {
        None => "all".to_owned(),
        Some(names) => {
            names.iter().map(|name| clean(name.as_str().unwrap_or_default())).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A refusal that a flag overcomes names the flag.
fn with_flag(trouble: Trouble, code: &str, flag: &str) -> Failure {
    let meant = trouble.code() == code;
    let failure = Failure::from(trouble);
    match meant {
        true => failure.hint(format!("if you mean it: the same with {flag}")),
        false => failure,
    }
}

pub(super) async fn token(verb: Token) -> Result<u8, Failure> {
    match verb {
        Token::List(args) => {
            let gate = args.connection.open()?;
            let answer = gate.get(&["v1", "tokens"], &[]).await?;
            gate.print(&answer, |screen| {
                let columns = [
                    Column::right("ID"),
                    Column::new("NAME", Shrink::End),
                    Column::new("ROLE", Shrink::Never),
                    Column::new("AUTOMATIONS", Shrink::End),
                    Column::new("LAST USED", Shrink::Never),
                    Column::new("UNTIL", Shrink::Never),
                ];
                let rows: Vec<Vec<Cell>> = answer.body["tokens"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|token| {
                        let at = |name: &str| age::read(&token[name]);
                        let used =
                            at("last_used_at").map_or("never".into(), |t| age::relative(answer.now, t));
                        let until = match (at("revoked_at"), at("expires_at")) {
                            (Some(_), _) => "revoked".to_owned(),
                            (None, Some(end)) => age::relative(answer.now, end),
                            (None, None) => String::new(),
                        };
                        let style = if token["good"] == true { Style::Plain } else { Style::Dim };
                        vec![
                            Cell::new(style, token["token_id"].to_string()),
                            Cell::new(style, word(token, "name")),
                            Cell::new(style, word(token, "role")),
                            Cell::new(style, bound(token)),
                            Cell::new(style, used),
                            Cell::new(style, until),
                        ]
                    })
                    .collect();
                table(screen, &columns, &rows)
            });
        }
        Token::Create(args) => {
            let gate = args.connection.open()?;
            let automations = (!args.automation.is_empty()).then_some(args.automation);
            let fields = json!({
                "name": args.name, "role": args.role, "automations": automations, "expires_in": args.expires_in,
            });
            let answer = gate.act(&["v1", "tokens"], &fields).await.map_err(|trouble| {
                let made = trouble.code() == "answer_not_kept";
                let failure = Failure::from(trouble);
                match made {
                    true => failure
                        .hint("the answer with the token got lost: find it by `oncegate token list`, revoke it, make another"),
                    false => failure,
                }
            })?;
            gate.print(&answer, |_| {
                let made = &answer.body;
                let note = made["note"].as_str().map(|note| format!("  Note: {}\n", clean(note)));
                format!(
                    "{} ({}, automations: {}), number {}. It is shown this once:\n\n  {}\n\n{}",
                    word(made, "name"),
                    word(made, "role"),
                    bound(made),
                    made["token_id"],
                    word(made, "token"),
                    note.unwrap_or_default(),
                )
            });
        }
        Token::Revoke(args) => {
            let gate = args.connection.open()?;
            let mut fields = args.why.fields();
            fields["confirm"] = args.although_last_admin.then_some("last_admin").into();
            let answer = gate.act(&["v1", "tokens", &args.id.to_string(), "revoke"], &fields).await;
            let answer = answer.map_err(|e| with_flag(e, "last_admin", "--although-last-admin"))?;
            gate.print(&answer, |_| {
                let note = answer.body["note"].as_str().map(|note| format!("Note: {}\n", clean(note)));
                format!("{}: revoked.\n{}", word(&answer.body, "name"), note.unwrap_or_default())
            });
        }
    }
    Ok(0)
}

pub(super) async fn workspace(verb: Workspace) -> Result<u8, Failure> {
    match verb {
        Workspace::List(args) => {
            let gate = args.connection.open()?;
            let answer = gate.get(&["v1", "workspaces"], &[]).await?;
            gate.print(&answer, |screen| {
                let columns = [
                    Column::new("NAME", Shrink::Never),
                    Column::new("SINCE (UTC)", Shrink::Never),
                    Column::new("IN THE CONFIGURATION", Shrink::Never),
                ];
                let rows: Vec<Vec<Cell>> = answer.body["workspaces"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|row| {
                        vec![
                            Cell::new(Style::Bold, word(row, "name")),
                            Cell::new(
                                Style::Dim,
                                age::read(&row["created_at"]).map(age::clock).unwrap_or_default(),
                            ),
                            Cell::from(if row["declared"] == true { "yes" } else { "no" }.to_owned()),
                        ]
                    })
                    .collect();
                table(screen, &columns, &rows)
            });
        }
        Workspace::Create(args) => {
            let gate = args.connection.open()?;
            let answer = gate.post(&["v1", "workspaces"], &json!({ "name": args.name })).await?;
            gate.print(&answer, |_| match answer.body["made"] == true {
                true => format!("{}: made.\n", word(&answer.body, "name")),
                false => format!("{}: was there already.\n", word(&answer.body, "name")),
            });
        }
        Workspace::Export(args) => {
            let gate = args.connection.open()?;
            gate.file(&["v1", "workspaces", &args.name, "export"], Asked::Get(&[])).await?;
        }
        Workspace::Delete(args) => {
            let gate = args.connection.open()?;
            let mut fields = args.why.fields();
            fields["confirm"] = args.confirm.into();
            fields["although_live"] = args.although_live.into();
            let answer = gate.post(&["v1", "workspaces", &args.name, "delete"], &fields).await;
            let answer = answer.map_err(|e| with_flag(e, "still_live", "--although-live"))?;
            gate.print(&answer, |_| {
                let gone = &answer.body;
                format!(
                    "{}: deleted, with {} claims, {} deliveries and {} tokens.\n",
                    word(gone, "name"),
                    gone["claims"],
                    gone["deliveries"],
                    gone["tokens"]
                )
            });
        }
    }
    Ok(0)
}
