//! The signed sample requests of `testdata/webhooks`, compiled in so that tests need no files.

use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{Event, EventRules, Headers, Provider, Reading, Request, SignatureError};
use serde::Deserialize;

#[derive(Clone, Deserialize)]
pub(crate) struct Sample {
    pub(crate) provider: String,
    pub(crate) case: String,
    url: String,
    pub(crate) headers: serde_json::Map<String, serde_json::Value>,
    body_text: Option<String>,
    body_base64: Option<String>,
    pub(crate) secret: String,
    pub(crate) suggested_keys: Vec<String>,
    pub(crate) verify: Verdict,
    pub(crate) same_event_as: Option<String>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) expected: String,
    pub(crate) now_unix: i64,
    pub(crate) scheme: String,
    pub(crate) tolerance_s: Option<i64>,
}

impl Sample {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.provider, self.case)
    }

    pub(crate) fn provider(&self) -> Provider {
        Provider::from_name(&self.provider, None).unwrap()
    }

    /// The samples were keyed for the source at the end of their URL.
    pub(crate) fn source(&self) -> &str {
        self.url.rsplit('/').next().unwrap()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match (&self.body_text, &self.body_base64) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(text)) => data_encoding::BASE64.decode(text.as_bytes()).unwrap(),
            _ => panic!("{}: one body", self.name()),
        }
    }

    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        self.headers.iter().map(|(n, v)| (n.clone(), v.as_str().unwrap().to_owned())).collect()
    }

    pub(crate) fn secret(&self) -> Secret {
        Secret::new(self.secret.as_str())
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.verify.now_unix)
    }

    /// The time that is signed, where one is: in seconds, and by how much it may be off.
    pub(crate) fn signed_at(&self) -> Option<(i64, i64)> {
        let header = |name: &str| {
            let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name))?;
            Some(found.1.as_str().unwrap().to_owned())
        };
        let element = |name| {
            let text = header(name)?;
            text.split(',').find_map(|part| part.strip_prefix("t=")).map(str::to_owned)
        };
        let (text, in_a_second) = match self.provider.as_str() {
            "standard_webhooks" => (header("webhook-timestamp").or_else(|| header("svix-timestamp")), 1),
            "stripe" => (element("stripe-signature"), 1),
            "calendly" => (element("calendly-webhook-signature"), 1),
            "webflow" => (header("x-webflow-timestamp"), 1_000),
            _ => (None, 1),
        };
        Some((text?.parse::<i64>().unwrap() / in_a_second, self.verify.tolerance_s.unwrap()))
    }

    pub(crate) fn verified(&self) -> Result<(), SignatureError> {
        self.verified_as(&self.headers(), &self.body(), &[self.secret()], self.now())
    }

    pub(crate) fn verified_as(
        &self,
        headers: &[(String, String)],
        body: &[u8],
        secrets: &[Secret],
        now: Timestamp,
    ) -> Result<(), SignatureError> {
        let headers = Headers::new(headers.iter().map(|(n, v)| (n, v)));
        self.provider().verify(&Request { headers: &headers, body }, secrets, now)
    }

    pub(crate) fn reading(&self) -> Reading {
        let headers = Headers::new(self.headers());
        self.provider().read(
            &Request { headers: &headers, body: &self.body() },
            self.source(),
            &EventRules::default(),
        )
    }

    pub(crate) fn event(&self) -> Event {
        match self.reading() {
            Reading::Events(mut events) if events.len() == 1 => events.remove(0),
            other => panic!("{}: one event, not {other:?}", self.name()),
        }
    }
}

/// The event a request carries, for a provider that makes one of each.
pub(crate) fn only_event(reading: Reading) -> Event {
    match reading {
        Reading::Events(mut events) if events.len() == 1 => events.remove(0),
        other => panic!("one event, not {other:?}"),
    }
}

macro_rules! files {
    ($($file:literal),* $(,)?) => {
        /// File name and text of each sample.
        const FILES: &[(&str, &str)] = &[
            $(($file, include_str!(concat!("../../../../testdata/webhooks/", $file)))),*
        ];
    };
}

files![
    "typeform/01_first.json",
    "typeform/02_retry.json",
    "typeform/02b_retry_new_event_id.json",
    "typeform/03_tampered.json",
    "typeform/03c_missing_signature.json",
    "typeform/04_partial_same_token.json",
    "typeform/05_resubmission.json",
    "typeform/07_resubscribed_wrong_secret.json",
    "tally/01_first.json",
    "tally/02_retry.json",
    "tally/03_tampered.json",
    "tally/04_awkward.json",
    "tally/05_pretty_printed_body_signed_compact.json",
    "webflow/01_first.json",
    "webflow/02_retry.json",
    "webflow/03_tampered.json",
    "webflow/05_dashboard_webhook_unsigned.json",
    "webflow/06_awkward.json",
    "formstack/01_first_form_encoded.json",
    "formstack/01b_first_json.json",
    "formstack/02_retry.json",
    "formstack/03_tampered.json",
    "formstack/04_awkward_duplicate_keys.json",
    "stripe/01_first.json",
    "stripe/02_retry.json",
    "stripe/02c_second_event_same_object.json",
    "stripe/03_tampered.json",
    "stripe/04_expired.json",
    "stripe/04b_exactly_at_tolerance.json",
    "stripe/04c_future_timestamp.json",
    "stripe/05_rotation_two_signatures.json",
    "stripe/06_awkward.json",
    "stripe/07_thin_event.json",
    "shopify/01_first.json",
    "shopify/02_retry.json",
    "shopify/02b_second_subscription.json",
    "shopify/03_tampered.json",
    "shopify/04_events_style_headers.json",
    "shopify/05_awkward.json",
    "calendly/01_first.json",
    "calendly/02_retry.json",
    "calendly/03_tampered.json",
    "calendly/04_expired.json",
    "calendly/05_reschedule_cancel_half.json",
    "calendly/05b_reschedule_create_half.json",
    "github/00_ping.json",
    "github/01_first.json",
    "github/02_retry_redelivery.json",
    "github/03_tampered.json",
    "github/05_lower_case_headers.json",
    "github/06_awkward.json",
    "github/07_official_vector.json",
    "standard_webhooks/01_first.json",
    "standard_webhooks/02_retry.json",
    "standard_webhooks/03_tampered.json",
    "standard_webhooks/04b_future.json",
    "standard_webhooks/05_rotation_two_signatures.json",
    "standard_webhooks/06_svix_header_names.json",
    "standard_webhooks/07_awkward.json",
    "standard_webhooks/08_awkward_empty_body.json",
    "standard_webhooks/09_asymmetric_v1a.json",
    "standard_webhooks/09b_v1a_next_to_v1.json",
];

pub(crate) fn all() -> Vec<Sample> {
    FILES
        .iter()
        .map(|(file, text)| serde_json::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}")))
        .collect()
}

/// The samples whose signature must be accepted.
pub(crate) fn accepted() -> Vec<Sample> {
    let ok = ["valid", "handshake", "valid_signature_body_not_json"];
    let mut all = all();
    all.retain(|s| ok.contains(&s.verify.expected.as_str()) && s.verify.scheme != "standard_webhooks_v1a");
    all
}

pub(crate) fn named(name: &str) -> Sample {
    all().into_iter().find(|s| s.name() == name).unwrap_or_else(|| panic!("no sample {name}"))
}

#[test]
fn every_sample_of_the_index_is_tested() {
    #[derive(Deserialize)]
    struct Row {
        file: String,
        expected: String,
        suggested_keys: Vec<String>,
    }
    let index: Vec<Row> =
        serde_json::from_str(include_str!("../../../../testdata/webhooks/index.json")).unwrap();
    let rows: Vec<_> = index.iter().map(|row| row.file.as_str()).collect();
    let files: Vec<_> = FILES.iter().map(|(file, _)| *file).collect();
    assert_eq!(rows, files);
    for (row, sample) in index.iter().zip(all()) {
        assert_eq!((&row.expected, &row.suggested_keys), (&sample.verify.expected, &sample.suggested_keys));
    }
}
