//! Canonical JSON against the vectors of RFC 8785, and what a fingerprint may and may not tell apart.

use oncegate_core::fingerprint::{Fingerprint, canonical_json};
use oncegate_core::key::sha256;
use oncegate_core::webhook::FieldPath;
use proptest::prelude::*;
use serde_json::Value;

fn canonical(json: &str) -> String {
    canonical_json(&serde_json::from_str(json).unwrap(), &[])
}

fn of(json: &str, volatile: &[&str]) -> Fingerprint {
    let volatile: Vec<FieldPath> = volatile.iter().map(|p| p.parse().unwrap()).collect();
    Fingerprint::of(&serde_json::from_str(json).unwrap(), &volatile)
}

#[test]
fn rfc_8785_section_3_2_2() {
    let json = r#"{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"#;
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
                    \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(canonical(json), expected);
}

#[test]
fn rfc_8785_section_3_2_3_orders_names_by_utf_16() {
    let json = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
      "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
                    \"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\
                    \"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(canonical(json), expected);
}

#[test]
fn rfc_8785_appendix_b() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(canonical_json(&Value::from(f64::from_bits(bits)), &[]), expected);
        assert_eq!(canonical(expected), expected, "read back");
    }
}

#[test]
fn c72_order_of_members_and_white_space_do_not_count_but_order_of_items_and_types_do() {
    let first = of(r#"{"a":1,"b":{"x":2,"y":[1,2]}}"#, &[]);
    assert!(!first.differs_from(&of(r#"{"b":{"y":[1,2],"x":2},"a":1}"#, &[])));
    assert!(!first.differs_from(&of("{ \"a\" : 1,\n\t\"b\":{\"x\":2, \"y\":[1 ,2] }\r\n}", &[])));
    assert!(of("[1,2]", &[]).differs_from(&of("[2,1]", &[])));
    assert!(of("\"1\"", &[]).differs_from(&of("1", &[])));
}

#[test]
fn c74_equal_numbers_are_equal_however_they_are_written() {
    for same in [
        &["10", "10.0", "1e1", "10.00"][..],
        &["0.1", "0.10", "1e-1"],
        &["1e21", "1000000000000000000000"],
        &["-0", "0", "-0.0", "0e5"],
        &["1e19", "10000000000000000000"],
        &["-9e18", "-9000000000000000000"],
        &["9007199254740992", "9007199254740992.0"],
    ] {
        for other in same {
            assert_eq!(canonical(same[0]), canonical(other), "{other}");
        }
    }
}

#[test]
fn ids_above_2_pow_53_that_differ_in_their_last_digit_differ() {
    for (a, b) in [
        ("9007199254740992", "9007199254740993"),
        ("18446744073709551614", "18446744073709551615"),
        ("-9007199254740992", "-9007199254740993"),
        // 2^60 as the RFC would print it, and 2^60.
        ("1152921504606847000", "1152921504606846976.0"),
    ] {
        assert!(of(a, &[]).differs_from(&of(b, &[])), "{a} {b}");
    }
}

#[test]
fn volatile_fields_do_not_count_wherever_they_stand() {
    let volatile = &["event_id", "meta.sent.at", "items.1.seen", "list.0", "header:x-id", "no.such.field"];
    let first =
        r#"{"event_id":1,"meta":{"sent":{"at":1,"by":2}},"items":[{"seen":1},{"seen":1}],"list":[1,2]}"#;
    let again =
        r#"{"event_id":2,"meta":{"sent":{"at":9,"by":2}},"items":[{"seen":1},{"seen":9}],"list":[9,2]}"#;
    let without = r#"{"meta":{"sent":{"by":2}},"items":[{"seen":1},{}],"list":[3,2]}"#;
    assert!(!of(first, volatile).differs_from(&of(again, volatile)));
    assert!(!of(first, volatile).differs_from(&of(without, volatile)));
    for other in [
        r#"{"event_id":1,"meta":{"sent":{"at":1,"by":3}},"items":[{"seen":1},{"seen":1}],"list":[1,2]}"#,
        r#"{"event_id":1,"meta":{"sent":{"at":1,"by":2}},"items":[{"seen":2},{"seen":1}],"list":[1,2]}"#,
        r#"{"event_id":1,"meta":{"sent":{"at":1,"by":2}},"items":[{"seen":1},{"seen":1}],"list":[1,3]}"#,
    ] {
        assert!(of(first, volatile).differs_from(&of(other, volatile)), "{other}");
    }
}

#[test]
fn a_fingerprint_is_the_first_16_bytes_of_sha_256_and_survives_the_store() {
    let fingerprint = of(r#"{"b":1.0,"a":"é"}"#, &[]);
    let bytes = fingerprint.to_bytes();
    assert_eq!(bytes[0], Fingerprint::VERSION);
    assert_eq!(bytes[1..], sha256("{\"a\":\"é\",\"b\":1}".as_bytes())[..16]);
    assert_eq!(Fingerprint::from_bytes(&bytes), Some(fingerprint));
    assert_eq!(Fingerprint::from_bytes(&bytes[..16]), None);
    assert_eq!(Fingerprint::from_bytes(&[]), None);
    // Pinned: stored fingerprints must mean the same after every upgrade (case C72).
    assert_eq!(fingerprint.to_string(), "v1:aa58fba8483623bed37c1b02edfccbdd");
}

#[test]
fn fingerprints_of_two_versions_cannot_be_judged() {
    let ours = of("1", &[]);
    let mut bytes = of("2", &[]).to_bytes();
    assert!(ours.differs_from(&Fingerprint::from_bytes(&bytes).unwrap()));
    bytes[0] += 1;
    let newer = Fingerprint::from_bytes(&bytes).unwrap();
    assert!(!ours.differs_from(&newer) && !newer.differs_from(&ours));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_json_is_a_fixed_point(value in any_json()) {
        let once = canonical_json(&value, &[]);
        prop_assert_eq!(&once, &canonical(&once));
    }
}
