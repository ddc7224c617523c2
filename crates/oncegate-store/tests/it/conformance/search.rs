//! Filters: each finds exactly the claims that it names, in whole pages, in both orders; groups add up.

use oncegate_core::claim::{Parked, ProcessingState};
use oncegate_core::inbox::InboxList;
use oncegate_core::limits;
use oncegate_store::people::Write;
use oncegate_store::search::{Age, By};

use super::*;

async fn fill(bench: &Bench, rng: &mut Rng) {
    for n in 0..120 {
        let mut call = caller(&format!("Form:{n}")).of(["welcome", "story", "scoring"][rng.below(3)]);
        call.run_url = (rng.below(3) == 0).then(|| format!("https://zapier.com/runs/{n}"));
        if rng.below(3) == 0 {
            call = call.on(&format!("crm:{}@example.com", rng.below(20)));
        }
        if rng.below(3) == 0 {
            call = call.under_run(&format!("run{n}"));
        }
        let claimed = bench.ask(call).await;
        if let Some(token) = &claimed.token {
            match rng.below(5) {
                0 => drop(bench.say(token, Call::Done).await),
                1 => drop(bench.say(token, failed()).await),
                2 => drop(bench.say(token, failed_for_good()).await),
                _ => {}
            }
        }
        if rng.below(4) == 0 {
            let tag = Some(["dup", "Import 7"][rng.below(2)].to_owned());
            let write = Write::Tag { id: claimed.id, tag, reason: "r".into(), actor: "mia".into() };
            bench.write(write, None).await.unwrap();
        }
        bench.clock.advance(MINUTE * rng.below(200) as u32);
        bench.tick().await.unwrap();
    }
    // The same names in another workspace are never found.
    bench.add_workspace(Workspace(2)).await;
    bench.ask(caller("Form:1").within(Workspace(2)).on("crm:1@example.com").under_run("run1")).await;
}

fn since(view: &ClaimView) -> Timestamp {
    use oncegate_core::claim::State;
    match &view.claim.state {
        State::None { .. } => view.claim.open_since,
        State::Processing(lease) => lease.started_at,
        State::Done { at, .. } | State::Error { at, .. } => *at,
    }
}

fn note(view: &ClaimView) -> String {
    match &view.claim.state {
        oncegate_core::claim::State::Error { note, .. } => note.clone(),
        _ => String::new(),
    }
}

/// What the filter means, said once more in plain Rust.
fn fits(filter: &Filter, view: &ClaimView) -> bool {
    let text = |t: &String| {
        let all = [
            view.key.as_str().to_owned(),
            view.claim.record.as_ref().map(|r| r.as_str().to_owned()).unwrap_or_default(),
            view.run_url.clone().unwrap_or_default(),
            note(view),
        ];
        all.iter().any(|part| part.to_ascii_lowercase().contains(&t.to_ascii_lowercase()))
    };
    let cause = match &view.claim.state {
        oncegate_core::claim::State::Error { cause, .. } => Some(*cause),
        _ => None,
    };
    filter.inbox.is_none_or(|list| view.inbox == Some(list))
        && filter.state.is_none_or(|state| view.claim.processing_state() == state)
        && filter.automation.as_ref().is_none_or(|a| view.automation == *a)
        && filter.only.as_ref().is_none_or(|only| only.contains(&view.automation))
        && filter.record.as_ref().is_none_or(|r| view.claim.record.as_ref() == Some(r))
        && filter.tag.as_ref().is_none_or(|t| view.tag.as_ref() == Some(t))
        && filter.cause.is_none_or(|c| cause == Some(c))
        && filter.parked.is_none_or(|p| view.claim.parked == Some(p))
        && filter.text.as_ref().is_none_or(text)
        && filter.since_before.is_none_or(|at| since(view) < at)
        && filter.since_after.is_none_or(|at| since(view) >= at)
}

fn random_filter(rng: &mut Rng, wall: Timestamp) -> Filter {
    use ProcessingState::{Done, Error, None as Open, Processing};
    use oncegate_core::claim::ErrorCause::{Failed, Stale};
    let mut maybe = |n: usize| rng.below(n) == 0;
    let (a, b, c, d, e, f, g, h, i, j) =
        (maybe(6), maybe(5), maybe(4), maybe(6), maybe(6), maybe(8), maybe(8), maybe(5), maybe(4), maybe(4));
    Filter {
        inbox: a.then(|| InboxList::ALL[rng.below(6)]),
        state: b.then(|| [Open, Processing, Done, Error][rng.below(4)]),
        automation: c.then(|| automation(["welcome", "story", "nobody"][rng.below(3)])),
        only: d.then(|| vec![automation("story"), automation("scoring")]),
        record: e.then(|| record(&format!("crm:{}@example.com", rng.below(20)))),
        tag: f.then(|| ["dup", "Import 7", "none"][rng.below(3)].to_owned()),
        cause: g.then(|| [Failed, Stale][rng.below(2)]),
        parked: (rng.below(10) == 0).then_some(Parked::NeedsReplay),
        text: h.then(|| ["form:1", "EXAMPLE.com", "zapier", "40", "%"][rng.below(5)].to_owned()),
        since_before: i.then(|| wall.before(HOUR * rng.below(200) as u32)),
        since_after: j.then(|| wall.before(HOUR * rng.below(200) as u32)),
        run_id: None,
        oldest_first: rng.below(2) == 0,
        before: None,
        limit: 1 + rng.below(40) as u32,
    }
}

#[tokio::test]
async fn a_filter_finds_exactly_what_it_names() {
    let mut rng = Rng(seed());
    for bench in benches().await {
        fill(&bench, &mut rng).await;
        let all = bench.all(Filter { limit: 500, ..Filter::default() }).await;
        assert!(all.len() > 100);
        let (mut hits, wall) = (0, bench.clock.read().wall);
        for _ in 0..300 {
            let filter = random_filter(&mut rng, wall);
            let mut expected: Vec<_> = all.iter().filter(|v| fits(&filter, v)).map(|v| v.row).collect();
            if filter.oldest_first {
                expected.reverse();
            }
            let found: Vec<_> = bench.all(filter.clone()).await.iter().map(|v| v.row).collect();
            assert_eq!(found, expected, "{filter:?}");
            hits += found.len();
            for by in [(true, true), (true, false), (false, true)] {
                let by = By { automation: by.0, age: by.1 };
                let groups = bench.groups(WS, filter.clone(), by).await.unwrap();
                assert_eq!(groups.total, expected.len() as u64, "{filter:?}");
                assert_eq!(groups.groups.iter().map(|g| g.count).sum::<u64>(), groups.total);
                for group in &groups.groups {
                    let alike = all.iter().filter(|v| fits(&filter, v)).filter(|v| {
                        let ms = wall.as_millis() - since(v).as_millis();
                        group.automation.as_ref().is_none_or(|a| v.automation == *a)
                            && group.age.is_none_or(|age| Age::of_millis(ms) == age)
                    });
                    let (count, oldest) = alike.fold((0, wall), |(n, o), v| (n + 1, o.min(since(v))));
                    assert_eq!((group.count, group.oldest_at), (count, oldest), "{group:?}");
                }
            }
        }
        assert!(hits > 300, "the filters find something: {hits}");
        let run = Filter { run_id: Some(RunId::try_from("run1").unwrap()), limit: 9, ..Filter::default() };
        let under = |v: &ClaimView| v.key.as_str() == "Form:1";
        assert!(bench.all(run).await.iter().all(under));
    }
}

#[test]
fn ages_have_no_gaps() {
    let hours = [0, 1, 24, 7 * 24, 30 * 24].map(|h: i64| h * 3_600_000);
    let ages: Vec<_> = hours.iter().map(|ms| Age::of_millis(*ms).as_str()).collect();
    assert_eq!(ages, ["<1h", "1h-1d", "1d-7d", "7d-30d", ">30d"]);
    assert_eq!(Age::of_millis(3_599_999), Age::Hour);
    assert_eq!(Age::of_millis(-5), Age::Hour, "a clock that was set back");
}

#[tokio::test]
async fn an_export_shows_one_moment_and_two_go_at_a_time() {
    for bench in benches().await {
        let mut tokens = Vec::new();
        for n in 0..400 {
            tokens.push(bench.ask(caller(&format!("k{n}"))).await.token.unwrap());
        }
        let filter = || Filter { oldest_first: true, ..Filter::default() };
        let mut export = bench.export(WS, filter()).await.unwrap();
        let first = export.recv().await.unwrap().unwrap();
        assert_eq!(first.key, key("k0"));
        // What happens from here on is not in it, however slowly it is read.
        for token in &tokens {
            bench.say(token, Call::Done).await;
        }
        bench.ask(caller("later")).await;
        let mut rows = vec![first];
        let other = bench.export(WS, filter()).await.unwrap();
        assert!(bench.export(WS, filter()).await.is_err(), "a third waits for its turn");
        while let Some(row) = export.recv().await {
            rows.push(row.unwrap());
        }
        assert_eq!(rows.len(), 400);
        assert!(rows.iter().all(|v| v.claim.processing_state() == ProcessingState::Processing));
        // Who stops reading gives its turn back.
        drop(other);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let mut again = loop {
            match bench.export(WS, filter()).await {
                Ok(export) => break export,
                Err(_) => assert!(tokio::time::Instant::now() < deadline, "no turn was given back"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(again.recv().await.unwrap().unwrap().claim.processing_state(), ProcessingState::Done);
    }
}

#[tokio::test]
async fn an_export_that_is_hardly_taken_ends() {
    for bench in benches().await {
        let rows = 2 * limits::EXPORT_ROWS_AHEAD;
        for n in 0..rows {
            bench.ask(caller(&format!("k{n}"))).await;
        }
        let mut export = bench.export(WS, Filter { oldest_first: true, ..Filter::default() }).await.unwrap();
        export.recv().await.unwrap().unwrap();
        bench.live(limits::EXPORT_TIME_MAX).await;
        let (mut taken, mut last) = (1, None);
        while let Some(row) = export.recv().await {
            (taken, last) = (taken + 1, Some(row));
        }
        assert!(last.unwrap().is_err(), "half a file must not look like a whole one");
        assert!(taken < rows, "{taken}");
    }
}

#[tokio::test]
async fn a_long_history_is_shown_by_its_newest_rows_and_read_whole_in_pages() {
    for bench in benches().await {
        let held = bench.ask(caller("k")).await;
        bench.say(&held.token.unwrap(), failed_for_good()).await;
        for n in 0..520 {
            let tag = Some(format!("t{n}"));
            let write = Write::Tag { id: held.id, tag, reason: "r".into(), actor: "mia".into() };
            bench.write(write, None).await.unwrap();
        }
        let newest = bench.history(held.id).await.unwrap();
        assert_eq!(newest.len(), 500);
        assert_eq!(newest.last().unwrap().note.as_deref(), Some("t519: r"));
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = bench.history_page(held.id, after, 100).await.unwrap();
            all.extend(page.rows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((all.len(), all[0].kind.as_str()), (522, "run"));
        let theirs = ClaimRef { workspace: Workspace(2), id: held.id.id };
        assert_eq!(bench.history_page(theirs, None, 100).await.unwrap().rows.len(), 0);
    }
}
