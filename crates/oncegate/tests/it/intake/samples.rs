//! The providers' own requests, as their documentation and libraries sign them: what each is answered, and how many
//! effects come of all of them.

#![expect(clippy::disallowed_methods, reason = "the samples stand in files")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use oncegate_core::time::Timestamp;
use oncegate_core::webhook::Provider;
use reqwest::Method;
use serde_json::Value;

use crate::harness::{Receiver, Setup, Signed, send};

struct Sample(Value);

impl Sample {
    fn text(&self, at: &str) -> &str {
        self.0.pointer(at).and_then(Value::as_str).unwrap_or_default()
    }

    fn name(&self) -> String {
        format!("{}/{}", self.text("/provider"), self.text("/case"))
    }

    /// A provider of its own here, and a key where it is a private one that signs.
    fn provider(&self) -> &str {
        match self.text("/case") {
            "06_inbound_parse" => "sendgrid_inbound",
            _ => self.text("/provider"),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0["verify"]["now_unix"].as_i64().unwrap())
    }

    /// Path and query, at a source of its own provider.
    fn path(&self) -> String {
        let path = self.text("/url").split_once("/in/").unwrap().1.split_once('/').unwrap().1;
        let path = format!("/in/{}/{path}", self.provider());
        let shown = self.text("/verify/scheme") != "shared_secret_in_url";
        match shown || path.contains('?') || path.ends_with(self.text("/secret")) {
            true => path,
            false => format!("{path}?k={}", self.text("/secret")),
        }
    }

    fn signed(&self) -> Signed {
        let headers = self.0["headers"].as_object().unwrap();
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap())).collect();
        let body = match self.0["body_base64"].as_str() {
            Some(coded) => data_encoding::BASE64.decode(coded.as_bytes()).unwrap(),
            None => self.text("/body_text").as_bytes().to_vec(),
        };
        Signed::with(&headers, body)
    }
}

/// In the order of their clocks.
fn samples() -> Vec<Sample> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/webhooks");
    let read =
        |file: &str| -> Value { serde_json::from_slice(&std::fs::read(dir.join(file)).unwrap()).unwrap() };
    let index = read("index.json");
    let files = index.as_array().unwrap().iter().map(|row| row["file"].as_str().unwrap());
    let mut all: Vec<_> = files.map(|file| Sample(read(file))).collect();
    all.sort_by_key(Sample::now);
    all
}

/// Samples that have another secret than the rest of their provider.
const ANOTHER_SECRET: [&str; 6] = [
    "github/07_official_vector",
    "make/05_http_module_unresolved_variable",
    "standard_webhooks/09_asymmetric_v1a",
    "standard_webhooks/09b_v1a_next_to_v1",
    "twilio/08_shared_key_sha256",
    "typeform/07_resubscribed_wrong_secret",
];

fn yaml(samples: &[Sample], vars: &mut BTreeMap<String, String>) -> String {
    let mut yaml = String::from("public_url: https://gate.example.com\nworkspaces:\n");
    for name in Provider::NAMES.iter().filter(|name| **name != "hmac") {
        let of_provider = || samples.iter().filter(|sample| sample.provider() == *name);
        let first =
            of_provider().find(|s| s.text("/case").starts_with("01") || s.provider() == "sendgrid_inbound");
        let sample = first.unwrap_or_else(|| panic!("no sample of {name}"));
        let variable = name.to_uppercase();
        let public = sample.text("/public_key");
        let secret =
            if public.is_empty() || *name == "sendgrid_inbound" { sample.text("/secret") } else { public };
        vars.insert(variable.clone(), secret.to_owned());
        let mut secrets = vec![format!("env:{variable}")];
        for (at, other) in of_provider().filter(|s| ANOTHER_SECRET.contains(&s.name().as_str())).enumerate() {
            if other.text("/verify/scheme") == "standard_webhooks_v1a"
                || other.text("/verify/expected").starts_with("in")
            {
                continue;
            }
            vars.insert(format!("{variable}_{at}"), other.text("/secret").to_owned());
            secrets.push(format!("env:{variable}_{at}"));
        }
        let more = if *name == "meta" { ", verify_token: env:WORD" } else { "" };
        yaml.push_str(&format!(
            "  {name}:
    automations:
      {name}:
        steps: [{{ name: send, http: {{ url: '$RECEIVER/{name}' }}, repeat: by_key }}]
    sources:
      test-endpoint: {{ provider: {name}, automation: {name}, secrets: [{}]{more} }}
",
            secrets.join(", ")
        ));
    }
    yaml
}

#[tokio::test]
async fn every_sample_is_answered_as_its_provider_needs_and_each_event_has_one_effect() {
    let receiver = Receiver::start().await;
    let samples = samples();
    let mut vars = BTreeMap::from([("WORD".to_owned(), "a-word-of-ours".to_owned())]);
    let yaml = yaml(&samples, &mut vars);
    let mut setup = Setup::new(&yaml, &receiver).starts_at(samples[0].now());
    for (name, value) in vars {
        setup = setup.var(&name, &value);
    }
    let gate = setup.start().await;
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in &samples {
        let name = sample.name();
        gate.clock.set_wall(sample.now());
        let method: Method = sample.text("/method").parse().unwrap();
        let signed = sample.signed();
        let mut request = gate.api.bare(method, &sample.path()).body(signed.body);
        for (name, value) in &signed.headers {
            request = request.header(name, value);
        }
        let said = send(request).await;
        let expected = sample.text("/verify/expected");
        let status = match expected {
            "handshake_refused" => 403,
            "valid_in_official_library_future_timestamp" | "expired" | "malformed" => 401,
            _ if name.ends_with("v1a") => 401,
            // What stood behind the proxy was another address; the public one is what counts.
            _ if name == "twilio/03b_other_host_behind_proxy" => 200,
            _ if expected.starts_with("invalid") || expected.starts_with("missing") => 401,
            _ => 200,
        };
        assert_eq!(said.status, status, "{name} ({expected}): {}", said.body);
        if let Some(body) = sample.0.pointer("/expected_response/body_text") {
            assert_eq!(said.body, *body, "{name}");
        }
        if let Some(body) = sample.0.pointer("/expected_response/body_json") {
            assert_eq!(said.body, *body, "{name}");
        }
        if let Some(kind) = sample.0.pointer("/expected_response/headers/Content-Type") {
            assert!(said.header("content-type").unwrap().starts_with(kind.as_str().unwrap()), "{name}");
        }
        // Tampered with where nothing is signed, and where a source needs rules of its own for its key.
        let runs = ["valid", "unsigned", "valid_signature_body_not_json"].contains(&expected)
            && !sample.text("/case").starts_with("03")
            && !["make/05_http_module_unresolved_variable", "google_forms/05_edited_response"]
                .contains(&name.as_str())
            && !name.ends_with("v1a");
        if runs {
            let keys = sample.0["suggested_keys"].as_array().unwrap();
            let wanted = wanted.entry(sample.provider()).or_default();
            wanted.extend(keys.iter().map(|key| key.as_str().unwrap()));
            // One that suggests none is named by a header.
            wanted.extend(keys.is_empty().then_some(sample.text("/case")));
        }
    }
    for (provider, keys) in &wanted {
        let path = format!("/{provider}");
        receiver.got(&path, keys.len()).await;
    }
    let effects: usize = wanted.values().map(BTreeSet::len).sum();
    assert_eq!(receiver.requests().len(), effects, "one for each event");
    assert_eq!(wanted.len(), Provider::NAMES.len() - 1, "each provider but the generic one");
    assert!(receiver.by_key().values().all(|count| *count == 1));
    let sent =
        receiver.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect::<String>();
    assert!(
        !sent.contains("path-secret-made-up") && !sent.contains("00Dmade!up.session"),
        "no credential goes on"
    );
}
