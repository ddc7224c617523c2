//! Whatever is signed and changed is refused.

use std::collections::BTreeSet;

use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{Request, SIGNATURE_HEADER_BYTES_MAX, SignatureError};

use crate::sample::{Sample, accepted, named};

/// The headers that carry a signature, or something that is signed.
fn is_signed(s: &Sample, header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    let has = |name: &str| s.headers.keys().any(|header| header.eq_ignore_ascii_case(name));
    match s.provider.as_str() {
        "typeform" => header == "typeform-signature",
        "tally" => header == "tally-signature",
        "webflow" => ["x-webflow-signature", "x-webflow-timestamp"].contains(&header.as_str()),
        "formstack" => header == "x-fs-signature",
        "stripe" => header == "stripe-signature",
        "shopify" => header.ends_with("shopify-hmac-sha256"),
        "calendly" => header == "calendly-webhook-signature",
        "github" | "meta" => header == "x-hub-signature-256",
        "slack" => ["x-slack-signature", "x-slack-request-timestamp"].contains(&header.as_str()),
        "woocommerce" => header == "x-wc-webhook-signature",
        "linkedin" => header == "x-li-signature",
        "hubspot" | "hubspot_workflow" => match has("x-hubspot-signature-v3") {
            true => ["x-hubspot-signature-v3", "x-hubspot-request-timestamp"].contains(&header.as_str()),
            false => ["x-hubspot-signature", "x-hubspot-signature-version"].contains(&header.as_str()),
        },
        "twilio" => ["x-twilio-signature", "x-twilio-webhooks-signature-settings"].contains(&header.as_str()),
        "sendgrid" => header.starts_with("x-twilio-email-event-webhook-"),
        "standard_webhooks" | "google_forms" | "make" => ["id", "timestamp", "signature"]
            .iter()
            .any(|part| header == format!("webhook-{part}") || header == format!("svix-{part}")),
        // In the body.
        "mailgun" => false,
        other => panic!("no list of signed headers for {other}"),
    }
}

fn is_signature(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    let about_it =
        header.ends_with("settings") || header.ends_with("version") || header.ends_with("timestamp");
    (header.contains("signature") || header.contains("hmac")) && !about_it
}

/// Those that separate signatures by blanks.
fn is_standard(s: &Sample) -> bool {
    ["standard_webhooks", "google_forms", "make"].contains(&s.provider.as_str())
}

/// Those whose signature stands in a header.
fn in_headers() -> Vec<Sample> {
    let mut all = accepted();
    all.retain(|s| s.provider != "mailgun");
    all
}

/// A P-256 key that signed nothing here.
const ANOTHER_PUBLIC_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEUe6QGAuXiz3hgpuZSepZb1nM+7TCLcxseDrXR/LS5kQnQx8OBmWy84PwcC5zTAkC3dp03tmN82Q3fYaAKHzpPg==";

fn with_headers(s: &Sample, headers: &[(String, String)]) -> Result<(), SignatureError> {
    s.verified_as(headers, &s.body(), &[s.secret()], s.now())
}

#[test]
fn a_signed_header_that_is_dropped_or_changed_is_refused() {
    let mut signed = BTreeSet::new();
    for s in in_headers() {
        let headers = s.headers();
        for (at, (name, value)) in headers.iter().enumerate() {
            if !is_signed(&s, name) {
                continue;
            }
            signed.insert(s.name());
            let mut dropped = headers.clone();
            dropped.remove(at);
            let refused = with_headers(&s, &dropped);
            // Which of two schemes it is stands in a header: without it, it is judged by the other.
            let says_which = name.ends_with("Version") || name.ends_with("Settings");
            let as_expected = matches!(refused, Err(SignatureError::MissingHeader { .. }))
                || says_which
                    && matches!(
                        refused,
                        Err(SignatureError::Mismatch { .. } | SignatureError::Malformed { .. })
                    )
                || s.provider == "make" && matches!(refused, Err(SignatureError::NoSharedSecret { .. }));
            assert!(refused.is_err() && as_expected, "{} {name}: {refused:?}", s.name());
            let mut changes =
                vec![String::new(), "x".to_owned(), format!("{value}x"), "1795953601".to_owned()];
            changes.push(value.chars().rev().collect());
            // One letter in the middle, staying within the alphabet of each encoding. Of a rotated pair, one
            // signature is enough, so a change in only one of them is no forgery.
            if !value.contains(' ') && value.matches("v1=").count() < 2 && !name.ends_with("Settings") {
                let middle = value.len() / 2;
                let other = if &value[middle..=middle] == "1" { "2" } else { "1" };
                changes.push(format!("{}{other}{}", &value[..middle], &value[middle + 1..]));
            }
            for changed in changes {
                let mut mutated = headers.clone();
                mutated[at].1 = changed.clone();
                assert!(with_headers(&s, &mutated).is_err(), "{} {name}: {changed}", s.name());
            }
        }
    }
    let all: BTreeSet<_> = in_headers().iter().map(Sample::name).collect();
    assert_eq!(signed, all, "each accepted sample was mutated");
}

#[test]
fn one_byte_of_the_body_changed_is_refused() {
    for s in in_headers() {
        let body = s.body();
        let refused = |body: &[u8]| {
            let got = s.verified_as(&s.headers(), body, &[s.secret()], s.now());
            assert!(matches!(got, Err(SignatureError::Mismatch { .. })), "{}: {got:?}", s.name());
        };
        for part in 0..=8 {
            if let Some(last) = body.len().checked_sub(1) {
                let mut flipped = body.clone();
                flipped[last * part / 8] ^= 1;
                refused(&flipped);
                refused(&body[..last * part / 8]);
            }
        }
        refused(&[&body[..], b"\n"].concat());
        refused(&[b" ", &body[..]].concat());
    }
}

#[test]
fn a_clock_off_by_a_second_too_much_is_refused_where_time_is_signed() {
    for s in accepted() {
        let at = |now| s.verified_as(&s.headers(), &s.body(), &[s.secret()], Timestamp::from_secs(now));
        let signed_at = s.signed_at();
        assert!(signed_at.is_some() || s.verify.tolerance_s.is_none(), "{}", s.name());
        match signed_at {
            Some((t, tolerance)) => {
                for off in [-tolerance - 1, tolerance + 1, -1_000_000, 1_000_000] {
                    let got = at(t + off);
                    assert!(
                        matches!(got, Err(SignatureError::OutsideTolerance { .. })),
                        "{} {off}",
                        s.name()
                    );
                }
                assert!(at(t - tolerance).is_ok() && at(t + tolerance).is_ok(), "{}", s.name());
            }
            None => assert!(at(0).is_ok() && at(i64::MAX).is_ok(), "{}", s.name()),
        }
    }
}

#[test]
fn another_secret_is_refused_and_one_of_several_is_enough() {
    for s in accepted() {
        let another = Secret::new(match s.provider.as_str() {
            "sendgrid" => ANOTHER_PUBLIC_KEY,
            _ => "whsec_b3RoZXJzZWNyZXRvdGhlcnNlY3JldA==",
        });
        let with = |secrets: &[Secret]| s.verified_as(&s.headers(), &s.body(), secrets, s.now());
        let refused = with(std::slice::from_ref(&another));
        assert_eq!(
            refused.as_ref().map_err(|e| matches!(e, SignatureError::Mismatch { secrets: 1, .. })),
            Err(true)
        );
        assert!(with(&[another.clone(), s.secret()]).is_ok(), "{}", s.name());
        assert!(with(&[Secret::new(" "), s.secret()]).is_ok(), "a mistyped one does not stop the other");
        assert_eq!(with(&[]), Err(SignatureError::NoSecret));
        for blank in ["", "  ", "\n"] {
            assert!(matches!(with(&[Secret::new(blank)]), Err(SignatureError::BadSecret { number: 1, .. })));
        }
    }
}

#[test]
fn a_refusal_prints_neither_the_secret_nor_the_right_signature() {
    for s in in_headers() {
        let mut body = s.body();
        body.push(b'x');
        let refused = s.verified_as(&s.headers(), &body, &[s.secret()], s.now()).unwrap_err();
        let said = format!("{refused} {refused:?}");
        assert!(!said.contains(&s.secret) && !said.contains(s.secret.trim_start_matches("whsec_")), "{said}");
        for (_, value) in s.headers().iter().filter(|(name, value)| is_signature(name) && !value.is_empty()) {
            assert!(!said.contains(value), "{said}");
        }
    }
}

#[test]
fn a_signature_sent_twice_is_accepted_if_one_fits() {
    for s in in_headers() {
        let mut headers = s.headers();
        let at = headers.iter().position(|(n, _)| is_signed(&s, n) && is_signature(n)).unwrap();
        let (name, right) = headers[at].clone();
        headers.insert(0, (name.to_uppercase(), "sha256=00".to_owned()));
        assert!(with_headers(&s, &headers).is_ok(), "{}: two fields", s.name());
        headers.remove(0);
        if !is_standard(&s) {
            headers[at].1 = format!("sha256=00, {right}");
            assert!(with_headers(&s, &headers).is_ok(), "{}: folded by a proxy", s.name());
        }
        headers[at].1 = format!("{right} ").repeat(17);
        if is_standard(&s) {
            assert!(
                matches!(with_headers(&s, &headers), Err(SignatureError::TooMany { .. })),
                "{}",
                s.name()
            );
        }
        headers[at].1 = "a".repeat(SIGNATURE_HEADER_BYTES_MAX + 1);
        assert!(matches!(with_headers(&s, &headers), Err(SignatureError::TooLong { .. })), "{}", s.name());
    }
}

#[test]
fn a_timed_signature_is_read_by_its_elements() {
    for (provider, header) in [("stripe", "Stripe-Signature"), ("calendly", "Calendly-Webhook-Signature")] {
        let s = named(&format!("{provider}/01_first"));
        let right = s.headers[header].as_str().unwrap().to_owned();
        let (t, v1) = right.split_once(',').unwrap();
        let with = |value: String| {
            let headers: Vec<_> = s.headers().into_iter().filter(|(name, _)| name != header).collect();
            with_headers(&s, &[&headers[..], &[(header.to_owned(), value)]].concat())
        };
        for value in [format!("{t}, {v1}"), format!("v0=00,{v1},{t},{t}"), format!("{t},v1=00,{v1}")] {
            assert!(with(value.clone()).is_ok(), "{value}");
        }
        for value in
            [v1.to_owned(), t.to_owned(), format!("{t},v0=00"), format!("t=-1,{v1}"), format!("{t},v1=")]
        {
            assert!(matches!(with(value.clone()), Err(SignatureError::Malformed { .. })), "{value}");
        }
        assert!(matches!(with(format!("{t},t=1,{v1}")), Err(SignatureError::Twice { .. })));
        // The time is signed: another one within the tolerance is no forgery that works.
        let seconds: i64 = t.strip_prefix("t=").unwrap().parse().unwrap();
        assert!(matches!(with(format!("t={},{v1}", seconds - 1)), Err(SignatureError::Mismatch { .. })));
    }
}

#[test]
fn a_signed_id_sent_twice_is_refused() {
    let s = named("standard_webhooks/01_first");
    for name in ["webhook-id", "webhook-timestamp"] {
        let mut headers = s.headers();
        headers.push((name.to_owned(), "1795953599".to_owned()));
        assert!(matches!(with_headers(&s, &headers), Err(SignatureError::Twice { .. })), "{name}");
    }
}

#[test]
fn the_address_is_signed_where_it_is_signed() {
    let mut signed = BTreeSet::new();
    for s in accepted().into_iter().filter(|s| s.provider().signs_url()) {
        let at = |url: &str| {
            s.asked(url, &s.headers(), &s.body(), |req| s.provider().verify(req, &s.trust(), s.now()))
        };
        // Of app webhooks there is a v1 signature beside, which does not count where v3 is there.
        for url in [
            s.url.replace("gate.example.com", "gate.example.org"),
            s.url.replace("https://", "http://"),
            s.url.replace("/in/", "/in/x/"),
            format!("{}{}a=1", s.url, if s.url.contains('?') { "&" } else { "?" }),
        ] {
            assert!(matches!(at(&url), Err(SignatureError::Mismatch { .. })), "{} {url}", s.name());
        }
        let other = s.asked(&s.url, &s.headers(), &s.body(), |req| {
            s.provider().verify(&Request { method: "PUT", ..*req }, &s.trust(), s.now())
        });
        // Twilio signs no method.
        assert_eq!(other.is_err(), s.provider != "twilio", "{}", s.name());
        signed.insert(s.provider.clone());
    }
    assert_eq!(Vec::from_iter(signed), ["hubspot", "hubspot_workflow", "twilio"]);
}

#[test]
fn a_token_in_the_body_covers_its_own_three_fields() {
    let s = named("mailgun/01_first");
    let text = String::from_utf8(s.body()).unwrap();
    let with = |body: &str| s.verified_as(&s.headers(), body.as_bytes(), &[s.secret()], s.now());
    for (part, other) in [("a8ce0edb", "b8ce0edb"), ("cc3515fd", "dd3515fd"), ("1795953598", "1795953597")] {
        let changed = text.replacen(part, other, 1);
        assert!(matches!(with(&changed), Err(SignatureError::Mismatch { .. })), "{part}");
    }
    for (part, other) in
        [("\"token\"", "\"tok\""), ("\"signature\":{", "\"sig\":{"), ("\"timestamp\":\"", "\"t\":\"")]
    {
        let changed = text.replacen(part, other, 1);
        assert!(matches!(with(&changed), Err(SignatureError::MissingInBody { .. })), "{part}");
    }
    let twice = text.replacen("{\"signature\":{", "{\"signature\":{\"token\":\"other\",", 1);
    let flat = r#"{"signature":"cc3515fd1fd52242fa9f57fc110fe89fe9db70900ae1cdc0524e12ce5ef5f766"}"#;
    for body in ["", "x", "{\"signature\":{},\"signature\":[]}", flat, &twice, &"[".repeat(100_000)] {
        let told = format!("{:?}", with(body));
        assert!(!told.contains("cc3515fd"), "nothing of the body is told: {told}");
        assert!(
            matches!(with(body), Err(SignatureError::Unreadable { .. })),
            "{}",
            &body[..body.len().min(40)]
        );
    }
}

#[test]
fn json_without_its_hash_in_the_address_is_not_covered_by_twilio() {
    let s = named("twilio/07_json_body_sha256");
    let bare = s.url.split('?').next().unwrap();
    let got = s.asked(bare, &s.headers(), &s.body(), |req| s.provider().verify(req, &s.trust(), s.now()));
    assert!(matches!(got, Err(SignatureError::NotCovered { .. })), "{got:?}");
}

#[test]
fn a_v3_signature_that_was_taken_off_is_missed() {
    let s = named("hubspot/01_first_batch");
    let mut headers = s.headers();
    headers.retain(|(name, _)| name != "X-HubSpot-Signature-v3");
    assert!(matches!(with_headers(&s, &headers), Err(SignatureError::MissingHeader { .. })));
    // v1 alone, as it was sent before there was a v3.
    headers.retain(|(name, _)| name != "X-HubSpot-Request-Timestamp");
    assert_eq!(with_headers(&s, &headers), Ok(()));
    let mut other = headers.clone();
    let at = other.iter().position(|(name, _)| name == "X-HubSpot-Signature").unwrap();
    other[at].1 = other[at].1.replace('b', "c");
    assert!(matches!(with_headers(&s, &other), Err(SignatureError::Mismatch { .. })));
}
