//! Guards at the door of a source: mails that no person wrote, and senders that go on and on.

use serde_json::{Value, json};

use super::schedules::told;
use crate::harness::{Gate, MailServer, Setup, Signed, eventually, hex, hmac_sha256, mins, secs};

const GREET: &str = "
automations:
  greet:
    ttl: 10m
    steps:
      - { name: greet, email: { to: '{{ payload.from }}', subject: 'Ticket received', text: '{{ payload.subject }}' } }
sources:
";

async fn parked(gate: &Gate) -> Vec<Value> {
    let listed = gate.api.get("/v1/rejected?list=parked&limit=100").await.ok();
    listed["rejected"].as_array().unwrap().clone()
}

/// Waits until so many mails went out, and whatever else would have gone.
async fn sent(gate: &Gate, server: &MailServer, n: usize) {
    eventually(&format!("{n} mails"), async || (server.letters().len() >= n).then_some(())).await;
    eventually("nothing is left to run", async || {
        let open = gate.api.list("state=none").await.len() + gate.api.list("state=processing").await.len();
        (open == 0).then_some(())
    })
    .await;
    assert_eq!(server.letters().len(), n, "{:?}", server.letters());
}

#[tokio::test]
async fn c92_of_a_sender_that_goes_on_and_on_five_run_and_a_person_is_told_once() {
    const SOURCE: &str = "  orders: { provider: hmac, automation: greet, secret: env:ORDERS, \
        hmac: { header: X-Signature }, key: [id], sender: { field: from, as: email } }\n";
    let server = MailServer::start().await;
    let mut gate = Setup::alone(&format!("{}{GREET}{SOURCE}", server.yaml())).start().await;
    let message = async |gate: &Gate, id: &str, from: &str, subject: &str| {
        let said = gate.api.order(&json!({ "id": id, "from": from, "subject": subject })).await.ok();
        said["status"].as_str().unwrap().to_owned()
    };
    let partner = "support@partner.example";
    let mut subject = "Ticket 1".to_owned();
    for n in 0..20 {
        // Each has an id and a subject of its own, and no record; an address is no other one for being typed otherwise.
        let from = if n % 2 == 0 { partner } else { "Partner <Support@Partner.EXAMPLE>" };
        let status = message(&gate, &format!("m_{n}"), from, &subject).await;
        let expected = if n < 5 { "accepted" } else { "stored, not run: too many of its sender" };
        assert_eq!(status, expected, "m_{n}");
        subject = format!("Re: [#{}] {subject}", 901 + n);
        if n == 10 {
            assert_eq!(message(&gate, "other", "ann@example.org", "Help").await, "accepted");
            gate.restart().await;
        }
        gate.advance(secs(25)).await;
    }
    sent(&gate, &server, 6).await;
    assert_eq!(message(&gate, "m_0", partner, "Ticket 1").await, "already accepted", "a duplicate is one");
    let rows = parked(&gate).await;
    assert_eq!((rows.len(), gate.api.inbox().await["parked"]), (15, 15));
    assert!(rows.iter().all(|row| row["verdict"] == "sender"), "{rows:?}");
    let why = rows[14]["reason"].as_str().unwrap();
    assert_eq!(why, "more than 5 events of support@partner.example within 10 min");
    let (times, words) = told(&gate, "sender_limit").await.unwrap();
    assert_eq!(times, 1, "one alert");
    assert!(words.contains(partner) && words.contains("oncegate list --inbox parked"), "{words}");
    // Each node counts since its start.
    let mut counted = 0;
    for _ in gate.api.bases() {
        let metrics = gate.api.get("/metrics").await.ok();
        let line =
            metrics.as_str().unwrap().lines().find(|line| line.contains("{verdict=\"sender\"}")).unwrap();
        counted += line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    }
    assert_eq!(counted, 9);

    // A person runs one of them at once, and so lets the sender begin anew.
    assert_eq!(gate.api.release(&rows[0]["id"]).await.ok()["status"], "accepted");
    sent(&gate, &server, 7).await;
    assert_eq!(message(&gate, "anew", partner, "Another matter").await, "accepted");
    sent(&gate, &server, 8).await;
    assert_eq!(parked(&gate).await.len(), 14);
    // It gets less by itself.
    for n in 0..4 {
        message(&gate, &format!("again_{n}"), partner, "x").await;
    }
    assert_eq!(parked(&gate).await.len(), 15);
    sent(&gate, &server, 11).await;
    gate.advance(mins(11)).await;
    assert_eq!(message(&gate, "later", partner, "Another matter").await, "accepted");
    sent(&gate, &server, 12).await;
    assert_eq!(parked(&gate).await.len(), 15, "nothing that is set aside starts by itself");
}

/// A mail as it comes: its header fields, who wrote it, and the sender of its envelope.
struct Mail {
    name: &'static str,
    field: &'static str,
    from: &'static str,
    envelope: &'static str,
    /// What the reason names; nothing: a person wrote it.
    why: &'static str,
}

const MAILS: [Mail; 7] = [
    Mail {
        name: "normal",
        field: "X-Mailer: Pen",
        from: "Ann <ann@example.org>",
        envelope: "ann@example.org",
        why: "",
    },
    Mail {
        name: "out of office",
        field: "Auto-Submitted: auto-replied",
        from: "bob@example.org",
        envelope: "bob@example.org",
        why: "auto-submitted: auto-replied",
    },
    Mail {
        name: "bounce",
        field: "Content-Type: multipart/report; report-type=delivery-status;\r\n boundary=x",
        from: "mx@example.org",
        envelope: "mx@example.org",
        why: "content-type: multipart/report",
    },
    Mail {
        name: "bulk",
        field: "Precedence: bulk",
        from: "n@example.org",
        envelope: "n@example.org",
        why: "precedence: bulk",
    },
    Mail {
        name: "own",
        field: "X-Mailer: Gate",
        from: "The gate <Gate@EXAMPLE.com>",
        envelope: "gate@example.com",
        why: "gate@example.com, which is an address of our own",
    },
    Mail {
        name: "desk",
        field: "X-Mailer: Desk",
        from: "desk@acme.example",
        envelope: "desk@acme.example",
        why: "an address of our own",
    },
    Mail { name: "null", field: "X-Mailer: Mx", from: "x@example.org", envelope: "", why: "no return path" },
];

impl Mail {
    fn fields(&self) -> String {
        let id = self.name.replace(' ', "_");
        format!(
            "Received: from a.example\r\n\tby b.example\r\nMessage-ID: <{id}@example.org>\r\n{}\r\nSubject: Hi",
            self.field
        )
    }

    /// As SendGrid's Inbound Parse posts it (testdata/webhooks/sendgrid/06_inbound_parse.json).
    fn by_sendgrid(&self) -> Signed {
        let envelope = json!({ "to": ["in@parse.example.com"], "from": self.envelope }).to_string();
        let fields = self.fields();
        let parts = [
            ("headers", fields.as_str()),
            ("to", "in@parse.example.com"),
            ("from", self.from),
            ("subject", "Hi"),
            ("text", "Auto-Submitted: auto-replied"),
            ("envelope", &envelope),
        ];
        let part = |(name, value): (&str, &str)| {
            format!("--xYzZY\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body: String = parts.map(part).concat() + "--xYzZY--\r\n";
        let secret = "a long secret of one's own";
        Signed::with(
            &[("content-type", "multipart/form-data; boundary=xYzZY"), ("x-shared-secret", secret)],
            body,
        )
    }

    /// As a route of Mailgun posts it.
    fn by_mailgun(&self, now: u64) -> Signed {
        let unfolded = self.fields().replace("\r\n ", " ").replace("\r\n\t", " ");
        let pairs: Vec<Vec<&str>> = unfolded.lines().map(|line| line.splitn(2, ": ").collect()).collect();
        let (headers, ts) = (json!(pairs).to_string(), now.to_string());
        let token = hex(&hmac_sha256(b"token", self.name.as_bytes()));
        let signature = hex(&hmac_sha256(b"mailgun-key", format!("{ts}{token}").as_bytes()));
        let id = format!("<{}@example.org>", self.name);
        let body = crate::harness::query(&[
            ("recipient", "in@mg.example.com"),
            ("sender", self.envelope),
            ("from", self.from),
            ("subject", "Hi"),
            ("body-plain", "Auto-Submitted: auto-replied"),
            ("Message-Id", &id),
            ("message-headers", &headers),
            ("timestamp", &ts),
            ("token", &token),
            ("signature", &signature),
        ]);
        Signed::with(&[("content-type", "application/x-www-form-urlencoded")], body)
    }
}

#[tokio::test]
async fn c91_of_the_mails_that_come_in_only_what_a_person_wrote_is_acknowledged() {
    const SOURCES: &str = "
  sendgrid: { provider: sendgrid_inbound, automation: greet, secret: env:INBOUND, mail: { own: [desk@acme.example] } }
  mailgun: { provider: mailgun, automation: greet, secret: env:MAILGUN, key: [recipient, Message-Id],
    mail: { own: ['The desk <desk@acme.example>'] } }
";
    for source in ["sendgrid", "mailgun"] {
        let server = MailServer::start().await;
        let mut gate = Setup::alone(&format!("{}{GREET}{SOURCES}", server.yaml()))
            .var("INBOUND", "a long secret of one's own")
            .var("MAILGUN", "mailgun-key")
            .start()
            .await;
        let now = u64::try_from(gate.now().as_secs()).unwrap();
        let came = |mail: &Mail| match source {
            "sendgrid" => mail.by_sendgrid(),
            _ => mail.by_mailgun(now),
        };
        for mail in &MAILS {
            let said = gate.api.deliver(source, &came(mail)).await.ok();
            let expected = if mail.why.is_empty() { "accepted" } else { "stored, not run: machine mail" };
            assert_eq!(said["status"], expected, "{source}: {}", mail.name);
        }
        sent(&gate, &server, 1).await;
        let rows = parked(&gate).await;
        for (mail, row) in MAILS.iter().filter(|mail| !mail.why.is_empty()).zip(rows.iter().rev()) {
            assert_eq!(row["verdict"], "machine_mail", "{source}: {row}");
            assert!(row["reason"].as_str().unwrap().contains(mail.why), "{source} {}: {row}", mail.name);
        }
        assert_eq!(rows.len(), MAILS.len() - 1);
        let shown = gate.api.get(&format!("/v1/rejected/{}", rows[0]["id"])).await.ok();
        assert!(shown["body"].as_str().unwrap().contains("Hi"), "with its body: {shown}");

        // A person read it, and wants it to run.
        let out_of_office = rows.last().unwrap();
        assert_eq!(gate.api.release(&out_of_office["id"]).await.ok()["status"], "accepted");
        sent(&gate, &server, 2).await;
        gate.api.release(&out_of_office["id"]).await.problem(409, "nothing_to_do");
        for letter in server.letters() {
            assert_eq!(letter.header("auto-submitted").as_deref(), Some("auto-generated"));
        }
        // Switched off, machine mail is mail like any other.
        gate.restart_with(|yaml| yaml.replace("automation: greet,", "automation: greet, machine_mail: run,"))
            .await;
        let bulk = MAILS.iter().find(|mail| mail.name == "bulk").unwrap();
        assert_eq!(gate.api.deliver(source, &came(bulk)).await.ok()["status"], "accepted");
        sent(&gate, &server, 3).await;
    }
}

#[tokio::test]
async fn any_source_may_say_where_its_mails_say_who_wrote_them() {
    let source = "  orders: { provider: hmac, automation: greet, secret: env:ORDERS, hmac: { header: X-Signature }, \
        key: [id], mail: { headers: Headers, from: From, envelope_from: header:X-Return } }\n";
    let server = MailServer::start().await;
    let gate = Setup::alone(&format!("{}{GREET}{source}", server.yaml())).start().await;
    let mail = |id: &str, headers: Value| json!({ "id": id, "from": "ann@example.org", "subject": "Hi", "Headers": headers });
    for (id, headers, status) in [
        (
            "list",
            json!([{ "Name": "List-ID", "Value": "<news.example.org>" }]),
            "stored, not run: machine mail",
        ),
        ("ann", json!([{ "Name": "Subject", "Value": "Hi" }]), "accepted"),
        ("garbage", json!("{[(:::"), "accepted"),
    ] {
        assert_eq!(gate.api.order(&mail(id, headers)).await.ok()["status"], status, "{id}");
    }
    let bounce = Signed::order(&mail("bounce", Value::Null));
    let headers: Vec<(&str, &str)> = bounce.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let bounce = Signed::with(&[&headers[..], &[("x-return", "<>")]].concat(), bounce.body.clone());
    assert_eq!(gate.api.deliver("orders", &bounce).await.ok()["status"], "stored, not run: machine mail");
    sent(&gate, &server, 2).await;
}

#[tokio::test]
async fn c92_events_of_one_sender_that_come_at_once_do_not_pass_the_limit_together() {
    let source = "  orders: { provider: hmac, automation: greet, secret: env:ORDERS, hmac: { header: X-Signature }, \
        key: [id], sender: { field: from, as: email, runs: 3, within: 1h } }\n";
    let server = MailServer::start().await;
    let gate = Setup::alone(&format!("{}{GREET}{source}", server.yaml())).start().await;
    let mut at_once = tokio::task::JoinSet::new();
    for n in 0..16 {
        let api = gate.api.another();
        at_once.spawn(async move {
            let order = json!({ "id": format!("m_{n}"), "from": "ann@example.org", "subject": "Hi" });
            api.order(&order).await.ok()["status"].clone()
        });
    }
    let answers = at_once.join_all().await;
    assert_eq!(answers.iter().filter(|status| **status == "accepted").count(), 3, "{answers:?}");
    sent(&gate, &server, 3).await;
    assert_eq!(parked(&gate).await.len(), 13);
}
