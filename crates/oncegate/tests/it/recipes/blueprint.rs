//! The blueprint for Make, of which there is none here: its modules are played as far as it uses them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::{gate, token};
use crate::harness::{Gate, Receiver, Reply, Said, send};

#[expect(clippy::disallowed_methods, reason = "the example is what is tested")]
fn blueprint(gate: &Gate, receiver: &Receiver, token: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/make/blueprint.json");
    let text = std::fs::read_to_string(path).unwrap();
    let filled = text.replace("https://gate.example.com", gate.api.base());
    let filled = filled.replace("https://crm.example.com", &receiver.url()).replace("oga_YOUR_TOKEN", token);
    assert!(!filled.contains(".example.com"), "{filled}");
    serde_json::from_str(&filled).unwrap()
}

/// What each module gave, by its id.
type Bundles = BTreeMap<String, Value>;

/// `{{1.email}}` and `{{encodeURL(1.email)}}` in a text; what is not there is empty.
fn mapped(text: &str, bundles: &Bundles) -> String {
    let mut parts = text.split("{{");
    let mut all = parts.next().unwrap().to_owned();
    for part in parts {
        let (named, rest) = part.split_once("}}").unwrap();
        let (path, encode) = match named.strip_prefix("encodeURL(").and_then(|inner| inner.strip_suffix(')'))
        {
            Some(inner) => (inner, true),
            None => (named, false),
        };
        let (id, path) = path.split_once('.').unwrap();
        let found =
            bundles.get(id).and_then(|bundle| bundle.pointer(&format!("/{}", path.replace('.', "/"))));
        let value = match found {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        match encode {
            true => all.extend(
                form_urlencoded::byte_serialize(value.as_bytes()).map(|part| part.replace('+', "%20")),
            ),
            false => all.push_str(&value),
        }
        all.push_str(rest);
    }
    all
}

/// The HTTP module: what was answered, or an error where the state is one.
async fn http(gate: &Gate, module: &Value, bundles: &Bundles) -> Result<Value, Value> {
    let mapper = &module["mapper"];
    let text = |name: &str| mapped(mapper[name].as_str().unwrap_or_default(), bundles);
    assert_eq!((&mapper["method"], &module["parameters"]["handleErrors"]), (&json!("post"), &json!(true)));
    let mut request = gate.api.bare(Method::POST, &text("url")).body(text("data"));
    for header in mapper["headers"].as_array().unwrap() {
        request = request
            .header(header["name"].as_str().unwrap(), mapped(header["value"].as_str().unwrap(), bundles));
    }
    if mapper["bodyType"] == "raw" {
        request = request.header("content-type", text("contentType"));
    }
    let Said { status, body, .. } = send(request).await;
    match status {
        200..300 => Ok(json!({ "statusCode": status, "data": body })),
        status => Err(json!({ "error": { "message": format!("{status} \"{}\" & more", body["code"]) } })),
    }
}

/// Runs the scenario once; the names of the modules that ran.
async fn play(gate: &Gate, blueprint: &Value, submission: Value) -> Vec<String> {
    let mut bundles = Bundles::from([("1".to_owned(), submission)]);
    let mut ran = vec![];
    let name =
        |module: &Value| module["metadata"]["designer"]["name"].as_str().unwrap_or_default().to_owned();
    for module in &blueprint["flow"].as_array().unwrap()[1..] {
        if let Some(filter) = module.get("filter") {
            let condition = &filter["conditions"][0][0];
            assert_eq!(condition["o"], "text:equal");
            if mapped(condition["a"].as_str().unwrap(), &bundles) != condition["b"].as_str().unwrap() {
                return ran;
            }
        }
        let id = module["id"].to_string();
        ran.push(name(module));
        match http(gate, module, &bundles).await {
            Ok(bundle) => drop(bundles.insert(id, bundle)),
            Err(error) => {
                bundles.insert(id, error);
                let handler = module["onerror"].as_array().map_or(&[][..], Vec::as_slice);
                for module in handler.iter().filter(|module| module["module"] == "http:ActionSendData") {
                    ran.push(name(module));
                    http(gate, module, &bundles).await.unwrap();
                }
                ran.push("error".to_owned());
                return ran;
            }
        }
    }
    ran
}

#[tokio::test]
async fn the_blueprint_for_make_does_its_work_once_and_tells_of_a_failure() {
    let receiver = Receiver::start().await;
    let gate = gate(&receiver).await;
    let blueprint = blueprint(&gate, &receiver, &token(&gate).await);
    let submission = |id: Value| json!({ "submission_id": id, "email": "ann+fair@example.com" });
    for ran in [&["Claim", "Work", "Done"][..], &["Claim"]] {
        assert_eq!(play(&gate, &blueprint, submission(json!(8812))).await, ran);
    }
    let work = receiver.got("/contacts", 1).await.remove(0);
    assert_eq!(work.body, b"email=ann%2Bfair%40example.com");
    let done = gate.api.find("welcome mail", "form=contact-form:submission=8812").await.unwrap();
    assert_eq!((&done["processing_state"], work.key()), (&json!("done"), done["claim_id"].as_str().unwrap()));

    receiver.script("/contacts", [Reply::status(500)]);
    let ran = play(&gate, &blueprint, submission(json!("8813 & more"))).await;
    assert_eq!(ran, ["Claim", "Work", "Tell the gate", "error"]);
    let failed = gate.api.find("welcome mail", "form=contact-form:submission=8813 & more").await.unwrap();
    assert_eq!(failed["note"], "Work: 500 \"null\" & more", "{failed}");
    assert_eq!(gate.api.keys_in("error").await.len(), 1);

    for missing in [Value::Null, json!("")] {
        assert_eq!(play(&gate, &blueprint, submission(missing)).await, ["Claim", "error"]);
    }
    assert_eq!(receiver.to("/contacts").len(), 2);
}
