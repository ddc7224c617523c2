//! Senders that sign nothing show a secret: where it may stand, and that nothing else is believed.

use data_encoding::BASE64;
use oncegate_core::key::StoreSecret;
use oncegate_core::secret::Secret;
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{
    EventRules, Headers, Kept, Provider, Reading, Request, SecretPlace, SignatureError, Trust,
};

use crate::sample::{all, named};

const URL: &str = "https://gate.example.com/in/forms";

fn unsigned() -> Vec<Provider> {
    let all = Provider::NAMES.iter().filter_map(|name| Provider::from_name(name, None).ok());
    all.filter(|provider| !provider.signs()).collect()
}

fn ask(url: &str, tail: Option<&str>, header: (&str, &str), trust: &Trust) -> Result<(), SignatureError> {
    let headers = Headers::new([header]);
    let req = Request { tail, ..Request::post(url, &headers, b"{}") };
    // Salesforce wants its envelope besides, so the head alone is asked.
    let verdicts: Vec<_> =
        unsigned().iter().map(|provider| provider.verify_head(&req, trust, Timestamp::default())).collect();
    assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "all judge alike: {verdicts:?}");
    verdicts[0].clone()
}

#[test]
fn a_secret_may_stand_at_any_usual_place_or_at_the_declared_one_alone() {
    let basic = format!("Basic {}", BASE64.encode(b"anybody:s3cret"));
    let none = ("accept", "*/*");
    type Shown<'a> = (&'a str, Option<&'a str>, (&'a str, &'a str), &'a str);
    let places: [Shown<'_>; 9] = [
        ("?k=s3cret", None, none, "query:k"),
        ("?a=b&secret=s3cret", None, none, "query:secret"),
        ("?key=s%33cret#x", None, none, "query:key"),
        ("/s3cret", Some("s3cret"), none, "path"),
        ("/s%33cret", Some("s%33cret"), none, "path"),
        ("", None, ("X-Shared-Secret", "s3cret"), "header:X-Shared-Secret"),
        ("", None, ("authorization", "s3cret"), "header:authorization"),
        ("", None, ("Authorization", "bearer s3cret"), "header:Authorization"),
        ("", None, ("Authorization", basic.as_str()), "header:Authorization"),
    ];
    for (end, tail, header, place) in places {
        let url = format!("{URL}{end}");
        let trust = Trust::of([Secret::new("other"), Secret::new("s3cret")]);
        assert_eq!(ask(&url, tail, header, &trust), Ok(()), "{end} {header:?}");
        let wrong = ask(&url, tail, header, &Trust::of([Secret::new("s3cre")]));
        assert!(
            matches!(wrong, Err(SignatureError::WrongSharedSecret { secrets: 1 })),
            "{end} {header:?}: {wrong:?}"
        );
        for (_, _, _, other) in places {
            let declared = Trust { secret_in: Some(other.parse().unwrap()), ..trust.clone() };
            let got = ask(&url, tail, header, &declared);
            let same = place.parse::<SecretPlace>() == other.parse();
            assert_eq!(got.is_ok(), same, "{end} {header:?} in {other}: {got:?}");
        }
    }
    let nothing = ask(URL, None, ("x-shared-secret", " "), &Trust::of([Secret::new("s3cret")])).unwrap_err();
    assert!(matches!(nothing, SignatureError::NoSharedSecret { .. }));
    assert!(nothing.to_string().contains("`?k=SECRET`"), "{nothing}");
}

#[test]
fn nothing_is_believed_without_a_secret_of_ones_own() {
    let url = format!("{URL}?k=");
    for secrets in [vec![], vec![Secret::new("")], vec![Secret::new(" ")]] {
        for shown in ["", " ", "x"] {
            let got = ask(
                &format!("{url}{shown}"),
                Some(shown),
                ("X-Shared-Secret", shown),
                &Trust::of(secrets.clone()),
            );
            assert!(got.is_err(), "{shown:?}: {got:?}");
        }
    }
}

#[test]
fn a_place_is_written_as_it_is_read() {
    for text in ["query:k", "path", "header:x-key"] {
        assert_eq!(text.parse::<SecretPlace>().unwrap().to_string(), text);
    }
    for text in ["", "k", "query", "query:", "header:", "header:a b", "Path", "body:k"] {
        let told = text.parse::<SecretPlace>().unwrap_err().to_string();
        assert!(told.contains("write `query:NAME`"), "{told}");
    }
}

#[test]
fn every_unsigned_sample_is_refused_without_its_secret_and_with_another() {
    let mut seen = 0;
    for s in all().into_iter().filter(|s| s.verify.expected.starts_with("unsigned")) {
        let with = |secret: &str| {
            let trust = Trust::of([Secret::new(secret)]);
            s.as_it_is(|req| s.provider().verify(req, &trust, s.now()))
        };
        assert_eq!(with(&s.secret), Ok(()), "{}", s.name());
        assert!(matches!(with("guess"), Err(SignatureError::WrongSharedSecret { .. })), "{}", s.name());
        let bare = |req: &Request<'_>| {
            let headers = Headers::new([("content-type", req.headers.get("content-type").unwrap())]);
            let req = Request { url: URL, tail: None, headers: &headers, ..*req };
            s.provider().verify(&req, &s.trust(), s.now())
        };
        assert!(matches!(s.as_it_is(bare), Err(SignatureError::NoSharedSecret { .. })), "{}", s.name());
        seen += 1;
    }
    assert_eq!(seen, 39);
}

#[test]
fn what_is_stored_holds_no_secret_and_can_be_judged_again() {
    let store = StoreSecret::new([7; 32]);
    for s in all().into_iter().filter(|s| !s.provider().signs() && s.method == "POST") {
        let (head, body) = s.kept(Kept::Unverified);
        let text = format!("{head:?} {}", String::from_utf8_lossy(&body));
        assert!(!text.contains(s.secret.trim_start_matches("Bearer ")), "{}: {text}", s.name());
        if s.verified().is_err() || !s.verify.scheme.starts_with("shared") {
            continue;
        }
        let headers = Headers::new(head.iter().map(|(name, value)| (name, value)));
        let req = Request::post(URL, &headers, &body);
        let again = |secret: &str| {
            s.provider().verify_stored(&req, &Trust::of([Secret::new(secret)]), &store, s.now())
        };
        assert_eq!(again(&s.secret), Ok(()), "{}", s.name());
        assert!(matches!(again("guess"), Err(SignatureError::WrongSharedSecret { .. })), "{}", s.name());
    }
}

#[test]
fn a_copy_of_the_secret_is_stored_nowhere() {
    let (store, secret) = (StoreSecret::new([7; 32]), "a/secret+that is \"long\"");
    let encoded = "a%2Fsecret%2Bthat%20is%20%22long%22";
    let trust = Trust::of([Secret::new(secret), Secret::new("the-older-secret-of-it")]);
    let url = format!("{URL}?k={encoded}");
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"webhookUrl\"\r\n\r\n{url}\r\n--b\r\nContent-Disposition: form-data; \
         name=\"rawRequest\"\r\n\r\n{}\r\n--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nthe-older-secret-of-it\r\n",
        serde_json::json!({ "referer": secret, "url": url })
    );
    // Whole, and cut on its way.
    for end in ["--b--\r\n", ""] {
        let body = format!("{body}{end}");
        let fields = [
            ("content-type", "multipart/form-data; boundary=b"),
            ("x-original-uri", url.as_str()),
            ("referer", url.as_str()),
            ("x-key", secret),
            ("x-other", "kept"),
        ];
        let headers = Headers::new(fields);
        let req = Request::post(&url, &headers, body.as_bytes());
        Provider::Jotform.verify(&req, &trust, Timestamp::default()).unwrap();
        for why in [Kept::Verified { of_batch: false }, Kept::Unverified] {
            let (head, stored) = Provider::Jotform.kept(&req, "/in/forms", &trust, &store, why);
            let Reading::Events(events) = Provider::Jotform.read(&req, "forms", &EventRules::default())
            else {
                panic!()
            };
            let payload = Provider::Jotform.scrubbed(events[0].payload.to_string(), &req, &trust);
            let all = format!("{head:?}\n{}\n{payload}", String::from_utf8_lossy(&stored));
            for form in [secret, encoded, "the-older-secret-of-it", r#"that is \"long\""#] {
                assert!(!all.contains(form), "{form}: {all}");
            }
            assert!(all.contains("[secret]") && all.contains("x-other"), "{all}");
        }
    }
}

#[test]
fn a_message_of_another_organisation_is_refused() {
    let s = named("salesforce/01_first");
    let with = |organization: &str| {
        let trust = Trust { organization: Some(organization.to_owned()), ..s.trust() };
        s.as_it_is(|req| s.provider().verify(req, &trust, s.now()))
    };
    // The long and the short form of one id.
    assert_eq!(with("00D000000000001EAA"), Ok(()));
    assert_eq!(with("00D000000000001"), Ok(()));
    for other in ["00D000000000002EAA", "00d000000000001EAA", "", "00D"] {
        let got = with(other);
        assert!(
            matches!(&got, Err(SignatureError::WrongSource { found, .. }) if found == "00D000000000001EAA"),
            "{got:?}"
        );
    }
}
