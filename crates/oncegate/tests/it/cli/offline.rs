//! What needs no gate: the key of a sample, completions.

use super::{bare, ended};
use crate::harness::{base64, hmac_sha256};

const TYPEFORM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/typeform/oncegate.yaml");
const BODY: &str = r#"{"event_type":"form_response","form_response":{"form_id":"frm1","token":"tok1","answers":[
  {"text":"Ann","field":{"ref":"contact_name"}},{"email":"ann@example.com","field":{"ref":"contact_email"}}]}}"#;

struct Sample {
    dir: tempfile::TempDir,
}

impl Sample {
    fn new(body: &str) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write(dir.path().join("body.json"), body).unwrap();
        Self { dir }
    }

    fn preview(&self, config: &str, flags: &[&str]) -> std::process::Command {
        let mut command = bare(&[&["key", "preview", "--config", config], flags, &["body.json"]].concat());
        command.current_dir(self.dir.path());
        command
    }
}

#[test]
fn a_sample_shows_its_key_before_anything_goes_live() {
    let sample = Sample::new(BODY);
    let page = ended(sample.preview(TYPEFORM, &["--source", "contact-form"])).ok();
    let key = "typeform:form_response:frm1:tok1";
    assert!(page.contains("event 1: would run\n") && page.contains(key), "{page}");
    assert!(page.contains("not checked: a secret of the configuration is not set here"), "{page}");
    let mut asked = sample.preview(TYPEFORM, &["--source", "contact-form", "--json"]);
    let signature = format!("sha256={}", base64(&hmac_sha256(b"demo-secret", BODY.as_bytes())));
    for (header, says) in [
        (format!("Typeform-Signature: {signature}"), "fits"),
        (format!("Typeform-Signature: {}", signature.to_lowercase()), "does not fit: "),
        ("X-Other: 1".to_owned(), "not checked: no --header 'typeform-signature: …' was given"),
    ] {
        let mut asked =
            sample.preview(TYPEFORM, &["--source", "contact-form", "--json", "--header", &header]);
        asked.envs([
            ("TYPEFORM_SECRET", "demo-secret"),
            ("CRM_URL", "https://crm.example/"),
            ("CRM_AUTHORIZATION", "x"),
        ]);
        let told: serde_json::Value = serde_json::from_str(&ended(asked).ok()).unwrap();
        assert_eq!(told["events"][0]["idempotency_key"], key);
        let signature = told["signature"].as_str().unwrap().to_lowercase();
        assert!(signature.starts_with(says), "{told}");
    }
    let said = ended({
        asked.args(["--source"]);
        asked
    });
    assert_eq!(said.code, 2, "{said:?}");
    let said = ended(sample.preview(TYPEFORM, &["--source", "contract-form"])).fails(4);
    assert!(said.contains("no source `contract-form`; it declares contact-form"), "{said}");
    let said = ended(sample.preview("absent.yaml", &["--source", "contact-form"])).fails(1);
    assert!(said.contains("absent.yaml"), "{said}");
}

#[test]
fn what_would_be_rejected_is_told_with_its_reason() {
    let sample = Sample::new(r#"{"event_type":"form_response","form_response":{"form_id":"frm1"}}"#);
    let ran = ended(sample.preview(TYPEFORM, &["--source", "contact-form"]));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains("event 1: would be rejected") && ran.out.contains("token"), "{}", ran.out);
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ended(bare(&["completions", shell])).ok();
        assert!(script.contains("run-now") && script.contains("inbox"), "{shell}");
    }
    let mut bash = std::process::Command::new("bash");
    let script = ended(bare(&["completions", "bash"])).ok();
    let ask =
        "COMP_WORDS=(oncegate pau); COMP_CWORD=1; _oncegate oncegate pau oncegate; echo \"${COMPREPLY[@]}\"";
    let output = bash.args(["-c", &format!("{script}\n{ask}")]).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim(),
        "pause",
        "{:?}",
        String::from_utf8(output.stderr)
    );
}
