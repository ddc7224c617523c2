//! What a source may declare about its sender, a step, a target; and what is told where it may not.

use oncegate_core::policy::LoopLimit;
use oncegate_core::webhook::{Batch, MailPlaces, Provider, SecretPlace};

use crate::config::{check, indented, read};
use crate::harness::mins;

const AUTOMATION: &str =
    "automations: { a: { steps: [{ name: s, http: { url: 'https://x.example.com' } }] } }\n";

fn source(members: &str) -> String {
    format!("{AUTOMATION}sources: {{ forms: {{ automation: a, {members} }} }}\n")
}

#[test]
fn of_senders_that_sign_nothing() {
    check(
        source,
        &[
            ("provider: jotform, secret: ^env:HOOK", "has fewer than 16 characters; jotform signs nothing"),
            ("provider: zapier, secrets: [env:URL, ^env:HOOK]", "`openssl rand -hex 24`"),
            ("provider: make, secret: env:URL, secret_in: ^body", "`body` is no place for a secret"),
            (
                "provider: make, secret: env:URL, secret_in: ^'query:'",
                "write `query:NAME`, `header:NAME` or `path`",
            ),
            ("provider: typeform, secret: env:HOOK, secret_in: ^path", "only for senders that sign nothing"),
        ],
    );
    for name in Provider::NAMES {
        let provider = Provider::from_name(name, None);
        if provider.is_ok_and(|provider| !provider.signs()) {
            let told = read(&source(&format!("provider: {name}"))).unwrap_err().to_string();
            assert!(told.contains("with a long one of your own") && told.contains("signs nothing"), "{told}");
        }
    }
    let config = read(&source("provider: jotform, secret: env:URL, secret_in: 'query:who'")).unwrap();
    let trust = &config.default.sources["forms"].trust;
    assert_eq!(trust.secret_in, Some(SecretPlace::Query("who".to_owned())));
}

#[test]
fn of_guards_at_its_door() {
    let mails = "provider: sendgrid_inbound, secret: env:URL";
    let typeform = "provider: typeform, secret: env:HOOK";
    check(
        source,
        &[
            (&format!("{mails}, sender: ^{{ as: email }}"), "`field` is missing"),
            (&format!("{mails}, sender: ^{{ field: from, as: mail }}"), "there is no rule `mail`"),
            (&format!("{mails}, sender: ^{{ field: from, rnus: 5 }}"), "rnus"),
            (&format!("{mails}, sender: ^{{ field: from, optional: true }}"), "remove `optional`"),
            (&format!("{mails}, sender: ^{{ field: from, runs: 0 }}"), "sender.runs must be 1 to 1000"),
            (&format!("{mails}, sender: ^{{ field: from, runs: 1001 }}"), "sender.runs must be 1 to 1000"),
            (&format!("{mails}, sender: ^{{ field: from, within: 0s }}"), "sender.within must be 1s to 24h"),
            (&format!("{mails}, sender: ^{{ field: from, within: 25h }}"), "sender.within must be 1s to 24h"),
            (&format!("{mails}, sender: ^from"), "must be names with values"),
            (
                &format!("{mails}, mail: {{ own: [^support] }}"),
                "mail.own: `support` is not one e-mail address",
            ),
            (&format!("{typeform}, machine_mail: ^park"), "does not say where its mails' headers stand"),
            (&format!("{typeform}, mail: ^{{ own: [a@b.example] }}"), "mail says nowhere what its mails are"),
        ],
    );
    let declared = |members: &str| {
        let yaml = source(members) + "smtp: { host: mx.example.com, from: 'The desk <desk@acme.example>' }\n";
        read(&yaml).unwrap().default.sources.remove("forms").unwrap()
    };
    let forms = declared(typeform);
    assert!(forms.sender.is_none() && forms.machine_mail.is_none());
    let sender = declared(&format!("{typeform}, sender: {{ field: email, as: email }}")).sender.unwrap();
    assert_eq!(sender.limit, LoopLimit { runs: 5, within: mins(10) });
    let guard =
        declared(&format!("{mails}, mail: {{ from: sender, own: [a@b.example] }}")).machine_mail.unwrap();
    assert_eq!(guard.own, ["The desk <desk@acme.example>", "a@b.example"]);
    let at = |path: &str| Some(path.parse().unwrap());
    let places = MailPlaces { headers: at("headers"), from: at("sender"), envelope_from: at("envelope") };
    assert_eq!(guard.places, places, "what is not said is as the provider has it");
    assert!(declared(&format!("{mails}, machine_mail: run")).machine_mail.is_none());
}

#[test]
fn of_particular_providers() {
    check(
        source,
        &[
            (
                "provider: ^hubspot, secret: env:HOOK",
                "hubspot signs the address it sends to, so `public_url`",
            ),
            ("provider: ^hubspot_workflow, secret: env:HOOK", "`public_url` must be set"),
            ("provider: ^twilio, secret: env:HOOK", "`public_url` must be set"),
            ("provider: sendgrid, secret: ^env:HOOK", "it is not the public key that SendGrid shows"),
            (
                "provider: stripe, secret: env:HOOK, verify_token: ^env:HOOK",
                "`verify_token` is only for meta",
            ),
            ("provider: meta, secret: env:HOOK, verify_token: ^s3cret", "must not stand in this file"),
            ("provider: salesforce, secret: env:URL, organization: ^00D1", "an id of 15 or 18 characters"),
            ("provider: stripe, secret: env:HOOK, organization: ^00D000000000001", "only for salesforce"),
            (
                "provider: mailgun, secret: env:HOOK, repeat: ^{ fields: [a], within: 1m }",
                "a token is good for one event",
            ),
        ],
    );
    let told = read(&source("provider: meta, secret: env:HOOK")).unwrap_err().to_string();
    assert!(told.contains("add `verify_token: env:NAME`"), "{told}");
    let told = read(&source("provider: hubspt, secret: env:HOOK")).unwrap_err().to_string();
    assert!(told.contains("did you mean `hubspot`?"), "{told}");
    for (more, members) in [
        ("public_url: https://gate.example.com\n", "provider: hubspot, secret: env:HOOK"),
        ("", "provider: meta, secret: env:HOOK, verify_token: env:HOOK"),
        ("", "provider: salesforce, secret: env:URL, organization: 00D000000000001AAA"),
    ] {
        read(&format!("{more}{}", source(members))).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn of_lists_of_events() {
    let hmac =
        |more: &str| source(&format!("provider: hmac, secret: env:HOOK, hmac: {{ header: X-S }}, {more}"));
    check(
        source,
        &[
            ("provider: zapier, secret: env:URL, batch: ^true", "a list of events needs `key`"),
            ("provider: zapier, secret: env:URL, batch: ^data.items", "a list of events needs `key`"),
        ],
    );
    for (batch, meant) in [
        ("true", Some(Batch::Body)),
        ("data.items", Some(Batch::At("data.items".parse().unwrap()))),
        ("false", None),
    ] {
        let config = read(&hmac(&format!("key: [id], batch: {batch}"))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.default.sources["forms"].rules.batch, meant);
    }
    read(&hmac("key: [id], batch: 'a..b'")).unwrap_err();
}

#[test]
fn of_conditions_waits_and_messages() {
    let step =
        |members: &str| format!("automations: {{ a: {{ sla: 2h, steps: [{{ name: s, {members} }}] }} }}\n");
    check(
        step,
        &[
            (
                "when: ^'payload.x', http: { url: 'https://x.example.com' }",
                "`payload.x` is not one expression",
            ),
            ("when: ^'{{ pyload.x }}', http: { url: 'https://x.example.com' }", "did you mean `payload`?"),
            ("when: ^'{{ payload.x', http: { url: 'https://x.example.com' }", "is not one expression"),
            ("when: ^'a {{ payload.x }}', http: { url: 'https://x.example.com' }", "is not one expression"),
            ("wait: ^10", "`10m`, or `until` with an instant"),
            ("wait: ^'10'", "has no unit"),
            ("wait: ^0s", "wait must be at least 1s"),
            ("wait: ^{ until: '{{ pyload.at }}' }", "wait.until: `pyload` is not known here"),
            ("slack: { url: env:URL, text: ^'  ' }", "the text is blank"),
            ("review: { ask: ^'  ' }", "the text is blank"),
            (
                "for_each: ^payload.items, http: { url: 'https://x.example.com' }",
                "for_each: \"{{ payload.items }}\"",
            ),
            (
                "for_each: ^'{{ item.x }}', http: { url: 'https://x.example.com' }",
                "only in a step with `for_each`",
            ),
            ("http: { url: ^'https://x.example.com/{{ item.id }}' }", "only in a step with `for_each`"),
            (
                "http: { url: 'https://x.example.com', json: ^'{{ response.json }}' }",
                "`response` is not known here",
            ),
            (
                "http: { url: 'https://x.example.com' }, lookup: { url: 'https://x.example.com', found: ^yes }",
                "found: \"{{ response.json.total > 0 }}\"",
            ),
            (
                "http: { url: 'https://x.example.com' }, lookup: { url: 'https://x.example.com', found: ^'{{ response.jsn }}' }",
                "did you mean `json`?",
            ),
            (
                "http: { url: 'https://x.example.com' }, lookup: { url: 'https://x.example.com', found: '{{ true }}', settle: ^2h }",
                "lookup.settle must be at most 1h",
            ),
            ("review: { ask: ^'{{ pyload.x }}?' }", "review.ask: `pyload` is not known here"),
            ("teams: { url: env:URL, text: ^'{{ paylod.x }}' }", "did you mean `payload`?"),
            ("slack: { url: ^env:TYPO, text: x }", "is no http or https URL"),
        ],
    );
    for (members, told) in [
        ("wait: 2h", "the steps wait 2h in all, and the automation's `sla` is 2h"),
        ("wait: 1h, repeat: natural", "sends nothing, so it has no `repeat`"),
        ("review: { ask: x }, timeout: 10s", "sends nothing, so it has no `repeat`"),
        ("review: {}", "`ask` is missing here"),
        ("wait: 1h, for_each: '{{ payload.x }}'", "are done once"),
        ("forward: { url: env:URL }, for_each: '{{ payload.x }}'", "are done once"),
        (
            "wait: 1h, lookup: { url: 'https://x.example.com', found: '{{ true }}' }",
            "lookup finds what an `http` step did",
        ),
        ("wait: 1h, slack: { url: env:URL, text: x }", "declares `slack` and `wait`; make two steps of it"),
        ("when: '{{ true }}'", "says nothing to do"),
    ] {
        let refused = read(&step(members)).unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
    for members in [
        "wait: 119m",
        "wait: { until: '{{ payload.at }}' }",
        "slack: { url: env:URL, text: 'Hi {{ payload.name }}' }, when: '{{ payload.name }}'",
    ] {
        read(&step(members)).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn of_mails() {
    const SMTP: &str = "smtp: { host: smtp.example.com, from: gate@example.com }\n";
    let step = |members: &str| {
        format!("{SMTP}automations: {{ a: {{ steps: [{{ name: s, email: {{ {members} }} }}] }} }}\n")
    };
    check(
        step,
        &[
            ("to: ^ann, subject: x, text: x", "to: `ann` is not one e-mail address"),
            ("to: ^'a@example.com, b@example.com', subject: x, text: x", "is not one e-mail address"),
            ("to: ^[], subject: x, text: x", "must name 1 to 50 addresses"),
            ("to: ^7, subject: x, text: x", "an address, or a list of them"),
            ("to: ^'{{ pyload.x }}', subject: x, text: x", "did you mean `payload`?"),
            ("to: a@example.com, subject: ^' ', text: x", "`subject` is blank"),
            ("to: a@example.com, subject: x, text: x, from: ^nobody", "from: `nobody` is not one"),
            ("to: a@example.com, subject: x, text: ^'{{ steps.z }}'", "names no earlier step"),
        ],
    );
    let server = |members: &str| format!("smtp: {{ {members} }}\n");
    check(
        server,
        &[
            ("host: ^'smtp.example.com:587', from: a@example.com", "is no name of a server"),
            ("host: smtp.example.com, from: ^a", "is not one e-mail address"),
            ("host: s.example.com, from: a@example.com, username: ^ann", "belong together"),
            (
                "host: s.example.com, from: a@example.com, username: ann, password: ^secret",
                "must not stand in this file",
            ),
            (
                "host: s.example.com, from: a@example.com, security: none, username: ann, password: ^env:HOOK",
                "in the clear",
            ),
        ],
    );
    let alone = step("to: a@example.com, subject: x, text: x").replace(SMTP, "");
    assert!(read(&alone).unwrap_err().to_string().contains("mails need a server: add `smtp:"));
    let whole = step("to: ['a@example.com', '{{ payload.email }}'], subject: x, text: x, html: <p>");
    let config = read(&whole).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.mail.unwrap().smtp.port, 587);
}

#[test]
fn of_targets() {
    let target = |text: &str| format!("targets:\n  api.example.com:\n{}", indented(text, 4));
    check(
        target,
        &[
            ("rate: ^100", "`100` is no rate; write calls and a time, e.g. `100/10s`"),
            ("rate: ^100/10", "`100/10` is no rate"),
            ("rate: ^0/10s", "a rate is of 1 to 100000 calls"),
            ("rate: ^1/2d", "a time from 1s to 1d"),
            ("concurrency: ^0", "concurrency must be at least 1"),
            ("concurrency: ^-1", "this must be a whole number"),
            ("^concurency: 1", "did you mean `concurrency`?"),
            ("breaker: { failures: ^0 }", "breaker.failures must be at least 1"),
            ("breaker: { pause: ^0s }", "breaker.pause of 0s is outside 1s to 1h"),
            ("breaker: { pause: ^10 }", "`10` has no unit"),
            ("breaker: { pause_max: ^2h }", "breaker.pause_max of 2h is outside 1s to 1h"),
            ("breaker: { pause: 1m, pause_max: ^30s }", "shorter than the first pause of 1m; raise it"),
            ("breaker: ^off", "this must be"),
        ],
    );
    check(
        str::to_owned,
        &[
            (
                "targets: { ^'https://api.example.com': {} }\n",
                "is no target; write its host as the URL of a step has it",
            ),
            ("targets: { ^'*.example.com': {} }\n", "is no target"),
            ("targets:\n  api.example.com: {}\n  ^API.example.com: {}\n", "declared twice, spelt otherwise"),
            (
                "workspaces: { acme: { targets: { api.example.com: { rate: ^1 } } } }\n",
                "workspace `acme`: `1` is no rate",
            ),
        ],
    );
    let config = read("targets: { smtp: { rate: 60/1m }, 'h:8443': { breaker: { pause: 10m } } }").unwrap();
    assert_eq!(config.default.targets.len(), 2);
    let breaker = config.default.targets[&oncegate_connect::TargetName::parse("h:8443").unwrap()].breaker;
    assert_eq!((breaker.pause, breaker.pause_max), (mins(10), mins(10)), "a longer pause is no mistake");
}

#[test]
fn of_schedules() {
    let schedule = |members: &str| source(&format!("schedule: {{ {members} }}"));
    check(
        schedule,
        &[
            ("at: ^'1:30', zone: UTC", "`1:30` is no time of day"),
            ("at: ^['01:30', '24:00'], zone: UTC", "`24:00` is no time of day"),
            ("at: ^[], zone: UTC", "`at` is empty"),
            ("at: ^'01:30'", "`at` needs `zone`: whose clocks are meant"),
            ("at: ^'01:30', every: 1h", "both `at` and `every` say when"),
            ("at: '01:30', zone: ^America/NewYork", "did you mean `America/New_York`?"),
            ("at: '01:30', zone: ^EST", "`EST` names no place"),
            ("at: '01:30', zone: UTC, days: ^[mon, someday]", "`someday` is no day"),
            ("at: '01:30', zone: UTC, days: ^[]", "`days` is empty, so it would never run"),
            ("at: '01:30', zone: UTC, dates: ^[1, 32]", "`32` is no day of a month"),
            ("at: '01:30', zone: UTC, days: ^mon, dates: 1", "both `days` and `dates`"),
            ("at: '01:30', zone: UTC, ^day: mon", "did you mean `days`?"),
            ("at: '01:30', zone: UTC, missed: ^sometimes", "is not known here; known are run, skip"),
            ("every: ^7m", "fits into it a whole number of times, from 1m to 12h"),
            ("every: ^30s", "from 1m to 12h"),
            ("every: ^1d", "for once a day write `at`"),
            ("every: 1h, zone: ^UTC", "`every` counts from midnight UTC"),
            ("every: 1h, dates: ^1", "`every` counts from midnight UTC"),
        ],
    );
    let whole = |whole: &str| format!("{AUTOMATION}sources:\n  {whole}\n");
    check(
        whole,
        &[
            ("nightly: { automation: a, schedule: ^{ missed: skip } }", "a schedule needs `at`"),
            ("^nightly: { automation: a }", "needs `provider`, which says who sends to it, `schedule`"),
            (
                "^nightly: { automation: a, provider: tally, schedule: { every: 1h } }",
                "`nightly` has a `schedule`, so nobody sends to it; remove `provider`",
            ),
            ("^nightly: { automation: a, secret: env:HOOK, schedule: { every: 1h } }", "remove `secret`"),
            ("nightly: { automation: ^b, schedule: { every: 1h } }", "which is not declared"),
        ],
    );
    let record = |template: &str| {
        format!(
            "{}sources: {{ s: {{ automation: a, schedule: {{ every: 1h }} }} }}\n",
            AUTOMATION.replace("steps", &format!("record: '{template}', steps"))
        )
    };
    let told = read(&record("crm:{{ payload.email }}")).unwrap_err().to_string();
    assert!(told.contains("cannot run by the clock") && told.contains("payload.email"), "{told}");
    for fine in [
        record("sync:{{ payload.source }}"),
        schedule("at: 01:30, zone: utc"),
        schedule("at: '01:30', zone: UTC, dates: [1, last]"),
    ] {
        let config = read(&fine).unwrap_or_else(|e| panic!("{e}\n{fine}"));
        assert_eq!((config.default.schedules.len(), config.default.sources.len()), (1, 0));
    }
}

#[test]
fn of_polls() {
    const URL: &str = "https://crm.example.com/contacts?since={{ cursor }}";
    let poll = |members: &str| {
        source(&format!("key: [id], poll: {{ url: '{URL}', cursor: updated_at, {members} }}"))
    };
    check(
        poll,
        &[
            ("every: ^5s", "poll.every must be 10s to 24h"),
            ("every: ^5", "`5` has no unit"),
            ("every: 1m, overlap: ^0s", "poll.overlap must be 1s to 24h"),
            ("every: 1m, overlap: ^2d", "poll.overlap must be 1s to 24h"),
            ("every: 1m, timeout: ^10m", "poll.timeout must be 1s to 5m"),
            ("every: 1m, form: ^iso", "is not known here; known are timestamp, seconds"),
            ("every: 1m, order: ^descending", "did you mean `ascending`? Known are any, ascending"),
            (
                "every: 1m, start: ^yesterday",
                "`yesterday` is no start; write `now`, or a date and time with its zone",
            ),
            ("every: 1m, start: ^'2026-01-05T10:00:00'", "with its zone"),
            ("every: 1m, form: number, start: ^now", "nobody knows which number is `now`"),
            (
                "every: 1m, form: number, start: 1, overlap: ^5s",
                "a cursor that is a number has no time to read back by",
            ),
            ("every: 1m, next: ^{ token: next, query: '' }", "next.query is blank"),
            ("every: 1m, ^item: results", "did you mean `items`?"),
            (
                "every: 1m, headers: { Authorization: ^Bearer 1234 }",
                "must not stand in this file; write `env:NAME`",
            ),
            ("every: 1m, headers: { X-Since: ^'{{ cursor }}' }", "a template is not filled in here"),
        ],
    );
    let whole = |whole: &str| format!("{AUTOMATION}sources:\n  {whole}\n");
    let with = |url: &str| {
        format!("s: {{ automation: a, key: [id], poll: {{ url: {url}, every: 1m, cursor: at }} }}")
    };
    check(
        whole,
        &[
            (
                &with("^'https://x.example.com/?a={{ cursr }}'"),
                "`cursr` is not known here; the url of a poll",
            ),
            (&with("^'https://x.example.com/?a={{ payload.id }}'"), "filled in with `cursor` alone"),
            (&with("^'https://x.example.com/?a={{ cursor | nope }}'"), "there is no filter `nope`"),
            (&with("^'https:///?a={{ cursor }}'"), "names no host"),
            (&with("^'ftp://x.example.com/{{ cursor }}'"), "is no http or https URL"),
            (
                "^s: { automation: a, poll: { url: 'https://x.example.com', every: 1m, cursor: at } }",
                "the source `s` needs `key`",
            ),
            (
                "^s: { automation: a, key: [id], provider: tally, poll: { url: 'https://x.example.com', every: 1m, cursor: at } }",
                "`s` has a `poll`, so nobody sends to it; remove `provider`",
            ),
            (
                "^s: { automation: a, key: [id], batch: true, poll: { url: 'https://x.example.com', every: 1m, cursor: at } }",
                "remove `batch`",
            ),
            (
                "^s: { automation: a, schedule: { every: 1h }, poll: { url: 'https://x.example.com', every: 1m, cursor: at } }",
                "remove `poll`",
            ),
            (
                "s: { automation: a, key: ['header:x-id'], poll: { url: ^'https://x.example.com', every: 1m, cursor: at } }",
                "`header:x-id` stands in a header, and the items of a poll have none",
            ),
            (
                "s: { automation: a, key: [id], poll: { url: 'https://x.example.com', every: 1m, form: number, cursor: ^id } }",
                "nobody knows which number is `now`",
            ),
            (
                "s: { automation: a, key: [id], poll: { url: 'https://x.example.com', ^every: 1m } }",
                "`cursor` is missing here",
            ),
        ],
    );
    for fine in [
        poll("every: 1m"),
        poll(
            "every: 24h, overlap: 24h, timeout: 5m, items: data.items, next: { token: paging.next, query: after }",
        ),
        poll(
            "every: 10s, form: milliseconds, start: 2026-01-05T10:00:00Z, order: ascending, next: links.next",
        ),
        poll("every: 1m, form: number, start: 0, headers: { Authorization: env:HOOK, X-Version: '3' }"),
    ] {
        let config = read(&fine).unwrap_or_else(|e| panic!("{e}\n{fine}"));
        assert_eq!((config.default.polls.len(), config.default.sources.len()), (1, 0));
    }
}
