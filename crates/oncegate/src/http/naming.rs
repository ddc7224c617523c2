//! The key of a claim call: what the caller names it, or made from its fields by the automation's rules.

use oncegate_core::identity::{self, CallerRules, Part, Unfit};
use oncegate_core::key::{IdempotencyKey, NameError};
use oncegate_core::webhook::NoIdentity;
use serde_json::{Map, Value};

use super::claims::{name, undamaged};
use super::input::kind;
use super::problem::Problem;
use crate::config::nearest;

/// The key, from the one of the two that was sent.
pub(super) fn key(
    key: Option<String>,
    parts: Option<&Value>,
    rules: &CallerRules,
) -> Result<IdempotencyKey, Problem> {
    match (key, parts) {
        (Some(_), Some(_)) => {
            Err(Problem::field("key_fields", "is given beside idempotency_key; send one of them"))
        }
        (Some(key), None) => {
            undamaged(&key, "idempotency_key")?;
            let key: IdempotencyKey = name(&key, "idempotency_key")?;
            identity::hole(key.as_str()).map_err(|why| Problem::field("idempotency_key", why))?;
            Ok(key)
        }
        (None, Some(Value::Object(parts))) => from_parts(parts, rules),
        (None, Some(other)) => Err(not_members("key_fields", other)),
        (None, None) => Err(Problem::field(
            "idempotency_key",
            "is missing or blank; without it every event would be the same one (or send key_fields)",
        )),
    }
}

/// A field that must be an object of names and values, if it is there.
pub(super) fn members(value: Option<Value>, field: &str) -> Result<Option<Value>, Problem> {
    match value {
        None => Ok(None),
        Some(Value::Object(members)) => {
            members.keys().try_for_each(|name| plain(field, name))?;
            Ok(Some(Value::Object(members)))
        }
        Some(other) => Err(not_members(field, &other)),
    }
}

fn not_members(field: &str, found: &Value) -> Problem {
    Problem::field(field, format!("must be an object of names and values, not {}", kind(found)))
}

fn plain(field: &str, name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(()),
        false => Err(Problem::field(
            &format!("{field}.{name}"),
            "has a name with other characters than letters, digits, _ . -",
        )),
    }
}

/// `{"form_id": "f", "submission_id": "s"}` → `form_id=f:submission_id=s`, in the order of the names.
fn from_parts(sent: &Map<String, Value>, rules: &CallerRules) -> Result<IdempotencyKey, Problem> {
    if sent.is_empty() {
        return Err(Problem::field(
            "key_fields",
            "is empty; name at least one field that tells effects apart",
        ));
    }
    sent.keys().try_for_each(|name| plain("key_fields", name))?;
    for (name, value) in sent {
        if let Some(text) = value.as_str().filter(|text| identity::is_unfilled(text)) {
            return Err(Problem::field(&format!("key_fields.{name}"), identity::Hole::unfilled(text)));
        }
    }
    let parts = rules.parts(sent).map_err(|(member, why)| match why {
        NoIdentity::Nothing => undeclared(&member, rules),
        why => unfit("key_fields", &member, &why),
    })?;
    for (member, part) in &parts {
        // Each alone, so that it is named.
        if let Part::Value(_) = part {
            identity::join([(None, part)]).map_err(|why| match why {
                NameError::Blank { .. } => no_identity(&format!("key_fields.{member}")),
                why => {
                    let why = why.to_string();
                    let told = why.strip_prefix("idempotency_key ").unwrap_or(&why);
                    Problem::field(&format!("key_fields.{member}"), told)
                }
            })?;
        }
    }
    identity::join(parts.iter().map(|(name, part)| (Some(name.as_str()), part)))
        .map_err(|e| Problem::field("key_fields", e))
}

fn undeclared(member: &str, rules: &CallerRules) -> Problem {
    let known: Vec<&str> = rules.key_fields.keys().map(String::as_str).collect();
    let meant = nearest(member, known.iter().copied());
    let meant = meant.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    Problem::field(
        &format!("key_fields.{member}"),
        format!("is no key field of this automation; {meant}It declares {}", known.join(", ")),
    )
}

/// A member that names nothing.
pub(super) fn unfit(field: &str, member: &str, why: &NoIdentity) -> Problem {
    let field = format!("{field}.{member}");
    match why {
        NoIdentity::Missing { .. } | NoIdentity::Null { .. } | NoIdentity::Blank { .. } => {
            no_identity(&field)
        }
        NoIdentity::Unfit { why: Unfit::NotScalar(found), .. } => {
            Problem::field(&field, format!("must be text or a whole number, not {found}"))
        }
        NoIdentity::Unfit { why: Unfit::NotWhole(_), .. } => Problem::field(
            &field,
            "must be text or a whole number, not a fractional or huge number; or declare it `number` for this automation",
        ),
        NoIdentity::Unfit { why, .. } => Problem::field(&field, why),
        why => Problem::field(&field, why),
    }
}

fn no_identity(field: &str) -> Problem {
    Problem::field(field, "is missing or blank, so this event has no identity")
}
