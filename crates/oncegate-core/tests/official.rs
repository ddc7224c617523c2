//! Random requests that the providers' own libraries signed, or agreed to: `scripts/official.sh` makes them and calls this
//! test with their files, which is why it is not among those that `cargo test` runs by itself.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{Headers, Provider, Request, SignatureError, Trust};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Line {
    library: String,
    provider: String,
    secret: String,
    method: String,
    url: String,
    headers: Vec<(String, Value)>,
    body_base64: String,
    now: i64,
    tolerance_s: Option<i64>,
}

impl Line {
    fn headers(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }

    fn verdict(
        &self,
        headers: &[(String, String)],
        body: &[u8],
        secret: &str,
        now: i64,
    ) -> Result<(), SignatureError> {
        let headers = Headers::new(headers.iter().map(|(name, value)| (name, value)));
        let req = Request { method: &self.method, url: &self.url, tail: None, headers: &headers, body };
        let provider = Provider::from_name(&self.provider, None).unwrap();
        provider.verify(&req, &Trust::of([Secret::new(secret)]), Timestamp::from_secs(now))
    }

    fn judge(&self) {
        let (headers, body) = (self.headers(), BASE64.decode(self.body_base64.as_bytes()).unwrap());
        let told = || {
            let text = String::from_utf8_lossy(&body);
            format!("{} as {}: {} {headers:?} {text:?}", self.library, self.provider, self.url)
        };
        let as_it_is = self.verdict(&headers, &body, &self.secret, self.now);
        assert_eq!(as_it_is, Ok(()), "{}", told());

        // One byte of the body, wherever the body says.
        if !body.is_empty() {
            let mut other = body.clone();
            let at = body.iter().map(|byte| usize::from(*byte)).sum::<usize>() % body.len();
            other[at] ^= 1;
            assert!(self.verdict(&headers, &other, &self.secret, self.now).is_err(), "byte {at}: {}", told());
        }
        // Each header that says who signed.
        for (at, (name, value)) in headers.iter().enumerate() {
            if name.contains("signature") || name.contains("hmac") || name.contains("timestamp") {
                let mut other = headers.clone();
                let last = value.chars().rev().find(|c| c.is_ascii_alphanumeric() && *c != 'A').unwrap();
                let changed = if last == '1' { "2" } else { "1" };
                let place = value.rfind(last).unwrap();
                other[at].1.replace_range(place..=place, changed);
                // The last digits of base64 may say the same.
                let decoded = |text: &str| BASE64.decode(text.trim_start_matches("v1,").as_bytes()).ok();
                if decoded(&other[at].1).is_some_and(|bytes| decoded(value) == Some(bytes)) {
                    continue;
                }
                assert!(self.verdict(&other, &body, &self.secret, self.now).is_err(), "{name}: {}", told());
            }
        }
        if let Some(tolerance) = self.tolerance_s {
            for off in [-tolerance - 1, tolerance + 1] {
                let got = self.verdict(&headers, &body, &self.secret, self.now + off);
                assert!(
                    matches!(got, Err(SignatureError::OutsideTolerance { .. })),
                    "{off}: {got:?} {}",
                    told()
                );
            }
        }
        let other: String = self.secret.chars().rev().collect();
        if other != self.secret {
            assert!(self.verdict(&headers, &body, &other, self.now).is_err(), "{}", told());
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the script says where it put the requests")]
fn what_the_providers_libraries_sign_is_believed_and_nothing_else_is() {
    let files = std::env::var("ONCEGATE_OFFICIAL").expect("run this by scripts/official.sh");
    let mut seen = BTreeMap::<(String, String), usize>::new();
    for file in files.split(':') {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file}: {e}"));
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}: {e}: {line}"));
            line.judge();
            *seen.entry((line.library, line.provider)).or_default() += 1;
        }
    }
    for ((library, provider), count) in &seen {
        println!("{library:<26} {provider:<18} {count} requests");
    }
    assert_eq!(seen.len(), 18, "libraries with the providers that they sign for: {seen:?}");
    assert!(seen.values().all(|count| *count >= 20), "{seen:?}");
}
