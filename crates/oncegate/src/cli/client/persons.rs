//! `oncegate person` and `oncegate forget`: what is kept of somebody, handed out or forgotten.

use serde_json::{Map, Value, json};

use super::super::ending::{Exit, Failure};
use super::super::term;
use super::acts::Why;
use super::gate::{Asked, Connection};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Hand {
    /// What the documents say of the person; given twice, both must be there.
    #[arg(long = "match", value_name = "FIELD=VALUE", required = true, value_parser = field)]
    who: Vec<(String, String)>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Forget {
    /// What the documents say of the person; given twice, both must be there.
    #[arg(long = "match", value_name = "FIELD=VALUE", required_unless_present = "key", value_parser = field)]
    who: Vec<(String, String)>,
    /// Or one key of this automation.
    #[arg(long, value_name = "NAME", requires = "key", conflicts_with = "who")]
    automation: Option<String>,
    /// Which key.
    #[arg(long, requires = "automation")]
    key: Option<String>,
    /// Forget, not only count.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    connection: Connection,
}

fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("write it as in email=ann@example.com".to_owned()),
    }
}

fn described(who: &[(String, String)]) -> Result<Option<Value>, Failure> {
    let mut fields = Map::new();
    for (name, value) in who {
        if fields.insert(name.clone(), value.clone().into()).is_some() {
            return Err(Failure::usage(format!("--match {name}: is given twice")));
        }
    }
    Ok((!fields.is_empty()).then(|| fields.into()))
}

pub(super) async fn hand(args: Hand) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let fields = json!({ "match": described(&args.who)? });
    gate.file(&["v1", "person"], Asked::Post(&fields)).await?;
    Ok(0)
}

pub(super) async fn forget(args: Forget) -> Result<u8, Failure> {
    let gate = args.connection.open()?;
    let mut fields = args.why.fields();
    fields["match"] = described(&args.who)?.unwrap_or_default();
    fields["automation"] = args.automation.into();
    fields["idempotency_key"] = args.key.into();
    fields["dry_run"] = (!args.yes).into();
    let answer = gate.post(&["v1", "forget"], &fields).await?;
    let count = |name: &str| answer.body[name].as_u64().unwrap_or_default();
    gate.print(&answer, |_| {
        let mut text = match args.yes {
            true => format!("{} claims and deliveries are forgotten.\n", count("forgotten")),
            false => format!(
                "Would be forgotten: {} claims, {} deliveries. Nothing was changed; add --yes to do it.\n",
                count("claims"),
                count("deliveries")
            ),
        };
        if count("live") > 0 {
            text.push_str(&format!(
                "{} claims wait or run; they must end, or be dismissed, first.\n",
                count("live")
            ));
        }
        if count("audit_rows_that_stay") > 0 {
            text.push_str(&format!(
                "{} rows of the audit name the person; they stay, because the audit is append-only.\n",
                count("audit_rows_that_stay")
            ));
        }
        text
    });
    let unfinished = args.yes && count("live") > 0;
    if unfinished {
        term::tell("some became live meanwhile; ask again when they have ended");
    }
    Ok(if unfinished { Exit::Refused as u8 } else { 0 })
}
