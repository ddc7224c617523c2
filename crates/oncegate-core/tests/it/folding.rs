//! What the rules of identity make of values. The vectors are frozen: a stored key was made by them, and an upgrade
//! that changes one would let an effect that is done happen again.

use oncegate_core::identity::{CallerRules, EmailFolding, KeyField, Part, Rule, Sent, VERSION, join};
use oncegate_core::json::{self, Twice};
use oncegate_core::key::StoreSecret;
use oncegate_core::webhook::NoIdentity;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A field as it is declared in the file.
fn field(declared: Value) -> KeyField {
    serde_json::from_value(declared).unwrap()
}

fn rule(declared: Value) -> Rule {
    let mut declared = declared;
    declared["field"] = "f".into();
    field(declared).rule
}

/// The folded value, or why there is none.
fn folded(rule: &Rule, value: &Value) -> Result<String, String> {
    match rule.read(value).map_err(|why| why.to_string())? {
        Part::Value(folded) => Ok(folded.folded),
        nothing => Err(nothing.to_string()),
    }
}

/// JSON as it comes over the wire.
fn wire(text: &str) -> Value {
    json::read(text.as_bytes(), Twice::Refused).unwrap()
}

#[test]
fn the_rules_are_frozen() {
    assert_eq!(VERSION, 1);
    let email = json!({ "as": "email" });
    let gmail = json!({ "as": "email", "fold_tags": ["GMail.com"], "fold_dots": ["gmail.com"] });
    let day = |form: &str| json!({ "as": "date", "form": form });
    let as_is = |name: &str| json!({ "as": name });
    for (declared, sent, key) in [
        (as_is("opaque"), " A1\u{a0}", " A1\u{a0}"),
        (as_is("opaque"), "zoe\u{308}", "zoe\u{308}"),
        (email.clone(), "\u{feff} INFO@EXAMPLE.COM\r\n", "info@example.com"),
        (email.clone(), "Σίσυφος@x.example", "σίσυφος@x.example"),
        (email.clone(), "STRASSE@straße.example", "strasse@xn--strae-oqa.example"),
        (email.clone(), "a@Ｅｘａｍｐｌｅ.com", "a@example.com"),
        (email.clone(), "a@b@Example.com", "a@b@example.com"),
        (email.clone(), "o'brien+x@Sub_Domain.Example", "o'brien+x@sub_domain.example"),
        (email.clone(), "ann@[192.0.2.1]", "ann@[192.0.2.1]"),
        (gmail.clone(), "A.n.a+fair+2@GMAIL.com", "ana@gmail.com"),
        (gmail.clone(), "a.na+fair@googlemail.com", "a.na+fair@googlemail.com"),
        (gmail.clone(), "+@gmail.com", "+@gmail.com"),
        (as_is("text"), "\u{200b} Call  me\u{2060} ", "Call  me"),
        (as_is("collapse_ws"), " call \u{a0}\n\tme ", "call me"),
        (as_is("number"), "-0012.50", "-12.5"),
        (as_is("number"), "+1E+3", "1000"),
        (as_is("number"), "18446744073709551615", "18446744073709551615"),
        (as_is("number"), ".5", "0.5"),
        (day("DD.MM.YYYY"), "05.01.2026", "2026-01-05"),
        (day("M/D/YYYY"), "1/5/2026", "2026-01-05"),
        (day("YYYYMMDD"), "20240229", "2024-02-29"),
        (as_is("timestamp"), "2026-01-05T10:00:00+02:00", "2026-01-05T08:00:00Z"),
        (as_is("timestamp"), "2026-01-05t08:00:00.500z", "2026-01-05T08:00:00.5Z"),
    ] {
        let rule = rule(declared.clone());
        assert_eq!(folded(&rule, &json!(sent)), Ok(key.to_owned()), "{declared} {sent:?}");
        assert_eq!(folded(&rule, &json!(key)).unwrap_or(key.to_owned()), key, "{declared}: folded twice");
    }
}

#[test]
fn what_does_not_fit_its_rule_is_refused_in_words() {
    let day = json!({ "as": "date", "form": "DD.MM.YYYY" });
    for (declared, sent, says) in [
        (json!({ "as": "email" }), json!("ann.example.com"), "no @"),
        (json!({ "as": "email" }), json!("@example.com"), "before or after"),
        (json!({ "as": "email" }), json!("ann@"), "before or after"),
        (json!({ "as": "email" }), json!("ann@xn--zz--.example"), "its domain is none"),
        (json!({ "as": "email" }), json!("an\u{200b}n@example.com"), "invisible character inside"),
        (json!({ "as": "email" }), json!(true), "true or false"),
        (json!({ "as": "number" }), json!("1,000"), "write digits"),
        (json!({ "as": "number" }), json!("0x10"), "write digits"),
        (json!({ "as": "number" }), json!("1e400"), "too large"),
        (json!({ "as": "number" }), json!("1e-400"), "more digits"),
        (json!({ "as": "number" }), json!("0.1000000000000000055"), "more digits"),
        (json!({ "as": "number" }), json!("1000000000000000000001"), "more digits"),
        (json!({ "as": "number" }), json!("e5"), "write digits"),
        (json!({ "as": "number" }), json!([1]), "a list"),
        (day.clone(), json!("5.1.2026"), "written as DD.MM.YYYY"),
        (day.clone(), json!("29.02.2026"), "no such day"),
        (day.clone(), json!("05.01.2026 "), ""),
        (day.clone(), json!("05.01.2026x"), "behind it"),
        (json!({ "as": "timestamp" }), json!("2026-01-05T10:00:00"), "says no zone"),
        (json!({ "as": "timestamp" }), json!("2026-01-05"), "RFC 3339"),
        (json!({ "as": "timestamp" }), json!(1_767_600_000), "RFC 3339"),
        (json!({ "as": "opaque" }), json!(1.5), "`as: number`"),
        (json!({ "as": "text" }), json!("caf\u{fffd}"), "U+FFFD"),
    ] {
        match (folded(&rule(declared.clone()), &sent), says) {
            (Ok(_), "") => {}
            (Err(told), says) => {
                assert!(!says.is_empty() && told.contains(says), "{declared} {sent}: {told}")
            }
            (Ok(key), _) => panic!("{declared} {sent} is {key}"),
        }
    }
}

#[test]
fn what_is_declared_wrongly_is_told() {
    for (declared, says) in [
        (json!({ "as": "email" }), "`field` is missing"),
        (json!({ "field": "a", "as": "emial" }), "known are opaque, email"),
        (json!({ "field": "a", "as": "date" }), "needs `form`"),
        (json!({ "field": "a", "as": "date", "form": "DD.MM" }), "a year, a month and a day"),
        (json!({ "field": "a", "as": "date", "form": "DMYYYY" }), "something must stand behind"),
        (json!({ "field": "a", "as": "date", "form": "DD.MM.YY" }), "four letters"),
        (json!({ "field": "a", "as": "text", "form": "YYYY-MM-DD" }), "belongs to `as: date`"),
        (json!({ "field": "a", "fold_tags": ["gmail.com"] }), "belongs to `as: email`"),
        (json!({ "field": "a", "as": "email", "fold_dots": ["@gmail.com"] }), "is no domain"),
        (json!({ "field": "a..b" }), "empty name"),
    ] {
        let told = serde_json::from_value::<KeyField>(declared.clone()).unwrap_err().to_string();
        assert!(told.contains(says), "{declared}: {told}");
    }
}

#[test]
fn c74_a_number_is_one_key_however_and_wherever_it_is_written() {
    let number = rule(json!({ "as": "number" }));
    for same in [
        &["10", "10.0", "1e1", "10.00"][..],
        &["0.1", "0.10", "1e-1"],
        &["1e21", "1000000000000000000000"],
        &["-0", "0", "-0.0"],
        &["9007199254740993"],
        &["-9223372036854775808"],
    ] {
        let key = folded(&number, &wire(same[0])).unwrap();
        for written in same {
            // As JSON, and as the text that forms, sheets and headers have.
            assert_eq!(folded(&number, &wire(written)), Ok(key.clone()), "{written}");
            assert_eq!(folded(&number, &json!(written)), Ok(key.clone()), "{written} as text");
        }
    }
    assert_ne!(folded(&number, &wire("9007199254740992")), folded(&number, &wire("9007199254740993")));
    for text in ["NaN", "nan", "inf", "-Infinity", "1e400", "-1e400", "ten"] {
        assert!(folded(&number, &json!(text)).is_err(), "{text}");
    }
    for text in ["1e400", "NaN"] {
        assert!(json::read(text.as_bytes(), Twice::Refused).is_err(), "{text} is no JSON");
    }
}

#[test]
fn c76_case_does_not_count_and_no_locale_does() {
    let email = rule(json!({ "as": "email" }));
    for sent in ["INFO@EXAMPLE.COM", "info@example.com", "Info@Example.Com"] {
        let Part::Value(part) = email.read(&json!(sent)).unwrap() else { panic!("{sent}") };
        assert_eq!((part.folded.as_str(), part.shown.as_str()), ("info@example.com", sent));
    }
    let ipek = folded(&email, &json!("İPEK@example.com")).unwrap();
    assert_eq!(&ipek.as_bytes()[..7], [0x69, 0xcc, 0x87, 0x70, 0x65, 0x6b, 0x40]);
    assert_ne!(ipek, "ipek@example.com");
    assert_ne!(folded(&email, &json!("ıpek@example.com")).unwrap(), "ipek@example.com");
}

#[test]
fn c77_composed_or_not_and_punycode_or_not_are_one() {
    let email = rule(json!({ "as": "email" }));
    let of = |text: &str| folded(&email, &json!(text)).unwrap();
    assert_eq!(of("zo\u{eb}@example.com"), of("zoe\u{308}@example.com"));
    assert_eq!(of("a@bücher.example"), of("a@xn--bcher-kva.example"));
    assert_ne!(of("zoë@example.com"), "zoe@example.com");
    let opaque = Rule::Opaque;
    assert_ne!(folded(&opaque, &json!("zo\u{eb}")), folded(&opaque, &json!("zoe\u{308}")));
}

#[test]
fn c79_what_is_around_an_address_does_not_count_and_is_not_sent_and_a_blank_inside_is_refused() {
    let email = rule(json!({ "as": "email" }));
    for (before, after) in
        [("", ""), ("", " "), ("", "\t"), ("", "\u{a0}"), ("", "\u{200b}"), ("", "\r"), (" ", "")]
    {
        let sent = format!("{before}mia@example.com{after}");
        let Part::Value(part) = email.read(&json!(sent)).unwrap() else { panic!("{sent:?}") };
        assert_eq!(
            (part.folded.as_str(), part.shown.as_str()),
            ("mia@example.com", "mia@example.com"),
            "{sent:?}"
        );
    }
    assert!(folded(&email, &json!("mia @example.com")).unwrap_err().contains("blank"));
}

#[test]
fn c80_tags_and_dots_count_but_at_the_domains_that_are_listed() {
    let sent = ["ana+fair@example.com", "ana@example.com", "a.na@example.com", "ana+x@gmail.example"];
    for declared in [
        json!({ "as": "email" }),
        json!({ "as": "email", "fold_tags": ["gmail.com"], "fold_dots": ["gmail.com"] }),
    ] {
        let rule = rule(declared.clone());
        let mut keys: Vec<String> = sent.iter().map(|s| folded(&rule, &json!(s)).unwrap()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 4, "{declared}: {keys:?}");
    }
    let folding = rule(json!({ "as": "email", "fold_tags": ["gmail.com"] }));
    let Part::Value(part) = folding.read(&json!("Ana+Fair@gmail.com")).unwrap() else { panic!() };
    assert_eq!((part.folded.as_str(), part.shown.as_str()), ("ana@gmail.com", "Ana+Fair@gmail.com"));
}

#[test]
fn c45_missing_null_and_blank_are_three_values_and_none_of_them_is_one_that_can_be_sent() {
    let course = field(json!({ "field": "course", "as": "text", "optional": true }));
    let event = |course: Option<&str>| match course {
        None => json!({ "form": "f" }),
        Some(course) => json!({ "form": "f", "course": wire(course) }),
    };
    let key = |event: &Value| {
        let form: KeyField = "form".parse().unwrap();
        let parts = [&form, &course].map(|f| f.part(f.path.find_in(event)).unwrap());
        join(parts.iter().map(|part| (None, part))).unwrap().to_string()
    };
    let sent = [None, Some("\"x\""), Some("\"\""), Some("null")];
    assert_eq!(sent.map(|course| key(&event(course))), [r"f:\(missing)", "f:x", r"f:\(blank)", r"f:\(null)"]);
    for (wire, kind) in
        [(r#""\\(missing)""#, "missing"), (r#""(null)""#, "null"), (r#""\\(blank)""#, "blank")]
    {
        assert_ne!(key(&event(Some(wire))), format!(r"f:\({kind})"), "{wire}");
    }
    assert_eq!(key(&event(Some("\" \u{200b}\""))), r"f:\(blank)", "white space is as blank as nothing");
    // Required, each of them is refused.
    let course = KeyField { optional: false, ..course };
    for sent in [None, Some("\"\""), Some("null")] {
        let event = event(sent);
        course.part(course.path.find_in(&event)).unwrap_err();
    }
}

#[test]
fn the_fields_of_a_caller_are_those_that_are_declared_in_the_order_of_their_names() {
    let rules = CallerRules {
        key_fields: [("email", json!("email")), ("course", json!({ "as": "text", "optional": true }))]
            .map(|(name, declared)| (name.to_owned(), serde_json::from_value(declared).unwrap()))
            .into(),
        ..CallerRules::default()
    };
    let key = |sent: Value| {
        let parts = rules.parts(sent.as_object().unwrap())?;
        Ok::<_, (String, NoIdentity)>(
            join(parts.iter().map(|(n, p)| (Some(n.as_str()), p))).unwrap().to_string(),
        )
    };
    assert_eq!(key(json!({ "email": "A@B.example", "course": 7 })), Ok("course=7:email=a@b.example".into()));
    assert_eq!(key(json!({ "email": "a@b.example" })), Ok(r"course=\(missing):email=a@b.example".into()));
    assert!(
        matches!(key(json!({ "course": 7 })), Err((name, NoIdentity::Missing { .. })) if name == "email")
    );
    let extra = key(json!({ "email": "a@b.example", "cuorse": 7 }));
    assert!(matches!(extra, Err((name, NoIdentity::Nothing)) if name == "cuorse"));
}

#[test]
fn an_identity_is_judged_only_under_its_own_declaration_and_only_if_all_of_it_is_there() {
    let secret = StoreSecret::new([7; 32]);
    let print = |fields: Value, payload: Value| {
        let rules =
            CallerRules { identity: serde_json::from_value(fields).unwrap(), ..CallerRules::default() };
        let sent = Sent { payload: Some(&payload), ..Sent::default() };
        rules.identity(sent).unwrap().map(|s| s.print(&secret, oncegate_core::key::Workspace::DEFAULT))
    };
    let fields = json!([{ "field": "email", "as": "email" }, "created_at"]);
    let beth =
        print(fields.clone(), json!({ "email": "beth@example.com", "created_at": "2025-03-01" })).unwrap();
    let same =
        print(fields.clone(), json!({ "created_at": "2025-03-01", "email": " BETH@example.com" })).unwrap();
    let max =
        print(fields.clone(), json!({ "email": "max@example.com", "created_at": "2026-01-04" })).unwrap();
    let other = print(
        json!(["email", "created_at"]),
        json!({ "email": "max@example.com", "created_at": "2026-01-04" }),
    );
    assert!(!beth.differs_from(&same) && beth.differs_from(&max) && max.differs_from(&beth));
    assert!(!beth.differs_from(&other.unwrap()), "an edit of the file makes nobody a stranger");
    assert_eq!(print(fields, json!({ "email": "max@example.com" })), None);
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", ":", "\\", "\n", "\\n", "(missing)", "\\(null)", "a:b", "="]).prop_map(text),
        2 => "[a:\\\\\n\r\t(=n]{1,4}".prop_map(|t| text(&t)),
        1 => Just(Part::Missing),
        1 => Just(Part::Null),
        1 => Just(Part::Blank),
    ]
}

/// As a field without a rule gives it.
fn text(text: &str) -> Part {
    Rule::Opaque.read(&json!(text)).unwrap()
}

/// What people and machines put around, into and instead of addresses and names.
fn odd_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[ -~]{1,4}",
        2 => prop::sample::select(vec![
            "@", "@example.com", "+tag", ".", "\u{a0}", "\u{200b}", "\u{feff}", "İ", "ı", "Σ", "ς", "ß", "ﬀ", "e\u{308}",
            "ë", "\u{212b}", "\u{1e9e}", "\u{345}", "Ǆ", "Bücher", "。", "한", "\u{1100}\u{1161}",
        ])
        .prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

fn rules() -> Vec<Rule> {
    let folding: EmailFolding =
        match rule(json!({ "as": "email", "fold_tags": ["example.com"], "fold_dots": ["example.com"] })) {
            Rule::Email(folding) => folding,
            _ => unreachable!(),
        };
    vec![
        Rule::Opaque,
        Rule::Email(EmailFolding::default()),
        Rule::Email(folding),
        Rule::Text,
        Rule::CollapseWs,
        Rule::Number,
        Rule::Timestamp,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn joining_is_injective(
        a in prop::collection::vec(any_part(), 1..4),
        b in prop::collection::vec(any_part(), 1..4),
    ) {
        let key = |parts: &[Part]| join(parts.iter().map(|part| (None, part)));
        if let (Ok(ka), Ok(kb)) = (key(&a), key(&b)) {
            prop_assert_eq!(a == b, ka == kb, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn folding_twice_is_folding_once(text in odd_text()) {
        for rule in rules() {
            if let Ok(once) = rule.fold(&text) {
                let twice = rule.fold(&once.folded).map(|f| f.folded);
                prop_assert_eq!(twice.as_ref(), Ok(&once.folded), "{} of {:?}", rule.name(), text);
                // What is sent is what was typed, without what is around it.
                prop_assert!(text.contains(&once.shown));
            }
        }
    }

    #[test]
    fn case_and_composition_of_an_address_do_not_count(local in "[a-zA-Zäöüéñçßøåœ]{1,8}", domain in "[a-z]{1,8}") {
        let email = Rule::Email(EmailFolding::default());
        let of = |text: &str| email.fold(text).unwrap().folded;
        let typed = format!("{local}@{domain}.example");
        let upper = format!("{}@{}.EXAMPLE", local.to_lowercase(), domain.to_uppercase());
        prop_assert_eq!(of(&typed), of(&upper));
    }

    #[test]
    fn numbers_are_equal_by_value_and_only_then(a in any::<f64>(), b in any::<f64>(), n in any::<i64>()) {
        prop_assume!(a.is_finite() && b.is_finite());
        let key = |value: Value| folded(&Rule::Number, &value);
        for f in [a, b] {
            // Whoever prints it, and however: the text of a number is that number.
            let spellings = [f.to_string(), format!("{f:e}"), format!("{f:?}"), serde_json::to_string(&f).unwrap()];
            let keys: Vec<_> = spellings.iter().map(|text| key(json!(text))).collect();
            prop_assert!(keys.iter().flatten().all(|k| Some(k) == keys.iter().flatten().next()), "{:?}", keys);
            if let (Ok(text), Ok(number)) = (&keys[1], key(json!(f))) {
                prop_assert_eq!(text, &number);
            }
        }
        if let (Ok(ka), Ok(kb)) = (key(json!(a)), key(json!(b))) {
            prop_assert_eq!(ka == kb, a == b);
        }
        prop_assert_eq!(key(json!(n)), Ok(n.to_string()));
        prop_assert_eq!(key(json!(n.to_string())), Ok(n.to_string()));
    }
}
