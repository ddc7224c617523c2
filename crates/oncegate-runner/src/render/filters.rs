//! The rules of identity as filters: `crm:{{ payload.email | email }}` names one record for all spellings of an
//! address, by the same code that makes keys. `| text` is what to send: the value as it was
//! typed, without what is around it.

use minijinja::{Environment, Error, ErrorKind, Value};
use oncegate_core::identity::{EmailFolding, Part, Rule};

/// Adds them to what the engine knows.
pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter("email", |value: &Value| fold(value, &Rule::Email(EmailFolding::default())));
    environment.add_filter("text", |value: &Value| fold(value, &Rule::Text));
    environment.add_filter("collapse_ws", |value: &Value| fold(value, &Rule::CollapseWs));
    environment.add_filter("number", |value: &Value| fold(value, &Rule::Number));
    environment.add_filter("timestamp", |value: &Value| fold(value, &Rule::Timestamp));
    environment.add_filter("date", |value: &Value, form: &str| {
        let form = form.parse().map_err(|why: String| Error::new(ErrorKind::InvalidOperation, why))?;
        fold(value, &Rule::Date(form))
    });
}

fn fold(value: &Value, rule: &Rule) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let refused = |why: String| Error::new(ErrorKind::InvalidOperation, why);
    let json = serde_json::to_value(value).map_err(|e| refused(e.to_string()))?;
    match rule.read(&json) {
        Ok(Part::Value(folded)) => Ok(folded.folded),
        Ok(Part::Missing | Part::Null | Part::Blank) => Err(refused("it is null or blank".to_owned())),
        Err(why) => Err(refused(format!("it {why}"))),
    }
}
