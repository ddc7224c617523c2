//! Mistakes in `oncegate.yaml`: told with file, line, column, and how to mend them.

use std::collections::HashMap;
use std::path::Path;

use oncegate::config::{Config, ConfigError, parse};

use crate::harness::{Setup, Vars, mins};

pub(crate) fn read(yaml: &str) -> Result<Config, ConfigError> {
    let vars = [
        ("HOOK", "hook-secret"),
        ("BLANK", "  "),
        ("URL", "https://hooks.example.com/s3cret"),
        ("TYPO", "htps://s3cret.example"),
    ];
    let vars = Vars(vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>());
    parse(yaml, Path::new("conf/oncegate.yaml"), &vars)
}

/// Each file has one mistake; its place is marked with `^` right before it.
pub(crate) fn check(wrapped: impl Fn(&str) -> String, table: &[(&str, &str)]) {
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

pub(crate) fn indented(text: &str, by: usize) -> String {
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
            ("retrigger: { url: ^'ftp://a.example' }", "is no http or https URL"),
            ("retrigger: { url: ^'https://a.example/{{ payload.id }}' }", "a template is not filled in here"),
            ("retrigger: { url: ^env:TYPO }", "`env:TYPO` is no http or https URL"),
            (
                "retrigger: { url: 'https://a.example', headers: { X-Token: ^abc } }",
                "must not stand in this file",
            ),
            (
                "retrigger: { url: 'https://a.example', headers: { 'X Y': ^abc } }",
                "cannot be the name of a header",
            ),
            (
                "retrigger: { url: ^'https://a.example' }\nsteps: [{ name: a, http: { url: 'https://a.example' } }]",
                "declares `steps` and `retrigger`",
            ),
            ("retries: ^[1m, 2m, 3m, 4m]", "4 retries are declared; at most 3 are allowed"),
            ("retries: [1m, ^10]", "`10` has no unit"),
            ("retries: ^3", "this must be a list"),
            ("retries: ^[48h]", "retry delay of 2d is outside 0s to 1d"),
            ("retention: ^1h", "retention of 1h is outside 1 day to 10 years"),
            ("payload_retention: ^11000d", "payload_retention of 11000d is outside 0s to 10 years"),
            ("on_stale: ^retry", "`retry` is not known here; known are retry_once, hold"),
            ("on_mismatch: ^ignored", "did you mean `ignore`?"),
            ("finish: ^at-claim", "did you mean `at_claim`?"),
            ("loop_limit: ^{ runs: 0, within: 10m }", "loop_limit.runs must be at least 1"),
            ("loop_limit: ^{ runs: 5, within: 2d }", "loop_limit.within must be at most 24h"),
            ("loop_limit: { runs: ^-1, within: 10m }", "this must be a whole number"),
            ("loop_limit: { ^runs: 5 }", "`within` is missing here; add it"),
            ("record: ^'{{ payload.'", "record: unexpected end of input"),
            (
                "record: ^'{{ pyload.id }}'",
                "`pyload` is not known here; a record is named from `payload` alone",
            ),
            (
                "record: ^'crm:{{ steps.a.json.id }}'",
                "record: `steps` is not known yet when a record is named",
            ),
            ("record: ^{{ payload.id }}", "must stand in quotes: `\"{{ … }}\"`"),
            ("steps:\n  ^send:\n    http: { url: a }", "a list; begin each step with `- name:`"),
            ("steps:\n  ^name: send", "a list; begin each step with `- name:`"),
            ("^steps: send", "a list; begin each step with `- name:`"),
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
fn of_backups() {
    let places = [
        ("backup: { at: ^'3:00' }\n", "`3:00` is no time of day; write hours and minutes in UTC"),
        ("backup: { at: ^'24:00' }\n", "`24:00` is no time of day"),
        ("backup: { keep: ^0 }\n", "backup.keep must be at least 1; write `enabled: false`"),
        ("backup: { ^directry: /mnt }\n", "`directry` is not known here; did you mean `directory`?"),
    ];
    check(str::to_owned, &places);
    let config = read("backup: { at: '23:59', directory: copies, keep: 3, enabled: false }").unwrap();
    let directory = Some(Path::new("conf/copies").to_owned());
    let plan = oncegate::backups::Plan { enabled: false, directory, at: mins(23 * 60 + 59), keep: 3 };
    assert_eq!(config.backup, plan);
}

#[test]
fn of_a_step() {
    check(
        step,
        &[
            ("- name: ^send", "step `send`: says nothing to do; declare `http`, `forward`"),
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
            ("http: { url: 'https://a.example/', json: { a: [^'{{ a' ] } }", "json.a[0]: unexpected end"),
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
fn of_a_template() {
    let first = "- { name: put order, http: { url: 'https://a.example/' } }\n- { name: mail, http: { url: 'https://a.example/' } }\n";
    let third = |text: &str| {
        step(&format!(
            "{first}- name: send\n{}- {{ name: after, http: {{ url: '{URL}' }} }}",
            indented(text, 2)
        ))
    };
    let http = |text: &str| third(&format!("http:\n  url: https://a.example/\n{}", indented(text, 2)));
    check(
        http,
        &[
            (
                "body: ^'{{ pyload.id }}'",
                "body: `pyload` is not known here; did you mean `payload`? Known are payload, ",
            ),
            ("json:\n  a: 1\n  b:\n    - c: ^'{{ pyload.id }}'", "json.b[0].c: `pyload` is not known here"),
            (
                "json: { a: { b: ^\"{{ colour }}\" } }",
                "json.a.b: `colour` is not known here; known are payload, ",
            ),
            ("json: ^'{{ colour }}'", "json: `colour` is not known here"),
            ("body: ^'{{ payload.id | uper }}'", "there is no filter `uper`; did you mean `upper`?"),
            ("body: ^'{% if payload.a %}{{ payload.b|nix }}{% endif %}'", "there is no filter `nix`"),
            (
                "body: ^\"{{ payload.l | selectattr('a', 'eqq', 1) }}\"",
                "there is no test `eqq`; did you mean `eq`?",
            ),
            ("body: ^'{{ payload.a is definde }}'", "there is no test `definde`; did you mean `defined`?"),
            ("body: ^'{{ payload.a.upper() }}'", "no methods such as `upper()`; write a filter, `| upper`"),
            ("body: ^'{{ now() }}'", "`now` is not known here"),
            (
                "body: ^'{{ steps.nope.json.id }}'",
                "`steps.nope` names no earlier step; earlier ones are `steps['put order']`, `steps.mail`",
            ),
            ("body: ^'{{ steps.mal.json.id }}'", "did you mean `steps.mail`?"),
            ("body: ^'{{ steps.put.json.id }}'", "did you mean `steps['put order']`?"),
            ("body: ^\"{{ steps['put ordr'].json.id }}\"", "did you mean `steps['put order']`?"),
            (
                "body: ^'{{ steps.mail.body.id }}'",
                "a step's answer has no `body`; known are json, text, status",
            ),
            ("body: ^'{{ steps.after.json.id }}'", "`after` has not run yet here"),
            ("body: ^'{{ steps.send.json.id }}'", "`send` has not run yet here"),
            ("body: ^'{{ oncegate.done }}'", "`oncegate.done` is not known; known are done_url, "),
            ("body: ^'{{ oncegate.done_ulr }}'", "did you mean `done_url`?"),
            ("headers: { X-Id: ^'{{ pyload.id }}' }", "headers.X-Id: `pyload` is not known here"),
            ("json: ^{{ payload }}", "a value that begins with `{{` must stand in quotes"),
            ("json:\n  a: ^{{ payload.id }}\n  b: 1", "a value that begins with `{{` must stand in quotes"),
            ("json: { a: ^{{ payload.id }} }", "a value that begins with `{{` must stand in quotes"),
            ("body: ^{{ payload.id }} more", "a value that begins with `{{` must stand in quotes"),
            (
                "headers: { Authorization: ^Bearer abc123 }",
                "`Authorization` must not stand in this file; write `env:NAME`",
            ),
            ("headers: { X-Api-Key: ^s3cret }", "write `env:NAME`, e.g. `env:X_API_KEY`, or `file:PATH`"),
        ],
    );
    check(
        third,
        &[
            ("http: { url: ^'https://a.example/{{ pyload.id }}' }", "url: `pyload` is not known here"),
            ("http:\n  url: ^{{ payload.url }}", "a value that begins with `{{` must stand in quotes"),
            ("http: { url: ^env:TYPO }", "`env:TYPO` is no http or https URL"),
            (
                "forward: { url: 'https://a.example/', until: accepted, json: { a: ^'{{ pyload }}' } }",
                "json.a: `pyload`",
            ),
        ],
    );
    let alone = |text: &str| step(&format!("- name: send\n  http: {{ url: '{URL}', {text} }}"));
    check(
        alone,
        &[("body: ^'{{ steps.a.json }}'", "`steps.a` names no earlier step; there is none before this one")],
    );
    let fine = http(
        "headers: { Authorization: 'Bearer {{ steps.mail.json.token }}', X-Sort-Key: name, X-Token: env:HOOK }
json:
  a: \"{{ steps['put order'].json.id }} {{ steps.mail.text }} {{ steps | length }}\"
  b: \"{% for l in payload.lines %}{{ loop.index }}{{ l.a | default('x') }}{% endfor %}\"
  c: '{{ automation }} {{ attempt }} {{ idempotency_key }} {{ oncegate.done_url }}'
  d: '{% if payload.a is defined and payload.b is not none %}{% set x = payload.a %}{% endif %}{{ x }}'
  e: [1, -2, 1.5, true, null, 'plain', { f: ~ }]
",
    );
    let config = read(&fine).unwrap_or_else(|e| panic!("{e}\n{fine}"));
    let automation = config.default.automations.values().next().unwrap();
    let told = format!("{:?}", automation.flow);
    assert!(told.contains("Number(-2)") && told.contains("Number(1.5)") && told.contains("Null"), "{told}");
}

#[test]
fn a_file_that_is_not_there_is_told_with_the_way_out() {
    let told =
        oncegate::config::load(Path::new("no/such.yaml"), &Vars(HashMap::new())).unwrap_err().to_string();
    assert!(told.starts_with("cannot read the configuration no/such.yaml: No such file"), "{told}");
    assert!(told.ends_with("; name another with --config"), "{told}");
}

#[test]
fn of_a_source() {
    let hmac = "provider: hmac\nautomation: welcome\nsecret: env:HOOK\n";
    let tally = "provider: tally\nautomation: welcome\n";
    let after = |first: &str, rest: &str| format!("hook:\n{first}{rest}");
    check(
        source,
        &[
            ("hook:\nprovider: ^Typeform\nautomation: welcome", "did you mean `typeform`?"),
            ("hook:\nprovider: ^gihtub\nautomation: welcome", "did you mean `github`?"),
            (
                "hook:\nprovider: ^wufoo\nautomation: welcome",
                "no provider `wufoo`; known are typeform, tally",
            ),
            ("hook:\nprovider: tally\n^secret: env:HOOK", "`automation` is missing here; add it"),
            (
                &after(tally, "secret: env:HOOK\nenvironment: { field: livemode, is: ^[true] }"),
                "environment.is must be true",
            ),
            (
                &after(tally, "secret: env:HOOK\nenvironment: { field: livemode, is: ^null }"),
                "environment.is must be true",
            ),
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
            ("automations:\n^\twelcome: {}\n", "a tab; indent with blanks"),
            ("automations:\n  a:\n    ttl: 10m\n  ^\tsla: 1h\n", "a tab; indent with blanks"),
            (
                "automations:\n  a:\n    ttl: 10m\n    sla: 1h\n^\tretention: 90d\n",
                "a tab; indent with blanks",
            ),
            ("automations:\n  a:\n    ^ttl:10m\n", "a blank is missing after the colon: `ttl: 10m`"),
            ("automations:\n  a:\n    ^ttl:10m\n    sla: 1h\n", "after the colon: `ttl: 10m`"),
            ("automations:\n  a:\n    sla: 1h\n    ^ttl:10m\n", "after the colon: `ttl: 10m`"),
            ("sources:\n  a:\n    provider: tally\n    ^secret:s3cret\n", "after the colon: `secret: …`"),
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
    assert_eq!(
        (config.default.sources.len(), config.default.automations.len(), config.concurrency),
        (1, 1, Some(8))
    );
    assert_eq!(config.default.sources["hook"].trust.secrets.len(), 2);
    assert!(!format!("{config:?}").contains("hook-secret"));
}

#[tokio::test]
async fn finish_at_claim_remembers_the_first_claim_as_done() {
    let gate = Setup::alone("automations: { toast: { finish: at_claim } }").start().await;
    let first = gate.api.claim("toast", "t_1").await;
    assert_eq!((first.words().as_str(), first.processing_state.as_str()), ("run first", "done"));
    gate.api.claim("toast", "t_1").await.is("stop duplicate");
}

#[test]
fn of_workspaces_and_proxies() {
    let acme = |text: &str| format!("workspaces:\n  acme:\n{}", indented(text, 4));
    check(
        acme,
        &[
            ("automations: { welcome: { ttl: ^10 } }", "has no unit"),
            ("automations: { welcome: { ttl: ^2h } }", "workspace `acme`: automation `welcome`: ttl of 2h"),
            ("^colour: red", "`colour` is not known here"),
            (
                "sources: { hook: { provider: tally, automation: ^welcome, secret: env:HOOK } }",
                "workspace `acme`: the source `hook` sends to the automation `welcome`, which is not declared",
            ),
            ("automations: { a: {}, b: { was: [^a] } }", "an old name belongs to one automation"),
        ],
    );
    check(
        str::to_owned,
        &[
            ("workspaces: { ^Acme: {} }", "the workspace `Acme` must be 1 to 64 lower-case letters"),
            ("workspaces: { ^default: {} }", "the workspace `default` is the top of the file"),
            (
                "trusted_proxies: [127.0.0.1, ^nginx]",
                "`nginx` is not an address or a network; write e.g. 127.0.0.1",
            ),
            ("trusted_proxies: [^10.0.0.0/33]", "is not an address or a network"),
        ],
    );
    // What one declares is no concern of another.
    let two = "automations: { a: {}, b: {} }\nworkspaces: { acme: { automations: { b: { was: [a] } } } }";
    let config = read(two).unwrap();
    assert_eq!(config.default.automations.len(), 2);
    let [(name, declared)] = &config.workspaces[..] else { panic!("{:?}", config.workspaces) };
    assert_eq!((name.as_str(), declared.renamed.len()), ("acme", 1));
}
