//! Mistakes in `oncegate.yaml`: told with file, line, column, and how to mend them.

use std::collections::HashMap;
use std::path::Path;

use oncegate::config::{Config, ConfigError, parse};

use crate::harness::{Setup, Vars};

fn read(yaml: &str) -> Result<Config, ConfigError> {
    let vars = [("HOOK", "hook-secret"), ("BLANK", "  "), ("URL", "https://hooks.example.com/s3cret")];
    let vars = Vars(vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>());
    parse(yaml, Path::new("conf/oncegate.yaml"), &vars)
}

/// Each file has one mistake; its place is marked with `^` right before it.
fn check(wrapped: impl Fn(&str) -> String, table: &[(&str, &str)]) {
    for (marked, says) in table {
        let marked = wrapped(marked);
        let mark = marked.find('^').unwrap_or_else(|| panic!("no mark in {marked}"));
        let yaml = marked.replacen('^', "", 1);
        let (line, column) = (
            marked[..mark].matches('\n').count() + 1,
            mark - marked[..mark].rfind('\n').map_or(0, |newline| newline + 1) + 1,
        );
        let told = read(&yaml).expect_err(&yaml).to_string();
        let place = format!("conf/oncegate.yaml:{line}:{column}: ");
        assert!(told.starts_with(&place), "wanted {place}\n{told}\n{yaml}");
        assert!(told.contains(says), "wanted …{says}…\n{told}\n{yaml}");
        assert!(!told.contains("hook-secret") && !told.contains("s3cret") && !told.contains('\n'), "{told}");
    }
}

fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}

fn automation(text: &str) -> String {
    format!("automations:\n  welcome:\n{}", indented(text, 4))
}

fn step(text: &str) -> String {
    automation(&format!("steps:\n{}", indented(text, 2)))
}

fn source(text: &str) -> String {
    let declared = step("- { name: send, http: { url: 'https://api.example.com/' } }");
    format!("{declared}sources:\n  {}", indented(text, 4).trim_start())
}

const URL: &str = "https://a.example/";

#[test]
fn of_an_automation() {
    check(
        automation,
        &[
            ("ttl: ^10", "`10` has no unit; write e.g. `10m`"),
            ("ttl: ^10 minutes", "`10 minutes` is not a duration; write a whole number and a unit"),
            ("ttl: ^-5m", "is not a duration"),
            ("ttl: ^[10m]", "this must be one text"),
            ("ttl: ^0s", "ttl of 0s is outside 5m to 30m"),
            ("ttl: ^2h", "ttl of 2h is outside 5m to 30m; set `ttl_override: true` beside it if you mean it"),
            ("ttl_override: true\nttl: ^48h", "ttl of 2d is outside 1s to 1d"),
            ("^tll: 10m", "`tll` is not known here; did you mean `ttl`?"),
            ("^colour: red", "`colour` is not known here; known are ttl, ttl_override"),
            ("retries: ^[1m, 2m, 3m, 4m]", "4 retries are declared; at most 3 are allowed"),
            ("retries: [1m, ^10]", "`10` has no unit"),
            ("retries: ^3", "this must be a list"),
            ("retries: ^[48h]", "retry delay of 2d is outside 0s to 1d"),
            ("retention: ^1h", "retention of 1h is outside 1d to"),
            ("on_stale: ^retry", "`retry` is not known here; known are retry_once, hold"),
            ("on_mismatch: ^ignored", "did you mean `ignore`?"),
            ("finish: ^at-claim", "did you mean `at_claim`?"),
            ("loop_limit: ^{ runs: 0, within: 10m }", "loop_limit.runs must be at least 1"),
            ("loop_limit: ^{ runs: 5, within: 2d }", "loop_limit.within must be at most 24h"),
            ("loop_limit: { runs: ^-1, within: 10m }", "this must be a whole number"),
            ("loop_limit: { ^runs: 5 }", "`within` is missing here; add it"),
            ("record: ^'{{ payload.'", "record: unexpected end of input"),
        ],
    );
    check(
        str::to_owned,
        &[
            ("automations:\n  welcome: {}\n  ^Welcome : {}\n", "declared twice, because case and blanks"),
            (
                "automations:\n  welcome: {}\n  ^welcome: {}\n",
                "`welcome` stands here twice; keep one of them",
            ),
            ("automations:\n  ^' ': {}\n", "is blank"),
            ("^automations: [welcome]\n", "this must be names with their declarations"),
            ("automations:\n  welcome^:\n  other: {}\n", "write `{}` where there are none"),
        ],
    );
}

#[test]
fn of_a_step() {
    check(
        step,
        &[
            ("- name: ^send", "step `send`: says nothing to do; declare `http` or `forward`"),
            (
                &format!("- name: ^send\n  http: {{ url: '{URL}' }}\n  forward: {{ url: '{URL}' }}"),
                "declares `http` and `forward`; make two steps of it",
            ),
            (&format!("- ^http: {{ url: '{URL}' }}"), "`name` is missing here; add it"),
            (&format!("- {{ name: ^' ', http: {{ url: '{URL}' }} }}"), "step 1 has a blank name"),
            (
                &format!(
                    "- {{ name: a, http: {{ url: '{URL}' }} }}\n- {{ name: ^a, http: {{ url: '{URL}' }} }}"
                ),
                "two steps are called `a`",
            ),
            (
                &format!(
                    "- {{ name: ^a, forward: {{ url: '{URL}' }} }}\n- {{ name: b, http: {{ url: '{URL}' }} }}"
                ),
                "its hook calls done_url; make it the last step, or declare `until: accepted`",
            ),
            (&format!("- {{ name: a, ^htpp: {{ url: '{URL}' }} }}"), "did you mean `http`?"),
        ],
    );
    let declared = |text: &str| step(&format!("- name: send\n{}", indented(text, 2)));
    check(
        declared,
        &[
            ("http: { url: ^'ftp://a.example/' }", "is no http or https URL; write e.g. https://"),
            ("http: { url: ^a.example/x }", "is no http or https URL"),
            ("http: { url: ^'https://' }", "names no host"),
            ("http: { url: ^'https://a.example/a b' }", "has white space in it; write %20"),
            ("http: { url: ^'https://a.example/{{ payload. }}' }", "url: unexpected end"),
            (
                "http: { url: ^env:UNSET }",
                "the environment variable UNSET is not set; set it before starting",
            ),
            ("http: { ^method: GET }", "`url` is missing here; add it"),
            (
                "http: { url: 'https://a.example/', method: ^'FE TCH' }",
                "is not an HTTP method; write e.g. POST",
            ),
            (
                "http: { url: 'https://a.example/', headers: { 'X Key': ^a } }",
                "cannot be the name of a header",
            ),
            ("http: { url: 'https://a.example/', headers: { X-Key: ^env:UNSET } }", "UNSET is not set"),
            (
                "http: { url: 'https://a.example/', headers: { X-Key: ^'{{ a' } }",
                "headers.X-Key: unexpected end",
            ),
            ("http: { url: ^'https://a.example/', json: { a: ['{{ a' ] } }", "json.a[0]: unexpected end"),
            ("http: { url: 'https://a.example/', body: ^'{% if %}' }", "body: unexpected end"),
            ("http: { url: ^'https://a.example/', json: {}, body: x }", "one of `json` and `body`, not both"),
            ("http: { url: 'https://a.example/', idempotency_header: ^'X Key' }", "e.g. `Idempotency-Key`"),
            ("http: { url: 'https://a.example/' }\nrepeat: ^sometimes", "known are natural, by_key, never"),
            ("forward: { url: 'https://a.example/', until: ^accept }", "did you mean `accepted`?"),
            ("http: { url: 'https://a.example/' }\ntimeout: ^30", "`30` has no unit"),
        ],
    );
    let named =
        |text: &str| step(&format!("- name: ^send\n  http: {{ url: '{URL}' }}\n{}", indented(text, 2)));
    check(
        named,
        &[
            ("timeout: 1h", "step `send`: timeout must be from 1s to 240s"),
            ("key_window: 24h", "declare `repeat: by_key` too"),
        ],
    );
}

#[test]
fn of_a_source() {
    let hmac = "provider: hmac\nautomation: welcome\nsecret: env:HOOK\n";
    let tally = "provider: tally\nautomation: welcome\n";
    let after = |first: &str, rest: &str| format!("hook:\n{first}{rest}");
    check(
        source,
        &[
            (
                "hook:\nprovider: ^shopyfi\nautomation: welcome",
                "no provider `shopyfi`; known are typeform, tally",
            ),
            ("hook:\nprovider: tally\n^secret: env:HOOK", "`automation` is missing here; add it"),
            (
                "hook:\nprovider: ^hmac\nautomation: welcome\nsecret: env:HOOK\nkey: [id]",
                "add e.g. `hmac: { header:",
            ),
            (&format!("hook:\n{}hmac: {{ header: X }}", tally.replace("tally", "^tally")), "remove `hmac:`"),
            (
                &format!("^{}", after(hmac, "hmac: { header: X-S }")),
                "needs `key`: the fields that tell its events apart",
            ),
            (&after(hmac, "hmac: { header: X-S }\nkey: ^[]"), "needs `key`"),
            (&after(hmac, "hmac: { header: X-S }\nkey: ^id"), "this must be a list"),
            (&after(hmac, "hmac: { header: X-S }\nkey: [^form..id]"), "`form..id` has an empty name in it"),
            (&after(hmac, "hmac: ^{ header: 'X S' }\nkey: [id]"), "cannot be the name of a header"),
            (&after(hmac, "hmac: { header: X-S, algorithm: ^md5 }\nkey: [id]"), "known are sha256, sha512"),
            (
                &format!("^{}", after(tally, "")),
                "has no secret, so anybody could send to it; add `secret: env:NAME`",
            ),
            (&after(tally, "secret: ^env:UNSET"), "the environment variable UNSET is not set"),
            (&after(tally, "secret: ^env:BLANK"), "the secret `env:BLANK` is blank"),
            (&after(tally, "secret: ^file:no.txt"), "the secret's file conf/no.txt cannot be read"),
            (
                &after(tally, "secret: ^in-clear-text"),
                "must not stand in this file; write `env:NAME` or `file:PATH`",
            ),
            (&after(tally, "secrets: [env:HOOK, ^in-clear-text]"), "must not stand in this file"),
            (
                &after(&tally.replace("tally", "standard_webhooks"), "secret: ^env:HOOK"),
                "copy the whole signing secret",
            ),
            (&after(&tally.replace("welcome", "^wellcome"), "secret: env:HOOK"), "did you mean `welcome`?"),
            (
                &after(&tally.replace("welcome", "^orders"), "secret: env:HOOK"),
                "`orders`, which is not declared; add it",
            ),
            (
                &format!("^{}", after(tally, "secret: env:HOOK")).replace("hook", "My Hook"),
                "lower-case letters",
            ),
        ],
    );
    check(
        str::to_owned,
        &[(
            "automations:\n  a: { ttl: 10m }\nsources:\n  hook: { provider: tally, automation: ^a, secret: env:HOOK }\n",
            "which declares no steps; add at least one under `steps`",
        )],
    );
}

#[test]
fn of_the_file_as_a_whole() {
    check(
        str::to_owned,
        &[
            ("^automatons: {}\n", "did you mean `automations`?"),
            ("outgoing: { allow_private: [^'10.0.0.0/99'] }\n", "write e.g. crm.internal:8443 or 10.0.0.0/8"),
            ("outgoing: { allow_private: ^10.0.0.0/8 }\n", "this must be a list"),
            ("runner: { concurrency: ^0 }\n", "concurrency must be at least 1"),
            ("runner: { concurrency: ^many }\n", "this must be a whole number"),
            ("public_url: ^gate.example.com\n", "is no http or https URL"),
            ("automations:\n  welcome: ^{\n", "unclosed bracket"),
            ("automations:\n\t^welcome: {}\n", "YAML takes no tabs here"),
            ("^just text\n", "this must be names with values"),
        ],
    );
}

#[test]
fn what_is_right_is_read() {
    for yaml in ["", "\n# nothing yet\n", "automations: {}\n", "sources:\nautomations:\n"] {
        read(yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
    }
    let yaml = "
public_url: https://gate.example.com/
outgoing: { allow_private: [crm.internal:8443, 10.0.0.0/8] }
runner: { concurrency: 8 }
automations:
  Welcome Mail:
    ttl: 45m
    ttl_override: true
    retries: [3s]
    retention: 30d
    sla: 1h
    on_stale: hold
    on_mismatch: ignore
    loop_limit: { runs: 1, within: 1m }
    record: 'crm:{{ payload.id }}'
    steps:
      - { name: create, http: { method: put, url: 'https://{{ payload.host }}/x', json: { a: ['{{ payload.a }}', 1] } } }
      - { name: hand, forward: { url: env:URL } }
sources:
  hook: { provider: hmac, automation: ' welcome MAIL', secrets: [env:HOOK, env:URL], hmac: { header: X-S }, key: [id] }
";
    let config = read(yaml).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.public_url.as_deref(), Some("https://gate.example.com"));
    assert_eq!((config.sources.len(), config.automations.len(), config.concurrency), (1, 1, Some(8)));
    assert_eq!(config.sources["hook"].secrets.len(), 2);
    assert!(!format!("{config:?}").contains("hook-secret"));
}

#[tokio::test]
async fn finish_at_claim_remembers_the_first_claim_as_done() {
    let gate = Setup::alone("automations: { toast: { finish: at_claim } }").start().await;
    let first = gate.api.claim("toast", "t_1").await;
    assert_eq!((first.words().as_str(), first.processing_state.as_str()), ("run first", "done"));
    gate.api.claim("toast", "t_1").await.is("stop duplicate");
}
