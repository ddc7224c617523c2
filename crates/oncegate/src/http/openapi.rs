//! The API's own description, served at `/openapi.json`: OpenAPI 3.1, joined from the files of `openapi/`.
//! What the program knows better than a file, it fills in: what each call needs, which of them take an
//! `Idempotency-Key`, and the codes of problem documents.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::answer::Json;
use super::problem::Problem;
use super::routes::{Route, routes};

/// One file per subject; the first has what all of them share.
const PARTS: [(&str, &str); 10] = [
    ("info.yaml", include_str!("../../openapi/info.yaml")),
    ("claims.yaml", include_str!("../../openapi/claims.yaml")),
    ("lists.yaml", include_str!("../../openapi/lists.yaml")),
    ("many.yaml", include_str!("../../openapi/many.yaml")),
    ("acts.yaml", include_str!("../../openapi/acts.yaml")),
    ("notices.yaml", include_str!("../../openapi/notices.yaml")),
    ("intake.yaml", include_str!("../../openapi/intake.yaml")),
    ("access.yaml", include_str!("../../openapi/access.yaml")),
    ("upkeep.yaml", include_str!("../../openapi/upkeep.yaml")),
    ("server.yaml", include_str!("../../openapi/server.yaml")),
];

static DOCUMENT: LazyLock<Result<Value, String>> = LazyLock::new(joined);

pub(crate) async fn openapi() -> Result<Response, Problem> {
    match &*DOCUMENT {
        Ok(document) => Ok(Json(document.clone()).into_response()),
        Err(why) => Err(Problem::internal(why)),
    }
}

fn joined() -> Result<Value, String> {
    let mut whole = Map::new();
    for (name, text) in PARTS {
        let part: Map<String, Value> =
            serde_saphyr::from_str(text).map_err(|e| format!("{name} of the API's description: {e}"))?;
        join(&mut whole, part, 3).map_err(|at| format!("{name} describes {at} once more"))?;
    }
    if let Some(Value::Object(info)) = whole.get_mut("info") {
        info.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    }
    let mut whole = Value::from(whole);
    fill_in(&mut whole)?;
    Ok(whole)
}

fn fill_in(whole: &mut Value) -> Result<(), String> {
    let code = whole.pointer_mut("/components/schemas/Problem/properties/code");
    let code = code.and_then(Value::as_object_mut).ok_or("the code of a problem is not described")?;
    code.insert("enum".into(), Problem::CODES.into());
    for route in routes(false).iter().filter(|route| is_described(route)) {
        let call = whole.get_mut("paths").and_then(|paths| paths.get_mut(route.path));
        let call = call.and_then(|methods| methods.get_mut(route.method.to_ascii_lowercase()));
        let call = call.and_then(Value::as_object_mut);
        let call = call.ok_or_else(|| format!("{} {} is not described", route.method, route.path))?;
        call.insert("x-needs".into(), route.needs.as_str().into());
        let told = match call.get("description").and_then(Value::as_str) {
            Some(more) => format!("{more} {}", route.needs.told()),
            None => route.needs.told(),
        };
        call.insert("description".into(), told.into());
        if route.once {
            let key = json!({ "$ref": "#/components/parameters/IdempotencyKey" });
            let all = call.entry("parameters").or_insert_with(|| json!([]));
            all.as_array_mut().ok_or_else(|| format!("{}: parameters are a list", route.path))?.push(key);
        }
    }
    Ok(())
}

/// What senders of webhooks send is their own affair.
fn is_described(route: &Route) -> bool {
    !route.path.starts_with("/in/")
}

/// Puts one tree into another: paths and their methods, kinds of components and their names. Deeper nothing mixes.
fn join(into: &mut Map<String, Value>, from: Map<String, Value>, levels: u8) -> Result<(), String> {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(into)), Value::Object(from)) if levels > 1 => {
                join(into, from, levels - 1).map_err(|below| format!("{name} {below}"))?;
            }
            (Some(_), _) => return Err(name),
            (None, value) => {
                into.insert(name, value);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn refs<'a>(value: &'a Value, into: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(target)) = members.get("$ref") {
                    into.insert(target);
                }
                members.values().for_each(|member| refs(member, into));
            }
            Value::Array(items) => items.iter().for_each(|item| refs(item, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_everything_is_referred_to() {
        let document = joined().unwrap();
        let mut used = BTreeSet::new();
        refs(&document, &mut used);
        let mut there = BTreeSet::new();
        for kind in ["schemas", "parameters", "responses", "headers"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                there.insert(format!("#/components/{kind}/{name}"));
            }
        }
        let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
        assert_eq!(used, there);
    }

    #[test]
    fn every_call_has_a_name_of_its_own_and_says_what_it_does() {
        let document = joined().unwrap();
        let mut names = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, call) in methods.as_object().unwrap() {
                let name = call["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path}"));
                assert!(names.insert(name), "{name} is there twice");
                assert!(call["summary"].as_str().is_some_and(|s| s.len() > 5), "{method} {path}");
                assert!(call["tags"].as_array().is_some_and(|t| t.len() == 1), "{method} {path}");
            }
        }
    }

    #[test]
    fn every_call_of_the_router_is_described_and_no_other() {
        let document = joined().unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            described
                .extend(methods.as_object().unwrap().keys().map(|m| format!("{} {path}", m.to_uppercase())));
        }
        let routes = routes(false);
        let calls = routes.iter().filter(|route| is_described(route));
        let calls: BTreeSet<String> = calls.map(|route| format!("{} {}", route.method, route.path)).collect();
        assert_eq!(described, calls);
    }

    #[test]
    fn every_call_says_what_it_needs() {
        let document = joined().unwrap();
        for route in routes(false).iter().filter(|route| is_described(route)) {
            let call = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            let at = format!("{} {}", route.method, route.path);
            assert_eq!(call["x-needs"], route.needs.as_str(), "{at}");
            assert!(call["description"].as_str().is_some_and(|d| d.contains("Needs ")), "{at}");
            // The security of the whole document, a bearer token, holds unless a call has its own.
            assert_eq!(call["security"].is_null(), route.needs.bearer(), "{at}");
            let takes = call["parameters"].to_string().contains("IdempotencyKey");
            assert_eq!(takes, route.once, "{at}");
        }
        let reset = &document["paths"]["/v1/claims/{id}/reset"]["post"];
        assert_eq!(reset["x-needs"], "operator");
        assert_eq!(document["paths"]["/v1/backup"]["post"]["x-needs"], "server admin");
    }

    #[test]
    fn every_code_of_a_refusal_is_listed_once() {
        let document = joined().unwrap();
        let code = &document["components"]["schemas"]["Problem"]["properties"]["code"];
        let listed: Vec<&str> =
            code["enum"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(once.len(), listed.len());
        let some = [Problem::lost_claim(""), Problem::internal(""), Problem::field("a", "b")];
        for problem in some {
            let code = problem.document()["code"].clone();
            assert!(once.contains(code.as_str().unwrap()), "{code}");
        }
    }

    /// Objects that say which members they have, and not that there are no others.
    fn open(value: &Value, at: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                let described = members.get("properties").is_some_and(Value::is_object);
                if described && members.get("additionalProperties") != Some(&Value::Bool(false)) {
                    into.push(at.to_owned());
                }
                members.iter().for_each(|(name, member)| open(member, &format!("{at}/{name}"), into));
            }
            Value::Array(items) => items.iter().for_each(|item| open(item, at, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn answers_hold_nothing_that_is_not_described() {
        let document = joined().unwrap();
        let mut found = vec![];
        open(&document["components"], "components", &mut found);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, call) in methods.as_object().unwrap() {
                open(&call["responses"], &format!("{method} {path}"), &mut found);
            }
        }
        assert!(found.is_empty(), "{found:#?}");
        open(&json!({ "type": "object", "properties": { "a": {} } }), "it can fail", &mut found);
        assert_eq!(found, ["it can fail"]);
    }
}
