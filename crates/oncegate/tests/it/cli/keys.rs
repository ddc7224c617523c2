//! `oncegate key preview`: how a key comes about, what two samples are to each other, the same in every locale.

use serde_json::{Value, json};

use super::{Ran, bare, ended};
use crate::harness::{Receiver, Setup};

const FORMS: &str = "
automations:
  enrol:
    record: 'crm:{{ payload.email | email }}'
    steps: [{ name: send, http: { url: 'https://crm.example/' }, repeat: by_key }]
    repeat: { fields: [{ field: email, as: email }, course], within: 30m }
sources:
  forms:
    provider: hmac
    automation: enrol
    secret: env:FORMS
    hmac: { header: X-Signature }
    key: [form_id, { field: email, as: email }, { field: note, as: collapse_ws, optional: true }]
    volatile: [event_id]
";

struct Bench(tempfile::TempDir);

impl Bench {
    fn new(yaml: &str) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write(dir.path().join("oncegate.yaml"), yaml).unwrap();
        Self(dir)
    }

    fn preview(&self, samples: &[&Value], flags: &[&str], lang: &str) -> Ran {
        let names: Vec<String> = (0..samples.len()).map(|n| format!("{n}.json")).collect();
        for (name, sample) in names.iter().zip(samples) {
            std::fs::write(self.0.path().join(name), sample.to_string()).unwrap();
        }
        let mut words = vec!["key", "preview", "--source", "forms", &names[0]];
        words.extend(names.get(1).iter().flat_map(|second| ["--against", second.as_str()]));
        words.extend(flags);
        let mut command = bare(&words);
        command.current_dir(self.0.path()).env("LANG", lang).env("LC_ALL", lang);
        ended(command)
    }

    fn json(&self, samples: &[&Value], lang: &str) -> Value {
        let ran = self.preview(samples, &["--json"], lang);
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
    }
}

fn sample(email: &str, note: &str) -> Value {
    json!({ "form_id": "f", "email": email, "note": note, "course": "A" })
}

#[test]
fn c72_c76_keys_and_fingerprints_are_the_same_in_every_locale() {
    let bench = Bench::new(FORMS);
    for (email, key) in [
        ("INFO@EXAMPLE.COM", "f:info@example.com:hi there"),
        ("İPEK@Example.com", "f:i\u{307}pek@example.com:hi there"),
        ("IĞDIR@example.com", "f:iğdir@example.com:hi there"),
    ] {
        let sample = sample(email, "hi\n there");
        let seen = ["C", "tr_TR.UTF-8"].map(|lang| bench.json(&[&sample], lang));
        assert_eq!(seen[0], seen[1], "{email}");
        assert_eq!(seen[0]["events"][0]["idempotency_key"], key);
        assert_eq!(seen[0]["events"][0]["fields"][1]["shown"], email, "what is sent is what was typed");
    }
    let (a, b) =
        (json!({ "a": 1, "b": { "x": 2, "y": [1, 2] } }), json!({ "b": { "y": [1, 2], "x": 2 }, "a": 1 }));
    let print = |sample: &Value, lang| bench.json(&[sample], lang)["events"][0]["fingerprint"].clone();
    assert_eq!(print(&a, "C"), print(&b, "tr_TR.UTF-8"));
    // SHA-256 of the canonical text, as any other program makes it.
    assert_eq!(print(&a, "C"), "v1:59366b0a016c933b63f89891d77e601e");
}

#[test]
fn c11_the_preview_shows_both_keys_and_how_they_came_about() {
    let bench = Bench::new(FORMS);
    let page = bench.preview(&[&sample(" Ana@Example.com", "call  me")], &[], "C").ok();
    for says in [
        "key          f:ana@example.com:call me\n",
        "unfolded     f: Ana@Example.com:call  me\n",
        "record       crm:ana@example.com\n",
        ", without event_id\n",
        "FIELD    AS                     SENT                COUNTS AS\n",
        "email    email                  \" Ana@Example.com\"  ana@example.com\n",
        "note     collapse_ws, optional  \"call  me\"          call me\n",
        "WHATEVER AGREES IN THESE WITHIN 30m IS ONE EFFECT\n",
    ] {
        assert!(page.contains(says), "no {says:?} in\n{page}");
    }
}

#[test]
fn two_samples_are_one_effect_or_two_and_it_is_said_why() {
    let bench = Bench::new(FORMS);
    let first = sample("ana@example.com", "call me");
    let with = |change: Value| {
        let mut second = first.clone();
        second.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        second
    };
    for (second, verdict, differ) in [
        (with(json!({ "event_id": "e9" })), "duplicate", json!([])),
        (with(json!({ "phone": "200" })), "payload_mismatch", json!([])),
        (with(json!({ "form_id": "g" })), "repeat", json!(["form_id"])),
        (with(json!({ "form_id": "g", "course": "B" })), "another", json!(["form_id"])),
        (with(json!({ "email": "bob@example.com" })), "another", json!(["email"])),
        (with(json!({ "email": null })), "rejected", json!(["email"])),
    ] {
        let against = bench.json(&[&first, &second], "C")["against"].clone();
        assert_eq!((&against["verdict"], &against["differ"]), (&json!(verdict), &differ), "{against}");
    }
    let page = bench.preview(&[&first, &with(json!({ "event_id": "e9" }))], &[], "C").ok();
    assert!(page.contains("against 1.json: one effect\n"), "{page}");
}

#[test]
fn c80_the_preview_shows_what_folding_does() {
    let plain = Bench::new(FORMS);
    let folding = Bench::new(&FORMS.replace(
        "{ field: email, as: email }, { field: note",
        "{ field: email, as: email, fold_tags: [gmail.com], fold_dots: [gmail.com] }, { field: note",
    ));
    for (bench, email, key, hint) in [
        (&plain, "ana+x@gmail.com", "f:ana+x@gmail.com:hi", "declare `fold_tags: [gmail.com]`"),
        (&folding, "a.na+x@gmail.com", "f:ana@gmail.com:hi", "at gmail.com tags or dots do not count"),
        (&folding, "ana+fair@example.com", "f:ana+fair@example.com:hi", "`+fair` counts"),
    ] {
        let event = bench.json(&[&sample(email, "hi")], "C")["events"][0].clone();
        assert_eq!(event["idempotency_key"], key);
        assert!(event["hints"].to_string().contains(hint), "{event}");
        assert_eq!(event["fields"][1]["shown"], email);
    }
}

#[tokio::test]
async fn a_delivery_that_was_rejected_is_tried_against_a_mended_file() {
    let receiver = Receiver::start().await;
    let yaml = FORMS.replace("https://crm.example/", "$RECEIVER/").replace("  forms:", "  orders:");
    let gate = Setup::new(&yaml.replace("env:FORMS", "env:ORDERS"), &receiver).start().await;
    gate.api
        .order(&json!({ "data": { "form_id": "f", "email": "ana@example.com" }, "email": "a@b.example" }))
        .await
        .ok();
    let number = gate.api.rejected().await[0]["id"].to_string();
    let shown = gate.api.get(&format!("/v1/rejected/{number}")).await.ok();
    let headers = shown["headers"].to_string();
    assert!(headers.contains("content-type") && !headers.contains("signature"), "{headers}");
    let bench =
        Bench::new(&FORMS.replace("  forms:", "  orders:").replace("key: [form_id", "key: [data.form_id"));
    let mut command = bare(&["key", "preview", "--delivery", &number, "--json", "--url", gate.api.base()]);
    command.current_dir(bench.0.path()).env("ONCEGATE_TOKEN", crate::harness::ADMIN);
    let ran = tokio::task::spawn_blocking(move || ended(command)).await.unwrap().ok();
    let told: Value = serde_json::from_str(&ran).unwrap();
    assert_eq!(told["events"][0]["idempotency_key"], r"f:a@b.example:\(missing)");
}
