//! Which fields make a key, and what makes none.

use oncegate_core::identity::{KeyField, Unfit};
use oncegate_core::webhook::{
    Event, EventRules, FieldPath, FieldPathError, Headers, HmacScheme, NoIdentity, Provider, Request,
};
use serde_json::json;

use crate::sample::{named, only_event};

fn read(body: &[u8], headers: &[(&str, &str)], fields: Option<&[&str]>) -> Event {
    let scheme: HmacScheme = serde_json::from_value(json!({"header": "x-sig"})).unwrap();
    let headers = Headers::new(headers.iter().copied());
    let key: Option<Vec<KeyField>> = fields.map(|fs| fs.iter().map(|f| f.parse().unwrap()).collect());
    let rules = EventRules { key, ..EventRules::default() };
    let req = Request::post("https://gate.example.com/in/x", &headers, body);
    only_event(Provider::Hmac(scheme).read(&req, "src", &rules))
}

fn key(body: &str, fields: &[&str]) -> Result<String, NoIdentity> {
    read(body.as_bytes(), &[], Some(fields)).identity.map(|key| key.as_str().to_owned())
}

#[test]
fn a_field_that_is_missing_null_blank_or_no_scalar_is_no_identity() {
    for (value, is_right) in [
        (r#""other": 1"#, (|e| matches!(e, NoIdentity::Missing { .. })) as fn(&NoIdentity) -> bool),
        (r#""id": null"#, |e| matches!(e, NoIdentity::Null { .. })),
        (r#""id": """#, |e| matches!(e, NoIdentity::Blank { .. })),
        (r#""id": " \t\u00a0\u200b\ufeff""#, |e| matches!(e, NoIdentity::Blank { .. })),
        (r#""id": []"#, |e| matches!(e, NoIdentity::Unfit { why: Unfit::NotScalar("a list"), .. })),
        (r#""id": {}"#, |e| matches!(e, NoIdentity::Unfit { why: Unfit::NotScalar("an object"), .. })),
        (r#""id": true"#, |e| matches!(e, NoIdentity::Unfit { why: Unfit::NotScalar("true or false"), .. })),
        (r#""id": 1.5"#, |e| matches!(e, NoIdentity::Unfit { why: Unfit::NotWhole(_), .. })),
        (r#""id": 4.41e11"#, |e| matches!(e, NoIdentity::Unfit { why: Unfit::NotWhole(_), .. })),
        (r#""id": 123456789012345678901234567890"#, |e| {
            matches!(e, NoIdentity::Unfit { why: Unfit::NotWhole(_), .. })
        }),
        (r#""id": "caf\ufffd""#, |e| matches!(e, NoIdentity::Unfit { why: Unfit::Damaged, .. })),
        (r#""id": "a\u0000b""#, |e| matches!(e, NoIdentity::BadKey(_))),
    ] {
        let refused = key(&format!("{{\"form\":\"f\",{value}}}"), &["form", "id"]).unwrap_err();
        assert!(is_right(&refused), "{value}: {refused:?}");
        if !matches!(refused, NoIdentity::BadKey(_)) {
            assert!(refused.to_string().contains("`id`"), "{refused}");
        }
    }
}

#[test]
fn a_number_and_its_digits_as_text_are_one_id() {
    for number in ["11497", "0", "-3", "9007199254740993", "18446744073709551615", "-9223372036854775808"] {
        let as_number = key(&format!("{{\"id\":{number}}}"), &["id"]).unwrap();
        assert_eq!(as_number, number);
        assert_eq!(key(&format!("{{\"id\":\"{number}\"}}"), &["id"]).unwrap(), as_number);
    }
    assert_ne!(key(r#"{"id":"0010"}"#, &["id"]), key(r#"{"id":"10"}"#, &["id"]));
}

#[test]
fn declared_fields_override_the_default_of_any_provider() {
    for (sample, fields, expected) in [
        (
            "typeform/01_first",
            ["event_id", "form_response.hidden.utm_source"],
            "01KB7QF3TESTEVENT0000000001:newsletter",
        ),
        ("tally/01_first", ["data.respondentId", "header:user-agent"], "pQ81zK:Tally Webhooks"),
        ("github/01_first", ["issue.id", "action"], "2000000017:opened"),
        ("standard_webhooks/01_first", ["data.id", "$.type"], "c-1:contact.created"),
    ] {
        let s = named(sample);
        let headers = Headers::new(s.headers());
        let key = Some(fields.map(|f| f.parse().unwrap()).to_vec());
        let rules = EventRules { key, ..EventRules::default() };
        let body = s.body();
        let req = Request::post("https://gate.example.com/in/x", &headers, &body);
        let event = only_event(s.provider().read(&req, "src", &rules));
        assert_eq!(event.identity.unwrap().as_str(), expected);
    }
}

#[test]
fn the_generic_scheme_has_no_default_key() {
    for fields in [None, Some(&[][..])] {
        let refused = read(b"{}", &[], fields).identity.unwrap_err();
        assert_eq!(refused, NoIdentity::NoKeyFields { provider: "hmac" });
        assert!(refused.to_string().contains("`key`"), "{refused}");
    }
}

#[test]
fn a_header_sent_twice_with_different_values_names_nothing() {
    let read = |headers: &[(&str, &str)]| read(b"{}", headers, Some(&["header:X-Id"])).identity;
    assert_eq!(read(&[("X-ID", "a"), ("x-id", "a")]).unwrap().as_str(), "a");
    assert!(matches!(read(&[("x-id", "a"), ("x-id", "b")]), Err(NoIdentity::Twice { .. })));
    assert!(matches!(read(&[("x-id", "  ")]), Err(NoIdentity::Blank { .. })));
    assert!(matches!(read(&[]), Err(NoIdentity::Missing { .. })));
}

#[test]
fn a_body_without_fields_says_why() {
    for (body, why) in [
        (&b""[..], "the body is empty"),
        (b"{\"id\": 1", "not JSON (EOF"),
        (b"{\"id\": 1e400}", "not JSON (number out of range"),
        (b"{\"id\": NaN}", "not JSON (expected value"),
        (b"\xff\xfe", "not JSON"),
    ] {
        let event = read(body, &[], Some(&["id"]));
        let refused = event.identity.unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("`id`"), "{refused}");
    }
}

#[test]
fn a_body_that_cannot_be_read_is_kept_as_it_came() {
    assert_eq!(read(b"hello", &[], None).payload, json!("hello"));
    assert_eq!(read(b"\xff\xfe", &[], None).payload, json!({"base64": "//4="}));
    assert_eq!(read(b"\xef\xbb\xbf{\"id\":1}", &[], None).payload, json!({"id": 1}), "a byte order mark");
    for depth in [512, 100_000] {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let event = read(deep.as_bytes(), &[("x-id", "7")], Some(&["header:x-id"]));
        assert_eq!(event.payload, json!(deep));
        assert_eq!(event.identity.unwrap().as_str(), "7");
    }
}

#[test]
fn a_member_that_stands_twice_with_two_values_names_nothing() {
    let form = [("content-type", "application/x-www-form-urlencoded"), ("x-id", "7")];
    let plain = [("x-id", "7")];
    for headers in [&form[..], &plain] {
        for (body, member) in [
            (r#"{"id":1,"id":2}"#, "id"),
            (r#"{"id":1,"":2,"":3}"#, "\"\""),
            (r#"{"id":1,"data":{"email":"a","email":"b"}}"#, "data.email"),
            (r#"{"id":1,"items":[{"n":1},{"n":1,"n":"1"}]}"#, "items.1.n"),
        ] {
            for field in ["id", "header:x-id"] {
                let event = read(body.as_bytes(), headers, Some(&[field]));
                assert_eq!(event.identity, Err(NoIdentity::Ambiguous { member: member.into() }), "{body}");
                assert_eq!(event.payload, json!(body), "kept as it came");
            }
        }
    }
    // Said twice and meant once: there is nothing to choose.
    let event = read(br#"{"id":1,"data":{"a":"b"},"id":1,"data":{"a":"b"}}"#, &[], Some(&["id"]));
    assert_eq!(event.identity.unwrap().as_str(), "1");
    assert_eq!(event.payload, json!({"id":1,"data":{"a":"b"}}));
}

#[test]
fn form_bodies_are_objects_of_strings() {
    let form = [("content-type", "Application/X-WWW-Form-URLencoded ; charset=UTF-8")];
    let event = read(b"id=10&tag=a&tag=b&tag=c&empty=&plus=a+b%26", &form, Some(&["id", "tag.2"]));
    assert_eq!(event.payload, json!({"id":"10","tag":["a","b","c"],"empty":"","plus":"a b&"}));
    assert_eq!(event.identity.unwrap().as_str(), "10:c");
    let damaged = read(b"id=%ff", &form, Some(&["id"])).identity;
    assert!(
        matches!(damaged, Err(NoIdentity::Unfit { why: Unfit::Damaged, .. })),
        "%ff and %fe must not be one id"
    );
    assert_eq!(read(b"", &form, None).payload, json!(null));
    assert_eq!(read(b" {\"id\":1}", &form, None).payload, json!({"id": 1}), "what `curl -d` sends");
    assert_eq!(read(b"[0]=x&{=y", &form, None).payload, json!({"[0]": "x", "{": "y"}));
}

#[test]
fn paths_are_written_as_they_are_read() {
    for path in ["a", "a.b.0.c", "a\\.b.c\\\\", "header:x-github-delivery", "$.header:x", "$.$.a", "$.$"] {
        let parsed: FieldPath = path.parse().unwrap();
        assert_eq!(parsed.to_string(), path);
        assert_eq!(parsed.to_string().parse::<FieldPath>().unwrap(), parsed);
    }
    assert_eq!("$.a".parse::<FieldPath>(), "a".parse());
    assert_eq!("header: X-Id".parse::<FieldPath>(), "header:x-id".parse());
    for (path, is_right) in [
        ("", (|e| matches!(e, FieldPathError::EmptyName { .. })) as fn(&FieldPathError) -> bool),
        ("$.", |e| matches!(e, FieldPathError::EmptyName { .. })),
        ("a..b", |e| matches!(e, FieldPathError::EmptyName { .. })),
        ("a.", |e| matches!(e, FieldPathError::EmptyName { .. })),
        ("a\\n", |e| matches!(e, FieldPathError::StrayEscape { .. })),
        ("a\\", |e| matches!(e, FieldPathError::StrayEscape { .. })),
        ("header:", |e| matches!(e, FieldPathError::BadHeaderName { .. })),
        ("header:a b", |e| matches!(e, FieldPathError::BadHeaderName { .. })),
    ] {
        let refused = path.parse::<FieldPath>().unwrap_err();
        assert!(is_right(&refused), "{path}: {refused}");
    }
    assert_eq!("a".repeat(513).parse::<FieldPath>(), Err(FieldPathError::TooLong { bytes: 513 }));
    assert_eq!(key(r#"{"a.b":{"$":5}}"#, &["a\\.b.$"]).unwrap(), "5");
    assert!(matches!(key("[1,2]", &["01"]), Err(NoIdentity::Missing { .. })));
}
