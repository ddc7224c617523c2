//! The API's own description, served at `/openapi.json`: OpenAPI 3.1, joined from the files of `openapi/`.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::answer::Json;
use super::problem::Problem;

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
    Ok(whole.into())
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
        let routes = super::super::routes::routes(false);
        // What senders of webhooks send is their own affair.
        let calls = routes.iter().filter(|route| !route.path.starts_with("/in/"));
        let calls: BTreeSet<String> = calls.map(|route| format!("{} {}", route.method, route.path)).collect();
        assert_eq!(described, calls);
    }
}
