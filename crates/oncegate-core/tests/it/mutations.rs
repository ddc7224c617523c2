//! Whatever is signed and changed is refused.

use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{SIGNATURE_HEADER_BYTES_MAX, SignatureError};

use crate::sample::{Sample, accepted, named};

fn is_signed(provider: &str, header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    match provider {
        "typeform" => header == "typeform-signature",
        "tally" => header == "tally-signature",
        "webflow" => ["x-webflow-signature", "x-webflow-timestamp"].contains(&header.as_str()),
        "formstack" => header == "x-fs-signature",
        "stripe" => header == "stripe-signature",
        "shopify" => header.ends_with("shopify-hmac-sha256"),
        "calendly" => header == "calendly-webhook-signature",
        "github" => header == "x-hub-signature-256",
        "standard_webhooks" => header.starts_with("webhook-") || header.starts_with("svix-"),
        other => panic!("no list of signed headers for {other}"),
    }
}

fn is_signature(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    header.contains("signature") || header.contains("hmac")
}

fn with_headers(s: &Sample, headers: &[(String, String)]) -> Result<(), SignatureError> {
    s.verified_as(headers, &s.body(), &[s.secret()], s.now())
}

#[test]
fn a_signed_header_that_is_dropped_or_changed_is_refused() {
    let mut signed = 0;
    for s in accepted() {
        let headers = s.headers();
        for (at, (name, value)) in headers.iter().enumerate() {
            if !is_signed(&s.provider, name) {
                continue;
            }
            signed += 1;
            let mut dropped = headers.clone();
            dropped.remove(at);
            let refused = with_headers(&s, &dropped);
            assert!(
                matches!(refused, Err(SignatureError::MissingHeader { .. })),
                "{} {name}: {refused:?}",
                s.name()
            );
            let mut changes =
                vec![String::new(), "x".to_owned(), format!("{value}x"), "1795953599".to_owned()];
            changes.push(value.chars().rev().collect());
            // One letter in the middle, staying within the alphabet of each encoding. Of a rotated pair, one
            // signature is enough, so a change in only one of them is no forgery.
            if !value.contains(' ') && value.matches("v1=").count() < 2 {
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
    assert_eq!(signed, 5 + 3 + 3 * 2 + 4 + 7 + 5 + 4 + 6 + 3 * 7, "each accepted sample was mutated");
}

#[test]
fn one_byte_of_the_body_changed_is_refused() {
    for s in accepted() {
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
        assert_eq!(signed_at.is_some(), s.verify.tolerance_s.is_some(), "{}", s.name());
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
    let another = Secret::new("whsec_b3RoZXJzZWNyZXRvdGhlcnNlY3JldA==");
    for s in accepted() {
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
    for s in accepted() {
        let mut body = s.body();
        body.push(b'x');
        let refused = s.verified_as(&s.headers(), &body, &[s.secret()], s.now()).unwrap_err();
        let said = format!("{refused} {refused:?}");
        assert!(!said.contains(&s.secret) && !said.contains(s.secret.trim_start_matches("whsec_")), "{said}");
        for (_, value) in s.headers().iter().filter(|(name, _)| is_signature(name)) {
            assert!(!said.contains(value), "{said}");
        }
    }
}

#[test]
fn a_signature_sent_twice_is_accepted_if_one_fits() {
    for s in accepted() {
        let mut headers = s.headers();
        let at = headers.iter().position(|(n, _)| is_signed(&s.provider, n) && is_signature(n)).unwrap();
        let (name, right) = headers[at].clone();
        headers.insert(0, (name.to_uppercase(), "sha256=00".to_owned()));
        assert!(with_headers(&s, &headers).is_ok(), "{}: two fields", s.name());
        headers.remove(0);
        if s.provider != "standard_webhooks" {
            headers[at].1 = format!("sha256=00, {right}");
            assert!(with_headers(&s, &headers).is_ok(), "{}: folded by a proxy", s.name());
        }
        headers[at].1 = format!("{right} ").repeat(17);
        if s.provider == "standard_webhooks" {
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
