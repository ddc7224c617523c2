//! The judge before hand-made books: what it must see in them, and what it must let pass.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::judge::{Books, Event, Kind, judge};

/// A life's end as the files and the lists have it: (what the receiver did, under which key) for each request, the
/// claim's state, and whether it stands in a list.
struct Told {
    kind: Kind,
    arrivals: &'static [(&'static str, &'static str)],
    state: &'static str,
    listed: bool,
    resets: usize,
}

const BODY: &str = "2c26";

impl Told {
    fn line(&self, (did, key): (&str, &str), path: &str) -> String {
        json!({ "key": key, "path": path, "body_sha256": BODY, "did": did, "kind": self.kind.name() })
            .to_string()
    }

    fn books(&self, event: &Event) -> Books {
        let mut text = String::new();
        for arrival in self.arrivals {
            let path = match arrival.0 {
                "look" => format!("/find/{}/write", event.token),
                _ => format!("/wild/{}/write", event.token),
            };
            writeln!(text, "{}", self.line(*arrival, &path)).unwrap();
        }
        // What is still being written does not count.
        text.push_str("{\"key\": \"half a li");
        let files: Vec<(Kind, String)> = Kind::ALL
            .into_iter()
            .map(|kind| (kind, if kind == self.kind { text.clone() } else { String::new() }))
            .collect();
        let cause = if self.state == "error" { json!("outcome_unknown") } else { Value::Null };
        let claim = json!({
            "claim_id": "1", "automation": self.kind.name(), "idempotency_key": event.key(), "error_cause": cause,
            "processing_state": self.state,
        });
        let listed = if self.listed { vec![claim.clone()] } else { vec![] };
        let claims = if self.state == "unheard-of" { vec![] } else { vec![claim] };
        Books::new(&files, claims, &listed)
    }
}

#[test]
fn the_judge_sees_each_fault_in_hand_made_books_and_none_where_there_is_none() {
    use Kind::{Checked, Never, Once};
    let told = |kind, arrivals, state, listed| Told { kind, arrivals, state, listed, resets: 0 };
    let reset = |arrivals, resets| Told { kind: Never, arrivals, state: "done", listed: false, resets };
    for (told, expected) in [
        (told(Once, &[("effect", "k")], "done", false), None),
        (told(Once, &[("effect", "k"), ("repeat", "k")], "done", false), None),
        (told(Once, &[("nothing", "k")], "error", true), None),
        (told(Checked, &[("effect", "k"), ("look", "k")], "done", false), None),
        (told(Checked, &[("nothing", "k"), ("look", "k"), ("effect", "k")], "done", false), None),
        (told(Never, &[("effect", "k")], "error", true), None),
        (told(Never, &[("refused", "k"), ("refused", "k"), ("effect", "k")], "done", false), None),
        (reset(&[("nothing", "k"), ("refused", "k"), ("effect", "k")], 1), None),
        (told(Once, &[], "unheard-of", false), Some("the gate does not know it")),
        (told(Once, &[], "done", false), Some("lost: done, and `write` never happened")),
        (told(Once, &[("nothing", "k")], "done", false), Some("lost: done, and `write` never happened")),
        (told(Once, &[], "none", false), Some("lost: neither done nor in a list")),
        (told(Once, &[("effect", "k")], "error", false), Some("lost: neither done nor in a list")),
        (told(Once, &[("effect", "k"), ("effect", "k")], "done", false), Some("doubled")),
        (told(Once, &[("effect", "k"), ("repeat", "l")], "done", false), Some("sent under 2 keys")),
        (told(Checked, &[("effect", "k"), ("look", "k"), ("effect", "k")], "done", false), Some("doubled")),
        (told(Checked, &[("effect", "k"), ("effect", "k")], "error", true), Some("doubled")),
        (told(Never, &[("effect", "k"), ("effect", "k")], "done", false), Some("doubled")),
        (told(Never, &[("nothing", "k"), ("effect", "k")], "done", false), Some("again after an unknown")),
        (told(Never, &[("effect", "k"), ("refused", "k")], "error", true), Some("again after an unknown")),
        (reset(&[("nothing", "k"), ("nothing", "k"), ("effect", "k")], 1), Some("again after an unknown")),
    ] {
        let mut event = Event::new("random", told.kind, "t-1".to_owned(), &["write"]);
        event.body_sha256 = BODY.to_owned();
        event.resets = told.resets;
        let (report, wrong) = judge(&told.books(&event), &[event], false);
        let name = format!("{:?} {:?} {}: {wrong:?}", told.kind, told.arrivals, told.state);
        match expected {
            None => assert!(wrong.0.is_empty(), "{name}"),
            Some(words) => assert!(wrong.0.iter().any(|w| w.contains(words)), "{words}, {name}"),
        }
        let total = report.total();
        assert_eq!(total.doubled > 0, expected == Some("doubled"), "{name}");
        let lost = expected.is_some_and(|words| words.contains("lost") || words.contains("does not know"));
        assert_eq!(total.lost > 0, lost, "{name}");
    }
}

#[test]
fn the_judge_sees_other_bytes_what_nobody_ordered_and_what_people_left_undone() {
    let told =
        Told { kind: Kind::Once, arrivals: &[("effect", "k")], state: "error", listed: true, resets: 0 };
    let event = |token: &str, meant| Event::new("random", Kind::Once, token.to_owned(), meant);
    let mut mine = event("t-1", &["write"]);
    let books = told.books(&mine);
    let found = |event: &Event, ends| judge(&books, std::slice::from_ref(event), ends).1.0.join("\n");
    assert!(found(&mine, false).contains("not sent the bytes that came in"));
    mine.body_sha256 = BODY.to_owned();
    assert_eq!(found(&mine, false), "");
    assert!(found(&mine, true).contains("neither done nor in a list"));
    assert!(found(&event("t-1", &["other"]), false).contains("nobody meant \"/wild/t-1/write\""));
    let of_another = judge(&books, &[event("t-2", &["write"])], false).1.0.join("\n");
    assert!(of_another.contains("nobody ordered"), "{of_another}");
}
