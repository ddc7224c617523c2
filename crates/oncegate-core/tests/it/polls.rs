//! Polls: how cursors are read and written, what of a page is taken, where the cursor stands then, and when it is
//! due.

use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::poll::{
    Fault, Form, Item, Mark, Next, Onward, Order, Page, Poll, Position, Start, Taken, Walk, failure_is_told,
};
use oncegate_core::time::Timestamp;
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

fn at(time: &str) -> Timestamp {
    Timestamp::parse_rfc3339(&format!("2026-01-05T{time}Z")).unwrap()
}

fn poll(order: Order) -> Poll {
    Poll {
        every: MINUTE,
        items: Some("results".parse().unwrap()),
        next: Some(Next::Link("next".parse().unwrap())),
        cursor: "at".parse().unwrap(),
        form: Form::Timestamp,
        overlap: Duration::from_secs(1),
        order,
        start: Start::Now,
    }
}

fn page(times: &[&str], next: Option<&str>) -> Page {
    let items: Vec<Value> = times.iter().map(|time| json!({ "at": format!("2026-01-05T{time}Z") })).collect();
    let body = json!({ "results": items, "next": next }).to_string();
    Page::read(&poll(Order::Any), body.as_bytes()).unwrap()
}

#[test]
fn cursors_are_read_and_written_as_they_are_declared() {
    use Form::{Milliseconds, Number, Seconds, Timestamp};
    let noon = 1_767_614_405_000;
    for (form, value, mark, written) in [
        (Timestamp, json!("2026-01-05T12:00:05Z"), Some(noon), "2026-01-05T12:00:05Z"),
        (Timestamp, json!("2026-01-05T14:00:05.999+02:00"), Some(noon + 999), "2026-01-05T12:00:05Z"),
        (Timestamp, json!("2026-01-05T12:00:05.000+0000"), Some(noon), "2026-01-05T12:00:05Z"),
        (Timestamp, json!(" 2026-01-05 12:00:05Z "), Some(noon), "2026-01-05T12:00:05Z"),
        (Timestamp, json!("2026-01-05T12:00:05"), None, ""),
        (Timestamp, json!("2026-01-05"), None, ""),
        (Timestamp, json!("é0000"), None, ""),
        (Timestamp, json!(""), None, ""),
        (Timestamp, json!(1_767_614_405), None, ""),
        (Timestamp, json!(null), None, ""),
        (Seconds, json!(1_767_614_405), Some(noon), "1767614405"),
        (Seconds, json!("1767614405"), Some(noon), "1767614405"),
        (Seconds, json!(1_767_614_405.75), Some(noon + 750), "1767614405"),
        (Seconds, json!(1e300), None, ""),
        (Seconds, json!("NaN"), None, ""),
        (Milliseconds, json!(1_767_614_405_000_i64), Some(noon), "1767614405000"),
        (Milliseconds, json!("1767614405001"), Some(noon + 1), "1767614405001"),
        (Milliseconds, json!(i64::MIN), None, ""),
        (Number, json!(41), Some(41), "41"),
        (Number, json!("41"), Some(41), "41"),
        (Number, json!(i64::MAX), Some(i64::MAX), "9223372036854775807"),
        (Number, json!(41.5), None, ""),
        (Number, json!(u64::MAX), None, ""),
        (Number, json!("0x29"), None, ""),
    ] {
        let read = form.read(&value);
        assert_eq!(read, mark.map(Mark), "{form:?} {value}");
        if let Some(mark) = read {
            let again = form.write(mark);
            assert_eq!(again, written, "{form:?} {value}");
            let again = form.read(&Value::from(again)).unwrap();
            assert!(
                again <= mark && mark.0 - again.0 < 1_000,
                "never later than what was read: {form:?} {value}"
            );
        }
    }
}

#[test]
fn an_answer_is_a_page_or_says_what_it_is_not() {
    let link = |field: &str| Some(Next::Link(field.parse().unwrap()));
    let token = Some(Next::Token { field: "paging.next.after".parse().unwrap(), query: "after".into() });
    let onward = |next: Option<Next>, body: Value| {
        Page::read(&Poll { next, ..poll(Order::Any) }, body.to_string().as_bytes()).map(|page| page.next)
    };
    for (next, body, wanted) in [
        (link("next"), json!({ "results": [], "next": "/a" }), Ok(Some(Onward::Link("/a".into())))),
        (link("next"), json!({ "results": [], "next": null }), Ok(None)),
        (link("next"), json!({ "results": [], "next": false }), Ok(None)),
        (link("next"), json!({ "results": [], "next": " " }), Ok(None)),
        (link("next"), json!({ "results": [] }), Ok(None)),
        (None, json!({ "results": [], "next": "/a" }), Ok(None)),
        (link("next"), json!({ "results": [], "next": ["/a"] }), Err(Fault::NoWay { field: "next".into() })),
        (
            token.clone(),
            json!({ "results": [], "paging": { "next": { "after": 12 } } }),
            Ok(Some(Onward::Token("12".into()))),
        ),
        (token, json!({ "results": [], "paging": {} }), Ok(None)),
    ] {
        assert_eq!(onward(next, body.clone()), wanted, "{body}");
    }
    let read = |items: Option<&str>, body: &str| {
        let poll = Poll { items: items.map(|path| path.parse().unwrap()), ..poll(Order::Any) };
        Page::read(&poll, body.as_bytes())
    };
    let whole = read(None, r#"[{ "at": "2026-01-05T10:00:00Z" }, { "at": null }, 7]"#).unwrap();
    let marks: Vec<_> = whole.items.iter().map(|item| item.mark).collect();
    assert_eq!(
        marks,
        [Some(at("10:00:00").into()), None, None],
        "one says where it stands, the others are taken too"
    );
    let no_list = |place: &str| Fault::NoItems { place: place.to_owned() };
    for (items, body, fault) in [
        (Some("results"), "{}", no_list("at `results`")),
        (Some("results"), r#"{ "results": {} }"#, no_list("at `results`")),
        (None, r#"{ "results": [] }"#, no_list("as a whole")),
    ] {
        assert_eq!(read(items, body), Err(fault), "{body}");
    }
    assert!(matches!(read(None, r#"[{ "at": 1 }]"#), Err(Fault::NoCursor { items: 1, .. })));
    for body in ["", "<html>", "{", r#"[{ "a": 1, "a": 2 }]"#, &"[".repeat(10_000)] {
        assert!(matches!(read(None, body), Err(Fault::Unreadable(_))), "{body}");
    }
}

/// The cursor after each of these pages, of a poll that stood at 10:00:00 and looks at 10:30:00.
fn cursors(order: Order, pages: &[&[&str]]) -> Vec<String> {
    let (poll, now) = (poll(order), at("10:30:00"));
    let mut position = Position::of(&poll, None, at("10:00:00"));
    position.from = at("09:00:00").into();
    let mut walk = Walk::new(&poll, &position);
    assert_eq!(walk.asks(&poll), "2026-01-05T09:59:59Z", "the second in which it stands is read anew (C63)");
    let last = pages.len() - 1;
    let step = |(n, times): (usize, &&[&str])| {
        walk.over(&page(times, None)).unwrap();
        poll.form.write(walk.cursor(&poll, now, n == last))[11..19].to_owned()
    };
    pages.iter().enumerate().map(step).collect()
}

#[test]
fn the_cursor_moves_over_what_was_read_and_over_nothing_else() {
    use Order::{Any, Ascending};
    let ascending: &[&[&str]] = &[&["10:01:00", "10:02:00"], &["10:02:00", "10:03:00"], &["10:04:00"]];
    let descending: &[&[&str]] = &[&["10:04:00", "10:03:00"], &["10:02:00"], &["10:01:00"]];
    for (order, pages, wanted) in [
        (Ascending, ascending, &["10:02:00", "10:03:00", "10:04:00"][..]),
        (Any, ascending, &["10:00:00", "10:00:00", "10:04:00"]),
        (Any, descending, &["10:00:00", "10:00:00", "10:04:00"]),
        // It was declared, and does not hold: back to where it began.
        (Ascending, descending, &["10:00:00", "10:00:00", "10:04:00"]),
        (Ascending, &[&["10:04:00"], &["10:03:00"], &["10:05:00"]], &["10:04:00", "10:00:00", "10:05:00"]),
        // Nothing there; nothing later than where it stands; later than now.
        (Any, &[&[]], &["10:00:00"]),
        (Ascending, &[&["09:30:00"], &["09:40:00"]], &["10:00:00", "10:00:00"]),
        (Any, &[&["10:10:00", "23:00:00"]], &["10:30:00"]),
        (Ascending, &[&["10:10:00"], &["23:00:00"]], &["10:10:00", "10:30:00"]),
    ] {
        assert_eq!(cursors(order, pages), wanted, "{order:?} {pages:?}");
    }
}

/// An API of which every change is shown some time after it was made; whatever the pages, the order and the moment at
/// which a poll breaks off, each is read within two further polls.
#[test]
fn whatever_breaks_off_nothing_is_left_out() {
    for (order, per_page, breaks_at, late) in
        (0..2 * 4 * 6 * 3).map(|n| (n % 2, n / 2 % 4 + 1, n / 8 % 6, (n / 48) as i64))
    {
        let order = [Order::Any, Order::Ascending][order];
        let poll = Poll { overlap: Duration::from_secs(5), ..poll(order) };
        let changes: Vec<i64> = vec![1, 1, 2, 3, 3, 3, 4, 7, 7, 9, 11];
        let start = at("10:00:00");
        let mut position = Position::of(&poll, None, start);
        let mut read = vec![0; changes.len()];
        for (turn, now) in [6, 9, 12, 15, 30, 45].into_iter().enumerate() {
            let mut walk = Walk::new(&poll, &position);
            let asks = poll.form.read(&Value::from(walk.asks(&poll))).unwrap();
            let mark = |change: i64| Mark(start.as_millis() + change * 1_000);
            let shown: Vec<usize> = (0..changes.len())
                .filter(|n| changes[*n] + late <= now && mark(changes[*n]) > asks)
                .collect();
            let pages: Vec<&[usize]> =
                if shown.is_empty() { vec![&[]] } else { shown.chunks(per_page).collect() };
            for (n, numbers) in pages.iter().enumerate() {
                if turn % 2 == 0 && n == breaks_at {
                    break;
                }
                let items: Vec<Value> = numbers
                    .iter()
                    .map(|n| json!({ "n": n, "at": Timestamp::from_millis(mark(changes[*n]).0) }))
                    .collect();
                let body = json!({ "results": items }).to_string();
                let page = Page::read(&poll, body.as_bytes()).unwrap();
                walk.over(&page).unwrap();
                page.items.iter().filter(|item| walk.takes(item.mark)).for_each(|item| {
                    read[usize::try_from(item.payload["n"].as_u64().unwrap()).unwrap()] += 1;
                });
                let now = Timestamp::from_millis(mark(now).0);
                position.cursor = walk.cursor(&poll, now, n + 1 == pages.len());
            }
        }
        assert!(read.iter().all(|times| *times > 0), "{order:?} {per_page} {breaks_at} {late}: {read:?}");
    }
}

#[test]
fn pages_that_lead_in_a_circle_or_never_end_are_left() {
    let poll = poll(Order::Any);
    let position = Position::of(&poll, None, at("10:00:00"));
    let mut walk = Walk::new(&poll, &position);
    let mut go = |times: &[&str], next: &str| {
        let page = page(times, Some(next));
        walk.over(&page).and_then(|()| walk.onward(&page))
    };
    assert_eq!(go(&["10:01:00"], "?p=2"), Ok(Some(Onward::Link("?p=2".into()))));
    assert_eq!(go(&[], "?p=3"), Ok(Some(Onward::Link("?p=3".into()))));
    assert_eq!(go(&[], "?p=4"), Ok(Some(Onward::Link("?p=4".into()))), "two empty pages are no circle");
    assert_eq!(go(&["10:02:00"], "?p=2"), Err(Fault::Repeats), "it was there");
    assert_eq!(go(&["10:01:00"], "?p=5"), Err(Fault::Repeats), "it has read that");

    for (order, moved) in [(Order::Any, false), (Order::Ascending, true)] {
        let poll = Poll { order, ..poll.clone() };
        let mut walk = Walk::new(&poll, &position);
        let mut last = Ok(None);
        for n in 0..limits::POLL_PAGES_MAX {
            let page = page(&[&format!("10:{:02}:{:02}", n / 60, n % 60)], Some(&format!("?p={n}")));
            walk.over(&page).unwrap();
            last = walk.onward(&page);
            assert_eq!(last.is_ok(), n + 1 < limits::POLL_PAGES_MAX, "{n}");
        }
        assert_eq!(last, Err(Fault::TooManyPages));
        assert_eq!(
            walk.has_moved(&poll, at("11:00:00")),
            moved,
            "{order:?}: the next poll goes on behind it"
        );
    }
}

#[test]
fn what_lies_before_where_it_began_is_history() {
    let poll = poll(Order::Any);
    let walk = Walk::new(&poll, &Position::of(&poll, None, at("10:00:00")));
    let takes = |time: &str| walk.takes(Some(at(time).into()));
    assert_eq!(
        [takes("09:59:58"), takes("09:59:59"), takes("10:00:00"), walk.takes(None)],
        [false, true, true, true]
    );
    let Item { mark, .. } = &page(&["10:00:00"], None).items[0];
    assert!(walk.takes(*mark));
}

#[test]
fn a_poll_goes_on_from_where_it_stands_whatever_is_declared_anew() {
    let poll = poll(Order::Any);
    let mut stands = Position::of(&poll, None, at("08:00:00"));
    stands.cursor = at("09:30:00").into();
    let now = at("10:00:00");
    let cursor = |poll: &Poll, before: &Position| Position::of(poll, Some(before.clone()), now).cursor;
    let stood: Mark = at("09:30:00").into();
    assert_eq!(cursor(&poll, &stands), stood);
    let form = Poll { form: Form::Seconds, ..poll.clone() };
    assert_eq!(cursor(&form, &stands), stood, "the same instants, written otherwise");
    let earlier = Poll { start: Start::At(at("07:00:00").into()), ..poll.clone() };
    assert_eq!(cursor(&earlier, &stands), at("07:00:00").into(), "somebody wants history");
    let again = Position { cursor: stood, ..Position::of(&earlier, Some(stands.clone()), now) };
    assert_eq!(cursor(&earlier, &again), stood, "once");
    assert_eq!(cursor(&poll, &again), stood, "`now` leaves nothing out");
    let numbers = Poll { form: Form::Number, start: Start::At(Mark(5)), ..poll.clone() };
    assert_eq!(cursor(&numbers, &stands), Mark(5), "an instant is no number");
    // A clock that was ahead by years, and was mended.
    let ahead =
        Position { cursor: Mark(now.as_millis() * 2), from: Mark(now.as_millis() * 2), ..stands.clone() };
    let mended = Position::of(&poll, Some(ahead.clone()), now);
    assert_eq!((mended.cursor, mended.from), (now.into(), now.into()));
    let declared = Poll { start: Start::At(ahead.cursor), ..poll.clone() };
    let begun = Position::of(&declared, None, now);
    assert_eq!(cursor(&declared, &begun), ahead.cursor, "declared is declared");
    // As it is stored, and of which kind it is.
    assert_eq!(Position::read(&stands.write().unwrap()), Ok(Some(stands.clone())));
    assert_eq!(Position::read(r#"{ "rhythm": "every 1h", "until": "2026-01-05T10:00:00Z" }"#), Ok(None));
    assert!(Position::read("{}").is_err(), "a later version's is not thrown away");
    let schedule = oncegate_core::schedule::Position::read(&stands.write().unwrap());
    assert_eq!(schedule, Ok(None));
}

#[test]
fn it_is_due_when_its_time_has_come_and_nobody_is_at_it() {
    let poll = poll(Order::Any);
    let now = at("10:00:00");
    let fresh = Position::of(&poll, None, now);
    assert_eq!(fresh.due(&poll, now), now, "at once");
    let mut under = fresh.clone();
    under.begins(now, now.after(3 * MINUTE));
    assert_eq!(under.due(&poll, now), now.after(3 * MINUTE), "one is under way");
    let mut well = under.clone();
    assert!(!well.succeeds(Taken::default(), now));
    assert_eq!(well.due(&poll, now), now.after(MINUTE));
    assert_eq!(well.due(&Poll { every: MINUTE * 60, ..poll.clone() }, now), now.after(60 * MINUTE));
    let mut stopped = under.clone();
    stopped.stops();
    assert_eq!(stopped.due(&poll, now), now);
    // What a clock wrote that was wrong by years.
    let mut ahead = fresh.clone();
    ahead.begins(now.after(MINUTE * 60 * 24 * 400), now.after(MINUTE * 60 * 24 * 400));
    assert_eq!(ahead.due(&poll, now), now);
    assert!(ahead.fails(&poll, "x".into(), None, now).again_at <= now.after(MINUTE));

    let mut fails = under;
    let mut pauses = vec![];
    for _ in 0..7 {
        fails.begins(now, now);
        pauses.push(fails.fails(&poll, "x".into(), None, now).again_at.since(now).as_secs() / 60);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 15, 15, 15]);
    let hourly = Poll { every: 60 * MINUTE, ..poll.clone() };
    assert_eq!(fails.fails(&hourly, "x".into(), None, now).again_at, now.after(60 * MINUTE));
    assert_eq!(fails.fails(&poll, "x".into(), Some(90 * MINUTE), now).again_at, now.after(90 * MINUTE));
    let year = Some(MINUTE * 60 * 24 * 365);
    assert_eq!(fails.fails(&poll, "x".into(), year, now).again_at, now.after(limits::POLL_WAIT_MAX));
    assert!(fails.succeeds(Taken::default(), now), "somebody was told");
    assert_eq!(fails.failing, None);
    let told: Vec<u32> = (0..100).filter(|n| failure_is_told(*n)).collect();
    assert_eq!(told, [3, 6, 12, 24, 48, 96]);
}
