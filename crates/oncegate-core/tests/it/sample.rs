//! The signed sample requests of `testdata/webhooks`, compiled in so that tests need no files.

use oncegate_core::key::StoreSecret;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{
    Event, EventRules, Headers, Kept, Provider, Reading, Request, SignatureError, Trust,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Deserialize)]
pub(crate) struct Sample {
    pub(crate) provider: String,
    pub(crate) case: String,
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: serde_json::Map<String, Value>,
    body_text: Option<String>,
    body_base64: Option<String>,
    pub(crate) secret: String,
    public_key: Option<String>,
    pub(crate) suggested_keys: Vec<String>,
    pub(crate) verify: Verdict,
    pub(crate) expected_response: Option<Value>,
    pub(crate) same_event_as: Option<String>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) expected: String,
    pub(crate) now_unix: i64,
    pub(crate) scheme: String,
    pub(crate) tolerance_s: Option<i64>,
}

/// The path before a sample's source.
const BEFORE: &str = "/in/";

impl Sample {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.provider, self.case)
    }

    pub(crate) fn provider(&self) -> Provider {
        let name = match self.case.as_str() {
            "06_inbound_parse" => "sendgrid_inbound",
            _ => self.provider.as_str(),
        };
        Provider::from_name(name, None).unwrap()
    }

    /// `/in/PROVIDER/SOURCE/TAIL`: the samples were keyed for the source, and a secret may stand behind it.
    fn way(&self) -> Vec<&str> {
        let path = self.url.split_once(BEFORE).unwrap().1;
        path.split('?').next().unwrap().split('/').collect()
    }

    pub(crate) fn source(&self) -> &str {
        self.way()[1]
    }

    pub(crate) fn tail(&self) -> Option<&str> {
        self.way().get(2).copied()
    }

    /// Two kinds of samples tell of a secret in the address, and do not show it there.
    pub(crate) fn url(&self) -> String {
        match self.verify.scheme == "shared_secret_in_url" && !self.url.contains('?') && self.tail().is_none()
        {
            true => format!("{}?k={}", self.url, self.secret),
            false => self.url.clone(),
        }
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
        Secret::new(
            self.public_key.as_ref().filter(|_| self.provider().signs()).unwrap_or(&self.secret).as_str(),
        )
    }

    pub(crate) fn trust(&self) -> Trust {
        let verify_token = self.provider.eq("meta").then(|| self.secret());
        Trust { verify_token, ..Trust::of([self.secret()]) }
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
        let in_body = || {
            let body: Value = serde_json::from_slice(&self.body()).ok()?;
            Some(body.pointer("/signature/timestamp")?.as_str()?.to_owned())
        };
        let (text, in_a_second) = match self.provider.as_str() {
            "standard_webhooks" | "google_forms" | "make" => {
                (header("webhook-timestamp").or_else(|| header("svix-timestamp")), 1)
            }
            "stripe" => (element("stripe-signature"), 1),
            "calendly" => (element("calendly-webhook-signature"), 1),
            "webflow" => (header("x-webflow-timestamp"), 1_000),
            "hubspot" => (header("x-hubspot-request-timestamp"), 1_000),
            "slack" => (header("x-slack-request-timestamp"), 1),
            "sendgrid" => (header("x-twilio-email-event-webhook-timestamp"), 1),
            "mailgun" => (in_body(), 1),
            _ => (None, 1),
        };
        Some((text?.parse::<i64>().unwrap() / in_a_second, self.verify.tolerance_s.unwrap_or(300)))
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
        let trust = Trust { secrets: secrets.to_vec(), ..self.trust() };
        self.asked(&self.url(), headers, body, |req| self.provider().verify(req, &trust, now))
    }

    /// The sample's request, with something changed.
    pub(crate) fn asked<T>(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
        ask: impl Fn(&Request<'_>) -> T,
    ) -> T {
        let headers = Headers::new(headers.iter().map(|(n, v)| (n, v)));
        ask(&Request { method: &self.method, url, tail: self.tail(), headers: &headers, body })
    }

    /// The sample's request as it is.
    pub(crate) fn as_it_is<T>(&self, ask: impl Fn(&Request<'_>) -> T) -> T {
        self.asked(&self.url(), &self.headers(), &self.body(), ask)
    }

    pub(crate) fn reading(&self) -> Reading {
        self.read_by(&EventRules::default())
    }

    pub(crate) fn read_by(&self, rules: &EventRules) -> Reading {
        self.as_it_is(|req| self.provider().read(req, self.source(), rules))
    }

    /// Head and body as they are stored.
    pub(crate) fn kept(&self, why: Kept) -> (Vec<(String, String)>, Vec<u8>) {
        let (store, path) =
            (StoreSecret::new([7; 32]), self.url.split_once(".com").map_or("", |(_, path)| path));
        self.as_it_is(|req| self.provider().kept(req, path, &self.trust(), &store, why))
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        match self.reading() {
            Reading::Events(events) => events,
            other => panic!("{}: events, not {other:?}", self.name()),
        }
    }

    pub(crate) fn event(&self) -> Event {
        only_event(self.reading())
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
    "google_forms/01_first.json",
    "google_forms/02_retry_second_trigger.json",
    "google_forms/03_tampered.json",
    "google_forms/05_edited_response.json",
    "google_forms/06_awkward_spreadsheet_bound.json",
    "jotform/01_first.json",
    "jotform/02_retry.json",
    "jotform/03_tampered.json",
    "jotform/03b_wrong_url_secret.json",
    "jotform/04_awkward_duplicate_parts.json",
    "jotform/06_awkward_raw_request_not_json.json",
    "gravity_forms/01_first_json.json",
    "gravity_forms/01b_first_form_encoded.json",
    "gravity_forms/02_retry.json",
    "gravity_forms/03_tampered.json",
    "gravity_forms/03b_missing_shared_header.json",
    "gravity_forms/04_awkward_mapped_without_entry_id.json",
    "wpforms/01_first.json",
    "wpforms/02_retry.json",
    "wpforms/03_tampered.json",
    "wpforms/04_awkward_entry_id_zero.json",
    "contact_form_7/01_first.json",
    "contact_form_7/02_retry_double_click.json",
    "contact_form_7/03_tampered.json",
    "contact_form_7/04_awkward_no_id.json",
    "contact_form_7/05_awkward_broken_json_text_plain.json",
    "fillout/01_first.json",
    "fillout/02_retry.json",
    "fillout/03_tampered.json",
    "fillout/04_awkward_array_of_events.json",
    "paperform/01_first.json",
    "paperform/02_retry.json",
    "paperform/03_tampered.json",
    "paperform/04_awkward.json",
    "hubspot/01_first_batch.json",
    "hubspot/02_retry.json",
    "hubspot/02b_retry_mixed_with_new.json",
    "hubspot/02c_same_eventid_other_object.json",
    "hubspot/03_tampered.json",
    "hubspot/04_expired.json",
    "hubspot/05_url_with_escapes.json",
    "hubspot/07_v2.json",
    "hubspot/08_awkward.json",
    "hubspot_workflow/01_first.json",
    "hubspot_workflow/02_retry.json",
    "hubspot_workflow/03_tampered.json",
    "hubspot_workflow/04_awkward_customised_body.json",
    "salesforce/01_first.json",
    "salesforce/01b_batch_three.json",
    "salesforce/02_retry.json",
    "salesforce/03_tampered.json",
    "salesforce/04_awkward_entities_nil_cdata.json",
    "salesforce/05_doctype_refused.json",
    "meta/00b_handshake_wrong_token.json",
    "meta/01_first.json",
    "meta/01b_batch.json",
    "meta/02_retry.json",
    "meta/03_tampered.json",
    "meta/04_awkward_escaped_unicode_numeric_ids.json",
    "linkedin/00_handshake.json",
    "linkedin/01_first.json",
    "linkedin/02_retry.json",
    "linkedin/03_tampered.json",
    "linkedin/03b_signed_without_prefix.json",
    "linkedin/04_deleted_same_lead.json",
    "woocommerce/00_ping.json",
    "woocommerce/01_first.json",
    "woocommerce/02_retry_redelivery.json",
    "woocommerce/02b_same_delivery_id_other_order.json",
    "woocommerce/02d_deleted_only_id.json",
    "woocommerce/03_tampered.json",
    "woocommerce/03b_secret_html_escaped.json",
    "slack/00_url_verification.json",
    "slack/01_first.json",
    "slack/02_retry_while_first_runs.json",
    "slack/03_tampered.json",
    "slack/04_expired.json",
    "slack/05_slash_command_form.json",
    "slack/07_awkward.json",
    "twilio/01_first.json",
    "twilio/02_retry.json",
    "twilio/03_tampered.json",
    "twilio/03b_other_host_behind_proxy.json",
    "twilio/04_signed_with_port.json",
    "twilio/05_status_sent.json",
    "twilio/05b_status_delivered.json",
    "twilio/07_json_body_sha256.json",
    "twilio/08_shared_key_sha256.json",
    "sendgrid/01_first_batch.json",
    "sendgrid/02_retry.json",
    "sendgrid/03_tampered.json",
    "sendgrid/03b_trailing_crlf_stripped.json",
    "sendgrid/05_awkward.json",
    "sendgrid/06_inbound_parse.json",
    "mailgun/01_first.json",
    "mailgun/02_retry.json",
    "mailgun/03_tampered_event_data.json",
    "mailgun/03c_token_replayed_with_new_event.json",
    "mailgun/04_expired.json",
    "mailgun/05_awkward.json",
    "zapier/01_first.json",
    "zapier/02_retry_replay.json",
    "zapier/03_tampered.json",
    "zapier/04_form.json",
    "zapier/05_awkward_xml_without_root.json",
    "make/01_first_event_subscription.json",
    "make/02_retry.json",
    "make/03_tampered.json",
    "make/04b_awkward.json",
    "make/05_http_module_unresolved_variable.json",
];

pub(crate) fn all() -> Vec<Sample> {
    FILES
        .iter()
        .map(|(file, text)| serde_json::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}")))
        .collect()
}

/// The samples whose signature must be accepted: not the tests of the connection that have none.
pub(crate) fn accepted() -> Vec<Sample> {
    let ok = ["valid", "valid_no_key", "handshake", "valid_signature_body_not_json"];
    let unsigned = ["woocommerce/00_ping", "linkedin/00_handshake"];
    let mut all = all();
    all.retain(|s| ok.contains(&s.verify.expected.as_str()) && s.verify.scheme != "standard_webhooks_v1a");
    all.retain(|s| !unsigned.contains(&s.name().as_str()));
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
