//! The providers' own requests, as their documentation and libraries sign them.

use oncegate_core::time::Timestamp;
use serde_json::Value;

use crate::harness::{Receiver, Setup, Signed};

const SAMPLES: [(&str, &str); 10] = [
    ("typeform 01", include_str!("../../../../../testdata/webhooks/typeform/01_first.json")),
    ("typeform 02", include_str!("../../../../../testdata/webhooks/typeform/02_retry.json")),
    ("typeform 03", include_str!("../../../../../testdata/webhooks/typeform/03_tampered.json")),
    ("tally 01", include_str!("../../../../../testdata/webhooks/tally/01_first.json")),
    ("tally 02", include_str!("../../../../../testdata/webhooks/tally/02_retry.json")),
    ("github 00", include_str!("../../../../../testdata/webhooks/github/00_ping.json")),
    ("github 01", include_str!("../../../../../testdata/webhooks/github/01_first.json")),
    ("github 02", include_str!("../../../../../testdata/webhooks/github/02_retry_redelivery.json")),
    ("standard 01", include_str!("../../../../../testdata/webhooks/standard_webhooks/01_first.json")),
    ("standard 02", include_str!("../../../../../testdata/webhooks/standard_webhooks/02_retry.json")),
];

#[tokio::test]
async fn samples_of_each_provider_lead_to_one_effect_for_each_event() {
    let receiver = Receiver::start().await;
    let mut effects = 0;
    let mut gate = None;
    for (name, text) in SAMPLES {
        let sample: Value = serde_json::from_str(text).unwrap();
        let said = |member: &str| sample[member].as_str().unwrap().to_owned();
        if name.ends_with("01") || name.ends_with("00") {
            let source = said("url").rsplit('/').next().unwrap().to_owned();
            let yaml = format!(
                "
automations:
  welcome:
    steps: [{{ name: send, http: {{ url: '$RECEIVER/send' }}, repeat: by_key }}]
sources:
  {source}: {{ provider: {}, automation: welcome, secret: env:SECRET }}
",
                said("provider")
            );
            let now = Timestamp::from_secs(sample["verify"]["now_unix"].as_i64().unwrap());
            let setup = Setup::new(&yaml, &receiver).var("SECRET", &said("secret")).starts_at(now);
            gate = Some((source, setup.start().await));
        }
        let (source, gate) = gate.as_ref().unwrap();
        gate.clock.set_wall(Timestamp::from_secs(sample["verify"]["now_unix"].as_i64().unwrap()));
        let body = sample["body_text"].as_str().unwrap();
        let headers = sample["headers"].as_object().unwrap();
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap())).collect();
        let answer = gate.api.deliver(source, &Signed::with(&headers, body)).await;
        match (sample["verify"]["expected"].as_str().unwrap(), &sample["same_event_as"]) {
            ("valid", Value::Null) => {
                assert_eq!(answer.ok()["status"], "accepted", "{name}");
                effects += 1;
                receiver.got("/send", effects).await;
                let key = sample["suggested_keys"][0].as_str().unwrap();
                assert!(gate.api.find("welcome", key).await.is_some(), "{name}: {key}");
            }
            ("valid", _) => assert_eq!(answer.ok()["status"], "already accepted", "{name}"),
            ("handshake", _) => assert_eq!(answer.ok()["status"], "handshake", "{name}"),
            ("invalid_signature", _) => drop(answer.problem(401, "invalid_signature")),
            (verdict, _) => panic!("{name}: no rule for the verdict {verdict}"),
        }
    }
    assert_eq!((effects, receiver.requests().len()), (4, 4));
}
