//! A declared field: where it stands, by which rule it is compared, and whether an event may be without it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::email::{EmailFolding, fold_domain};
use super::part::Part;
use super::rule::Rule;
use crate::webhook::{FieldPath, FieldPathError, NoIdentity};

/// One field of a key, of a repeat rule or of a record's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Where it stands.
    pub path: FieldPath,
    /// How it is compared.
    pub rule: Rule,
    /// An event without it has an identity all the same.
    pub optional: bool,
}

impl From<FieldPath> for KeyField {
    fn from(path: FieldPath) -> Self {
        Self { path, rule: Rule::Opaque, optional: false }
    }
}

impl FromStr for KeyField {
    type Err = FieldPathError;
    fn from_str(path: &str) -> Result<Self, FieldPathError> {
        path.parse::<FieldPath>().map(Self::from)
    }
}

impl KeyField {
    /// Judges what was found where the field should stand.
    ///
    /// # Errors
    /// It is not there and not optional, or does not fit its rule.
    pub fn part(&self, found: Option<&Value>) -> Result<Part, NoIdentity> {
        let field = || self.path.to_string();
        let part = match found {
            None => Part::Missing,
            Some(value) => self.rule.read(value).map_err(|why| NoIdentity::Unfit { field: field(), why })?,
        };
        match part {
            Part::Missing if !self.optional => Err(NoIdentity::Missing { field: field() }),
            Part::Null if !self.optional => Err(NoIdentity::Null { field: field() }),
            Part::Blank if !self.optional => Err(NoIdentity::Blank { field: field() }),
            part => Ok(part),
        }
    }

    /// What it is and how it is compared, in one line; two fields that are compared alike have one.
    pub fn describe(&self) -> String {
        let mut text = format!("{} as {}", self.path, self.rule.name());
        let details = self.rule.details();
        if !details.is_empty() {
            text.push_str(&format!(" ({details})"));
        }
        if self.optional {
            text.push_str(", optional");
        }
        text
    }
}

/// What stands in the file below `as`, whether the field is named by a path or by the name of a member.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    field: Option<FieldPath>,
    #[serde(default, rename = "as")]
    rule: Option<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    form: Option<String>,
    #[serde(default)]
    fold_tags: Vec<String>,
    #[serde(default)]
    fold_dots: Vec<String>,
}

impl Written {
    fn rule(&self) -> Result<Rule, String> {
        let name = self.rule.as_deref().unwrap_or("opaque");
        let unused = |what: &str, of: &str| Err(format!("`{what}` belongs to `as: {of}`; remove it"));
        if name != "email" && !self.fold_tags.is_empty() {
            return unused("fold_tags", "email");
        }
        if name != "email" && !self.fold_dots.is_empty() {
            return unused("fold_dots", "email");
        }
        if name != "date" && self.form.is_some() {
            return unused("form", "date");
        }
        let domains = |listed: &[String]| {
            let folded = |domain: &String| {
                fold_domain(domain.trim())
                    .ok_or_else(|| format!("`{domain}` is no domain; write e.g. `gmail.com`, without an @"))
            };
            listed.iter().map(folded).collect::<Result<_, _>>()
        };
        match name {
            "opaque" => Ok(Rule::Opaque),
            "email" => Ok(Rule::Email(EmailFolding {
                fold_tags: domains(&self.fold_tags)?,
                fold_dots: domains(&self.fold_dots)?,
            })),
            "text" => Ok(Rule::Text),
            "collapse_ws" => Ok(Rule::CollapseWs),
            "number" => Ok(Rule::Number),
            "date" => match &self.form {
                Some(form) => Ok(Rule::Date(form.parse()?)),
                None => {
                    Err("`as: date` needs `form`: how the day is written, e.g. `form: DD.MM.YYYY`".into())
                }
            },
            "timestamp" => Ok(Rule::Timestamp),
            other => Err(format!("there is no rule `{other}`; known are {}", Rule::NAMES.join(", "))),
        }
    }
}

struct Visitor {
    /// The field is named by a path inside; else the text is a rule.
    by_path: bool,
}

impl<'de> serde::de::Visitor<'de> for Visitor {
    type Value = (Option<FieldPath>, Rule, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by_path {
            true => "a field such as `order.id`, or `{ field: email, as: email }`",
            false => "a rule such as `email`, or `{ as: email, optional: true }`",
        })
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if self.by_path {
            return Ok((Some(text.parse().map_err(E::custom)?), Rule::Opaque, false));
        }
        let declared = Written {
            field: None,
            rule: Some(text.to_owned()),
            optional: false,
            form: None,
            fold_tags: vec![],
            fold_dots: vec![],
        };
        Ok((None, declared.rule().map_err(E::custom)?, false))
    }

    // YAML reads a field that is called `0` as a number.
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error;
        let declared = Written::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        let rule = declared.rule().map_err(A::Error::custom)?;
        match (self.by_path, declared.field) {
            (true, None) => {
                Err(A::Error::custom("`field` is missing: where the value stands, e.g. `field: email`"))
            }
            (false, Some(_)) => Err(A::Error::custom("`field` is the name before the colon here; remove it")),
            (_, path) => Ok((path, rule, declared.optional)),
        }
    }
}

impl<'de> Deserialize<'de> for KeyField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let (path, rule, optional) = d.deserialize_any(Visitor { by_path: true })?;
        let path = path.ok_or_else(|| serde::de::Error::custom("`field` is missing"))?;
        Ok(Self { path, rule, optional })
    }
}

/// A rule for a member that is named elsewhere: `email: email`, or `email: { as: email, optional: true }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRule {
    /// How it is compared.
    pub rule: Rule,
    /// A call without it has an identity all the same.
    pub optional: bool,
}

impl MemberRule {
    /// The field of that name.
    pub fn named(self, name: &str) -> KeyField {
        KeyField { path: FieldPath::body(&[name]), rule: self.rule, optional: self.optional }
    }
}

impl<'de> Deserialize<'de> for MemberRule {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let (_, rule, optional) = d.deserialize_any(Visitor { by_path: false })?;
        Ok(Self { rule, optional })
    }
}
