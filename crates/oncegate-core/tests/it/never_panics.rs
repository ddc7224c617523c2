//! Whatever bytes arrive, they are judged; nothing panics.

use oncegate_core::identity::KeyField;
use oncegate_core::key::StoreSecret;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{
    Algorithm, Encoding, EventRules, Headers, HmacScheme, Kept, Provider, Request, Trust,
};
use proptest::prelude::*;

fn providers() -> Vec<Provider> {
    let mut all: Vec<_> =
        Provider::NAMES.iter().filter_map(|name| Provider::from_name(name, None).ok()).collect();
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        for (encoding, prefix) in [(Encoding::Hex, "sha256="), (Encoding::Base64, "")] {
            all.push(Provider::Hmac(HmacScheme::new("X-Signature", algorithm, encoding, prefix).unwrap()));
        }
    }
    all
}

fn header_name() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "Content-Type",
        "Typeform-Signature",
        "Tally-Signature",
        "X-Hub-Signature-256",
        "X-GitHub-Event",
        "X-GitHub-Delivery",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "svix-id",
        "svix-timestamp",
        "svix-signature",
        "X-Signature",
        "X-Slack-Request-Timestamp",
        "X-Slack-Signature",
        "X-HubSpot-Signature",
        "X-HubSpot-Signature-Version",
        "X-HubSpot-Signature-v3",
        "X-HubSpot-Request-Timestamp",
        "X-Twilio-Signature",
        "X-Twilio-Email-Event-Webhook-Signature",
        "X-Twilio-Email-Event-Webhook-Timestamp",
        "X-WC-Webhook-Source",
        "X-WC-Webhook-Topic",
        "Authorization",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

fn header_value() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "application/x-www-form-urlencoded",
        "sha256=00",
        "sha256=",
        "v1,",
        "v1,AA==",
        "v1a,AA== v1,AA==",
        "v1,v1,v1",
        "0",
        "18446744073709551616",
        "-1",
        "ping",
        "v2",
        "multipart/form-data; boundary=b",
        "text/xml",
        "Bearer x",
        "Basic eDp5",
    ]);
    prop_oneof![
        known.prop_map(|text| text.as_bytes().to_vec()),
        "[ -~é]{0,80}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(any::<u8>(), 5000..5001),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        r#"[\[\]{}":,0-9a-z.e\\ -]{0,60}"#.prop_map(String::into_bytes),
        r#"\{"(zen|type|id|event_type|payload)":("[^"\\]{0,8}"|[0-9]{1,30}|null|\[1\])\}"#
            .prop_map(String::into_bytes),
        "(payload|id|a|webhook_id)=[%0-9a-f&=+{}]{0,40}".prop_map(String::into_bytes),
        "(--b\r\n|content-disposition: form-data; name=a|\r\n|--b--|x|:){0,12}".prop_map(String::into_bytes),
        "(<a>|</a>|<a/>|&amp;|&x;|<!DOCTYPE a>|<!\\[CDATA\\[|\\]\\]>|<!--|-->|<\\?xml|\\?>| a='|'|x){0,12}"
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn arbitrary_requests_never_panic_and_are_never_believed(
        fields in prop::collection::vec((header_name(), header_value()), 0..12),
        body in body(),
        secret in prop::collection::vec(any::<u8>(), 0..40),
        path in "[a-z.0-9$\\\\:]{0,12}",
        now in any::<i64>(),
    ) {
        let headers = Headers::new(fields);
        let req = Request::post("https://gate.example.com/in/x", &headers, &body);
        let now = Timestamp::from_millis(now);
        let trust = Trust::of([Secret::new(secret), Secret::new("whsec_+twL9Lirq/AYSV+/vpPkGo0K+M+0kXV9ZMaDhNDFPok=")]);
        let key: Vec<KeyField> = path.parse().into_iter().collect();
        let declared = EventRules { key: Some(key), ..EventRules::default() };
        for provider in providers() {
            let refused = provider.verify(&req, &trust, now);
            let _ = provider.verify_head(&req, &trust, now);
            let _ = provider.greeting(&req, &trust);
            for why in [Kept::Verified { of_batch: false }, Kept::Unverified] {
                let _ = provider.kept(&req, "/in/x", &trust, &StoreSecret::new([1; 32]), why);
            }
            let _ = provider.acknowledgement(&req);
            prop_assert!(refused.is_err(), "{provider} believed {req:?}");
            let _ = provider.read(&req, "source", &EventRules::default());
            let _ = provider.read(&req, "", &declared);
        }
    }
}
