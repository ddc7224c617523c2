//! Automations that answer each other: only so many runs of one record, and then a person.

use serde_json::{Value, json};

use crate::harness::{Gate, MailServer, Receiver, Setup, eventually, mins, secs};

const SOURCE: &str = "
sources:
  orders: { provider: hmac, automation: greet, secret: env:ORDERS, hmac: { header: X-Signature }, key: [id] }
";

/// Waits until it has ended or is a person's.
async fn settled(gate: &Gate, key: &str) -> Value {
    eventually(&format!("{key} is done or parked"), async || {
        let claim = gate.api.find("greet", key).await?;
        (claim["processing_state"] == "done" || !claim["parked"].is_null()).then_some(claim)
    })
    .await
}

async fn message(gate: &Gate, id: &str, from: &str, subject: &str) -> Value {
    gate.api.order(&json!({ "id": id, "from": from, "subject": subject })).await.ok();
    settled(gate, id).await
}

#[tokio::test]
async fn c92_two_ticket_systems_that_greet_each_other_stop_after_five_mails() {
    let server = MailServer::start().await;
    let steps = "
automations:
  greet:
    ttl: 10m
    record: 'mail:{{ payload.from | email }}'
    steps:
      - { name: greet, email: { to: '{{ payload.from }}', subject: 'Ticket received', text: '{{ payload.subject }}' } }
";
    let gate = Setup::alone(&format!("{}{steps}{SOURCE}", server.yaml())).start().await;
    let mut subject = "Ticket 1".to_owned();
    let mut parked = Vec::new();
    for n in 0..20 {
        // Each has an id and a subject of its own; an address is no other one for being typed otherwise.
        let from = if n % 2 == 0 { "support@partner.example" } else { " Support@Partner.EXAMPLE" };
        let claim = message(&gate, &format!("m_{n}"), from, &subject).await;
        if claim["parked"] == "loop_suspected" {
            parked.push(claim["claim_id"].as_str().unwrap().to_owned());
        }
        subject = format!("Re: [#{}] {subject}", 901 + n);
        if n == 10 {
            message(&gate, "other", "ann@example.org", "Help").await;
        }
        gate.advance(secs(25)).await;
    }
    let to =
        |address: &str| server.letters().iter().filter(|letter| letter.to == [address.to_owned()]).count();
    assert_eq!(
        (to("support@partner.example") + to("Support@Partner.EXAMPLE"), to("ann@example.org")),
        (5, 1)
    );
    assert_eq!(parked.len(), 15);
    let listed = gate.api.get("/v1/claims?parked=loop_suspected").await.ok();
    assert_eq!(listed["claims"].as_array().unwrap().len(), 15, "{listed}");
    assert_eq!(listed["claims"][0]["record"], "mail:support@partner.example", "who it is: {listed}");
    let first = gate.api.show(&parked[0]).await;
    assert!(first["note"].as_str().unwrap_or_default().contains("mail:support@partner.example"), "{first}");

    // A person may run what waits, at once; the next one still stops.
    gate.api.run_now(&parked[0]).await.ok();
    eventually("what a person started is sent", async || (server.letters().len() == 7).then_some(())).await;
    let claim = message(&gate, "too early", "support@partner.example", "Another matter").await;
    assert_eq!(claim["parked"], "loop_suspected", "{claim}");
    // It is over: the next one is greeted by itself.
    gate.advance(mins(15)).await;
    let claim = message(&gate, "later", "support@partner.example", "Another matter").await;
    assert_eq!(claim["processing_state"], "done", "{claim}");
    gate.advance(mins(60)).await;
    assert_eq!(server.letters().len(), 8, "nothing that is parked starts by itself");
}

#[tokio::test]
async fn c93_a_workflow_that_is_started_by_its_own_update_stops_after_five_runs() {
    let receiver = Receiver::start().await;
    let steps = "
automations:
  greet:
    ttl: 10m
    record: 'contact:{{ payload.contact }}'
    steps:
      - { name: score, http: { url: '$RECEIVER/score', json: { n: '{{ payload.id }}' } }, repeat: by_key }
";
    let gate = Setup::new(&format!("{steps}{SOURCE}"), &receiver).start().await;
    // One edit of a person; then each write of the step comes back as a new event of the same contact.
    let (mut written, mut sent) = (0, 0);
    gate.api.order(&json!({ "id": "e_0", "contact": 900 })).await.ok();
    loop {
        let claim = settled(&gate, &format!("e_{sent}")).await;
        if receiver.to("/score").len() == written {
            assert_eq!(claim["parked"], "loop_suspected", "{claim}");
            break;
        }
        written = receiver.to("/score").len();
        assert!(written <= 5, "it goes round without end");
        sent += 1;
        gate.api.order(&json!({ "id": format!("e_{sent}"), "contact": 900 })).await.ok();
    }
    assert_eq!(written, 5);
    // Whose contact is another one's is not held up.
    gate.api.order(&json!({ "id": "x_0", "contact": 901 })).await.ok();
    assert_eq!(settled(&gate, "x_0").await["processing_state"], "done");
}
