//! The same life of an event for every provider that is known: accepted, repeated, forged, nameless, mended.

use serde_json::{Value, json};

use crate::harness::{Gate, Receiver, Setup, Signed, at, base64, eventually, hex, hmac_sha256, hours};

/// How one provider's senders behave.
struct Sender {
    provider: &'static str,
    secret: &'static str,
    /// More about the source, in YAML.
    more: &'static str,
    /// The key of the event `e1` of [`Sender::body`].
    key: &'static str,
    /// Fields that do not stand in the event, and some that do.
    wrong_key: &'static str,
    right_key: &'static str,
    /// The body of an event, with a name as the provider writes it and a note that is no part of the name.
    body: fn(name: &str, note: &str) -> Value,
    sign: fn(secret: &str, name: &str, body: Value) -> Signed,
}

const WHSEC: &str = "whsec_b25jZWdhdGUtdGVzdC1zZWNyZXQtMzItYnl0ZXMh";
const OTHER_WHSEC: &str = "whsec_YW5vdGhlci10ZXN0LXNlY3JldC0zMi1ieXRlcyE=";

fn body_hmac(secret: &str, body: &Value) -> Vec<u8> {
    hmac_sha256(secret.as_bytes(), body.to_string().as_bytes())
}

/// Where senders are told to send; some sign it.
const PUBLIC: &str = "https://gate.example.com";

const JSON: (&str, &str) = ("content-type", "application/json");

const SENDERS: [Sender; 7] = [
    Sender {
        provider: "typeform",
        secret: "tf-secret",
        more: "",
        key: "typeform:form_response:frm1:e1",
        wrong_key: "[form_response.calculated.id]",
        right_key: "[form_response.token]",
        body: |name, note| {
            let response = json!({ "form_id": "frm1", "token": name, "hidden": { "note": note } });
            json!({ "event_id": "x", "event_type": "form_response", "form_response": response })
        },
        sign: |secret, _, body| {
            let signature = format!("sha256={}", base64(&body_hmac(secret, &body)));
            Signed::with(&[JSON, ("Typeform-Signature", &signature)], body.to_string())
        },
    },
    Sender {
        provider: "tally",
        secret: "tally-secret",
        more: "",
        key: "tally:FORM_RESPONSE:frm1:e1",
        wrong_key: "[data.respondent]",
        right_key: "[data.submissionId]",
        body: |name, note| json!({ "eventType": "FORM_RESPONSE", "data": { "formId": "frm1", "submissionId": name, "note": note } }),
        sign: |secret, _, body| {
            let signature = base64(&body_hmac(secret, &body));
            Signed::with(&[JSON, ("Tally-Signature", &signature)], body.to_string())
        },
    },
    Sender {
        provider: "github",
        secret: "gh-secret",
        more: "",
        key: "github:e1",
        wrong_key: "[release.id]",
        right_key: "['header:x-github-delivery']",
        body: |_, note| json!({ "action": "opened", "note": note }),
        sign: |secret, name, body| {
            let signature = format!("sha256={}", hex(&body_hmac(secret, &body)));
            let headers = [
                JSON,
                ("X-Hub-Signature-256", &signature),
                ("X-GitHub-Event", "issues"),
                ("X-GitHub-Delivery", name),
            ];
            Signed::with(&headers, body.to_string())
        },
    },
    Sender {
        provider: "standard_webhooks",
        secret: WHSEC,
        more: "",
        key: "standard_webhooks:hook:e1",
        wrong_key: "[data.id]",
        right_key: "['header:webhook-id']",
        body: |_, note| json!({ "type": "contact.created", "data": { "note": note } }),
        sign: |secret, name, body| {
            let now = at(crate::harness::MORNING).as_secs();
            let key =
                data_encoding::BASE64.decode(secret.strip_prefix("whsec_").unwrap().as_bytes()).unwrap();
            let signature = base64(&hmac_sha256(&key, format!("{name}.{now}.{body}").as_bytes()));
            let (time, signature) = (now.to_string(), format!("v1,{signature}"));
            let headers =
                [JSON, ("webhook-id", name), ("webhook-timestamp", &time), ("webhook-signature", &signature)];
            Signed::with(&headers, body.to_string())
        },
    },
    Sender {
        provider: "hubspot",
        secret: "f1e2d3c4-0000-4000-8000-made0up00001",
        more: "",
        key: "hubspot:62:7:contact.creation:51:e1:1767607200000",
        wrong_key: "[objectName]",
        right_key: "[subscriptionType, eventId]",
        body: |name, note| {
            json!({ "portalId": 62, "subscriptionId": 7, "subscriptionType": "contact.creation", "objectId": 51,
                "eventId": name, "occurredAt": 1_767_607_200_000_u64, "propertyValue": note })
        },
        // In a list, and with its address.
        sign: |secret, _, body| {
            let (time, body) =
                ((at(crate::harness::MORNING).as_secs() * 1000).to_string(), json!([body]).to_string());
            let signed = format!("POST{PUBLIC}/in/hook{body}{time}");
            let signature = base64(&hmac_sha256(secret.as_bytes(), signed.as_bytes()));
            let headers = [
                JSON,
                ("X-HubSpot-Signature-v3", signature.as_str()),
                ("X-HubSpot-Request-Timestamp", &time),
            ];
            Signed::with(&headers, body)
        },
    },
    Sender {
        provider: "zapier",
        secret: "a-secret-that-is-long",
        more: "secret_in: header:X-Key",
        key: "zapier:hook:e1",
        wrong_key: "[row]",
        right_key: "['header:idempotency-key']",
        body: |_, note| json!({ "note": note }),
        // It signs nothing.
        sign: |secret, name, body| {
            Signed::with(&[JSON, ("X-Key", secret), ("Idempotency-Key", name)], body.to_string())
        },
    },
    Sender {
        provider: "hmac",
        secret: "hmac-secret",
        more: "hmac: { header: X-Shop-Signature, encoding: base64, prefix: 'v0=' }",
        key: "o7:e1",
        wrong_key: "[order.number]",
        right_key: "[shop, order.id]",
        body: |name, note| json!({ "shop": "o7", "order": { "id": name, "note": note } }),
        sign: |secret, _, body| {
            let signature = format!("v0={}", base64(&body_hmac(secret, &body)));
            Signed::with(&[JSON, ("x-shop-signature", &signature)], body.to_string())
        },
    },
];

impl Sender {
    fn event(&self, name: &str, note: &str) -> Signed {
        (self.sign)(self.secret, name, (self.body)(name, note))
    }

    /// As somebody signs it who does not know the secret.
    fn forged(&self, name: &str) -> Signed {
        (self.sign)(self.other_secret(), name, (self.body)(name, "forged"))
    }

    fn other_secret(&self) -> &'static str {
        if self.secret == WHSEC { OTHER_WHSEC } else { "another-secret-that-is-long" }
    }

    fn yaml(&self, key: &str) -> String {
        let lines: Vec<&str> = [self.more, key].into_iter().filter(|line| !line.is_empty()).collect();
        format!(
            "
public_url: {PUBLIC}
automations:
  welcome:
    steps:
      - {{ name: send, http: {{ url: '$RECEIVER/send' }}, repeat: by_key }}
sources:
  hook:
    provider: {}
    automation: welcome
    secret: env:HOOK
    {}
",
            self.provider,
            lines.join("\n    ")
        )
    }

    /// As it should be: `hmac` has no key of its own.
    fn declared(&self) -> String {
        match self.provider {
            "hmac" => self.yaml(&format!("key: {}", self.right_key)),
            _ => self.yaml(""),
        }
    }

    async fn gate(&self, yaml: &str, receiver: &Receiver) -> Gate {
        Setup::new(yaml, receiver).var("HOOK", self.secret).start().await
    }
}

async fn done(gate: &Gate, key: &str) -> Value {
    eventually(&format!("{key} is done"), async || {
        gate.api.find("welcome", key).await.filter(|claim| claim["processing_state"] == "done")
    })
    .await
}

#[tokio::test]
async fn an_event_is_accepted_and_has_one_effect_however_often_it_comes() {
    for sender in SENDERS {
        let receiver = Receiver::start().await;
        let gate = sender.gate(&sender.declared(), &receiver).await;
        let event = sender.event("e1", "hello");
        assert_eq!(gate.api.deliver("hook", &event).await.ok()["status"], "accepted", "{}", sender.provider);
        for _ in 0..2 {
            assert_eq!(gate.api.deliver("hook", &event).await.ok()["status"], "already accepted");
        }
        let claim = done(&gate, sender.key).await;
        assert_eq!(gate.api.deliver("hook", &event).await.ok()["status"], "already accepted");
        let [request] = receiver.requests().try_into().unwrap();
        match sender.provider {
            // Its part of the list.
            "hubspot" => assert_eq!(request.json(), (sender.body)("e1", "hello")),
            _ => assert_eq!(request.body, event.body, "{}: byte for byte", sender.provider),
        }
        assert_eq!(claim["payload"], (sender.body)("e1", "hello"));
        assert_eq!(claim["history"][0]["actor"], "source:hook");
        assert!(gate.api.inbox().await.values().all(|n| *n == 0), "nothing needs a person");
    }
}

#[tokio::test]
async fn a_forged_event_is_refused_kept_apart_and_starts_nothing() {
    for sender in SENDERS {
        let receiver = Receiver::start().await;
        let gate = sender.gate(&sender.declared(), &receiver).await;
        let forged = sender.forged("e1");
        gate.api.deliver("hook", &forged).await.problem(401, "invalid_signature");
        let [row] = gate.api.rejected().await.try_into().unwrap();
        assert_eq!((&row["verdict"], &row["source"]), (&json!("unverified"), &json!("hook")));
        assert!(row["reason"].as_str().is_some_and(|reason| reason.len() > 10), "{row}");
        let kept = gate.api.get(&format!("/v1/rejected/{}", row["id"])).await.ok();
        assert_eq!(kept["body"], String::from_utf8(forged.body).unwrap());
        assert_eq!(gate.api.inbox().await["rejected"], 1);
        gate.api.release(&row["id"]).await.problem(401, "invalid_signature");
        // A forged event does not take the genuine one's place.
        assert_eq!(gate.api.deliver("hook", &sender.event("e1", "")).await.ok()["status"], "accepted");
        done(&gate, sender.key).await;
        assert_eq!(receiver.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_event_without_identity_is_kept_and_runs_once_its_mapping_is_mended() {
    for sender in SENDERS {
        let receiver = Receiver::start().await;
        let yaml = sender.yaml(&format!("key: {}", sender.wrong_key));
        let mut gate = sender.gate(&yaml, &receiver).await;
        let said = gate.api.deliver("hook", &sender.event("e1", "hello")).await.ok();
        assert_eq!(said["status"], "stored, not run: no identity", "{}", sender.provider);
        let [row] = gate.api.rejected().await.try_into().unwrap();
        assert_eq!(row["verdict"], "rejected");
        let field = sender.wrong_key.trim_matches(['[', ']']);
        assert!(row["reason"].as_str().unwrap().contains(&format!("`{field}` is missing")), "{row}");
        gate.api.release(&row["id"]).await.problem(422, "invalid_field");

        gate.restart_with(|yaml| yaml.replace(sender.wrong_key, sender.right_key)).await;
        // Long after the signed time has left its tolerance.
        gate.advance_wall(hours(30));
        assert_eq!(gate.api.release(&row["id"]).await.ok()["status"], "accepted");
        receiver.got("/send", 1).await;
        assert_eq!(gate.api.rejected().await, Vec::<Value>::new());
        gate.api.release(&row["id"]).await.problem(409, "nothing_to_do");
        let audit = gate.api.last_act().await;
        assert_eq!((&audit["action"], &audit["actor"]), (&json!("release"), &json!("token:admin")));
        assert_eq!(audit["subject"], format!("delivery {}", row["id"]));
    }
}

#[tokio::test]
async fn an_unverified_event_runs_once_its_secret_is_mended_judged_as_of_its_arrival() {
    for sender in SENDERS {
        let receiver = Receiver::start().await;
        let mut gate =
            Setup::new(&sender.declared(), &receiver).var("HOOK", sender.other_secret()).start().await;
        gate.api.deliver("hook", &sender.event("e1", "hello")).await.problem(401, "invalid_signature");
        let [row] = gate.api.rejected().await.try_into().unwrap();
        gate.set_var("HOOK", sender.secret);
        gate.restart().await;
        gate.advance_wall(hours(30));
        assert_eq!(gate.api.release(&row["id"]).await.ok()["status"], "accepted", "{}", sender.provider);
        done(&gate, sender.key).await;
        assert_eq!(receiver.requests().len(), 1);
        assert_eq!(gate.api.inbox().await["rejected"], 0);
    }
}

#[tokio::test]
async fn another_payload_under_one_key_is_listed_and_does_not_run() {
    for sender in SENDERS {
        let receiver = Receiver::start().await;
        let gate = sender.gate(&sender.declared(), &receiver).await;
        gate.api.deliver("hook", &sender.event("e1", "hello")).await.ok();
        done(&gate, sender.key).await;
        let said = gate.api.deliver("hook", &sender.event("e1", "changed")).await.ok();
        assert_eq!(said["status"], "stored, not run: payload mismatch", "{}", sender.provider);
        assert_eq!(gate.api.keys_in("mismatch").await, [sender.key]);
        // What came can be read, to judge it.
        let [claim] = gate.api.list("inbox=mismatch").await.try_into().unwrap();
        let shown = gate.api.show(claim["claim_id"].as_str().unwrap()).await;
        let came =
            shown["deliveries"].as_array().unwrap().iter().find(|d| d["verdict"] == "mismatch").unwrap();
        let body = gate.api.get(&format!("/v1/rejected/{}", came["id"])).await.ok()["body"].clone();
        assert!(body.as_str().is_some_and(|body| !body.is_empty()), "{shown}");
        let claim = gate.api.find("welcome", sender.key).await.unwrap();
        assert_eq!(claim["payload"], (sender.body)("e1", "hello"), "the first one stays");
        assert_eq!(receiver.requests().len(), 1);
    }
}
