//! Templates: minijinja with strict undefined values. An error names the variable and where it stands.

mod filters;
pub(crate) mod names;
mod url;

use minijinja::{Environment, UndefinedBehavior};
use serde_json::Value;

pub(crate) use url::url;

use names::Names;

/// Why a template could not be rendered; a person must mend it, so it is never retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub(crate) struct RenderError {
    place: String,
    message: String,
}

impl RenderError {
    /// Of what came out of a template that could be rendered.
    pub(crate) fn of(place: &str, message: String) -> Self {
        Self { place: place.to_owned(), message }
    }
}

/// Reads a template and tells what it names; what that is worth is known only when it runs.
pub(crate) fn names(place: &str, template: &str) -> Result<Names, RenderError> {
    let environment = environment();
    let parsed = environment.template_from_str(template).map_err(|e| error(place, template, &e))?;
    Ok(names::of(template, parsed.undeclared_variables(true), &environment))
}

/// Renders text.
pub(crate) fn text(place: &str, template: &str, world: &Value) -> Result<String, RenderError> {
    environment().render_str(template, minijinja::value::Serde(world)).map_err(|e| error(place, template, &e))
}

/// Renders JSON: strings are templates, everything else stays. A string that is nothing but one expression keeps
/// the type of its value, so that `"{{ payload.amount }}"` sends a number if it was one.
pub(crate) fn json(place: &str, template: &Value, world: &Value) -> Result<Value, RenderError> {
    match template {
        Value::String(t) => match one_expression(t) {
            Some(expression) => {
                let environment = environment();
                let value = environment
                    .compile_expression(expression)
                    .and_then(|compiled| compiled.eval(minijinja::value::Serde(world)))
                    .map_err(|e| error(place, expression, &e))?;
                if value.is_undefined() {
                    return Err(RenderError {
                        place: place.to_owned(),
                        message: format!(
                            "`{expression}` is undefined; check its spelling against the payload"
                        ),
                    });
                }
                serde_json::to_value(&value)
                    .map_err(|e| RenderError { place: place.to_owned(), message: e.to_string() })
            }
            None => text(place, t, world).map(Value::String),
        },
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, item)| json(&format!("{place}[{i}]"), item, world))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Value::Object(members) => members
            .iter()
            .map(|(name, item)| Ok((name.clone(), json(&format!("{place}.{name}"), item, world)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(template.clone()),
    }
}

/// Whether an expression holds: by the rules of the language, so nothing, zero, and what is empty do not.
pub(crate) fn holds(place: &str, template: &str, world: &Value) -> Result<bool, RenderError> {
    let expression = one_expression(template).unwrap_or(template);
    let environment = environment();
    let value = environment
        .compile_expression(expression)
        .and_then(|compiled| compiled.eval(minijinja::value::Serde(world)))
        .map_err(|e| error(place, expression, &e))?;
    match value.is_undefined() {
        true => Err(RenderError {
            place: place.to_owned(),
            message: format!(
                "`{expression}` is undefined; write `{expression} is defined and …` if it may be missing"
            ),
        }),
        false => Ok(value.is_true()),
    }
}

pub(crate) fn one_expression(template: &str) -> Option<&str> {
    let inner = template.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%")).then(|| inner.trim())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Or errors would not say which name was undefined. What they know besides, we do not show.
    environment.set_debug(true);
    // Values go into URLs, headers and JSON, never into HTML.
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    filters::add(&mut environment);
    environment
}

fn error(place: &str, template: &str, e: &minijinja::Error) -> RenderError {
    if let Some(variable) = undefined(e) {
        let message = format!("`{variable}` is undefined; check its spelling against the payload");
        return RenderError { place: place.to_owned(), message };
    }
    let name = |range: std::ops::Range<usize>| match e.kind() {
        minijinja::ErrorKind::UndefinedError => {
            input_of_filter(template, range.start).or_else(|| whole_name(template, range))
        }
        _ => whole_name(template, range),
    };
    let culprit = e.range().and_then(name).filter(|t| !t.is_empty());
    let message = match (e.kind(), culprit) {
        (minijinja::ErrorKind::UndefinedError, Some(variable)) => {
            format!("`{variable}` is undefined; check its spelling against the payload")
        }
        (kind, Some(culprit)) => format!("{} (at `{culprit}`)", e.detail().unwrap_or(&kind.to_string())),
        (kind, None) => e.detail().map_or_else(|| kind.to_string(), str::to_owned),
    };
    RenderError { place: place.to_owned(), message }
}

/// What a filter was given that is not there: of `payload.answers | first` the engine shows the filter, and names its
/// input in the detail.
fn undefined(e: &minijinja::Error) -> Option<&str> {
    let (before, _) = e.detail()?.split_once("` is undefined")?;
    before.rsplit_once('`').map(|(_, variable)| variable).filter(|variable| !variable.contains("(...)"))
}

/// Of our own filters the engine points at the filter; what is undefined stands before it.
fn input_of_filter(template: &str, filter: usize) -> Option<&str> {
    let input = template.get(..filter)?.trim_end().strip_suffix('|')?.trim_end();
    whole_name(template, input.len()..input.len())
}

/// The engine points at the attribute that failed; a person wants the whole path to it.
fn whole_name(template: &str, range: std::ops::Range<usize>) -> Option<&str> {
    let before = template.get(..range.start)?;
    let start = before.trim_end_matches(|c: char| c.is_alphanumeric() || "_.[]'\"".contains(c)).len();
    Some(template.get(start..range.end)?.trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn types_survive_and_undefined_variables_are_named() {
        let world = json!({"payload": {"n": 5, "name": "Ann", "list": [1, 2], "nothing": null}});
        let template = json!({"n": "{{ payload.n }}", "hi": "Hi {{ payload.name }}!", "l": "{{ payload.list }}",
            "z": "{{ payload.nothing }}", "k": 7});
        let rendered = super::json("json", &template, &world).unwrap();
        assert_eq!(rendered, json!({"n": 5, "hi": "Hi Ann!", "l": [1, 2], "z": null, "k": 7}));
        for (template, named) in [
            ("{{ payload.emial }}", "`payload.emial`"),
            ("x {{ payload.emial }} y", "`payload.emial`"),
            ("{{ payload.a.b }}", "`payload.a"),
            ("x {{ paylod }}", "`paylod`"),
            ("{{ payload.answers | selectattr('a', 'eq', 1) | first }}", "`payload.answers` is undefined"),
            ("x {{ payload.answers | first }}", "`payload.answers` is undefined"),
            ("x {{ payload.nmae | upper }}", "`payload.nmae` is undefined"),
            ("{{ (payload.list | selectattr('a', 'eq', 9) | first).email }}", "`(payload.list"),
            ("{{ (payload.none | first).email }}", "`payload.none` is undefined"),
            ("{% for a in payload.lst %}{{ a }}{% endfor %}", "`payload.lst` is undefined"),
            ("x {{ payload.nmae | email }}", "`payload.nmae` is undefined"),
            ("x {{ payload.name | email }}", "is no e-mail address: there is no @"),
            ("x {{ payload.nothing | text }}", "null or blank"),
            ("{{ payload['a b'] }}", "`payload"),
            ("{{ payload.name.upper() }}", "upper"),
        ] {
            let error = super::json("json.to", &json!(template), &world).unwrap_err().to_string();
            assert!(error.starts_with("json.to: ") && error.contains(named), "{template}: {error}");
        }
    }
}
