//! Acts on many claims: the same as single acts, settled by the count, taken up again, undone.

use std::collections::BTreeMap;

use oncegate_core::claim::{Claim, ErrorCause, ProcessingState, State};
use oncegate_store::bulk::{BulkAct, BulkCall, BulkRow, Bulked, Undone};
use oncegate_store::people::{Write, Written, Wrote};

use super::*;

const PLAIN: BulkAct = BulkAct::Reset { verified: false };

fn of(name: &str) -> Filter {
    Filter { automation: Some(automation(name)), ..Filter::default() }
}

async fn begin(bench: &Bench, act: BulkAct, filter: Filter, expect: u64) -> Bulked {
    let call = BulkCall {
        workspace: WS,
        act,
        filter,
        told: "{}".into(),
        expect,
        reason: "the CRM was down".into(),
        actor: "mia".into(),
        token_id: 1,
    };
    match bench.write(Write::Bulk(call), None).await.unwrap() {
        Wrote::Now(Written::Bulk(bulked), _) => bulked,
        other => panic!("{other:?}"),
    }
}

async fn all_of_it(bench: &Bench, act: BulkAct, filter: Filter) -> BulkRow {
    let count = bench.count_bulk(WS, act.clone(), filter.clone()).await.unwrap();
    let Bulked::Begun(row) = begin(bench, act, filter, count.matched).await else { panic!("not begun") };
    let row = finished(bench, row.id).await;
    // The preview and the act agree.
    let refused: BTreeMap<String, u64> = row
        .fates
        .iter()
        .filter(|((f, _), _)| f == "refused")
        .map(|((_, why), n)| (why.clone(), *n))
        .collect();
    assert_eq!((row.count("acted"), refused), (count.would_act, count.would_refuse));
    row
}

async fn finished(bench: &Bench, id: i64) -> BulkRow {
    while bench.step_bulk(3).await.unwrap().is_some() {}
    let row = bench.bulk(WS, id).await.unwrap().unwrap();
    assert!(row.finished_at.is_some());
    assert_eq!(row.fates.values().sum::<u64>(), row.matched, "each in exactly one: {:?}", row.fates);
    row
}

async fn undo(bench: &Bench, id: i64) -> Undone {
    let write =
        Write::UndoBulk { workspace: WS, id, reason: "wrong list".into(), actor: "mia".into(), token_id: 1 };
    match bench.write(write, None).await.unwrap() {
        Wrote::Now(Written::UndoBulk(undone), _) => undone,
        other => panic!("{other:?}"),
    }
}

/// One claim in each state that people meet; the names say which.
async fn zoo(bench: &Bench, name: &str) -> BTreeMap<&'static str, ClaimRef> {
    let mut ids = BTreeMap::new();
    let mut ask = async |what: &'static str, call: ClaimCall| {
        let claimed = bench.ask(call.of(name)).await;
        ids.insert(what, claimed.id);
        claimed.token
    };
    let stale = ask("stale", caller("stale")).await;
    assert!(stale.is_some());
    bench.live(TTL + MINUTE).await;
    ask("live", caller("live")).await;
    ask("waits", caller("waits").queued()).await;
    let token = ask("done", caller("done")).await.unwrap();
    bench.say_with(&token, Call::Done, Some("{\"contact\":7}")).await;
    let token = ask("error", caller("error")).await.unwrap();
    bench.say(&token, failed_for_good()).await;
    let token = ask("retry", caller("retry")).await.unwrap();
    bench.say(&token, failed()).await;
    let token = ask("dismissed", caller("dismissed")).await.unwrap();
    bench.say(&token, failed_for_good()).await;
    bench.person(ids["dismissed"], Act::Dismiss).await;
    ids
}

/// What the core sees, without what differs between two claims that had the same life.
fn life(view: &ClaimView) -> Claim {
    Claim { id: ClaimId([0; 16]), ..view.claim.clone() }
}

#[tokio::test]
async fn a_bulk_act_does_to_each_claim_what_a_single_act_does() {
    let acts = [
        (PLAIN, reset()),
        (
            BulkAct::Reset { verified: true },
            Act::Reset { run_now: false, confirm_holder: None, verified: true },
        ),
        (BulkAct::MarkError { tag: "dup".into() }, Act::MarkError { note: "dup: the CRM was down".into() }),
        (BulkAct::MarkDone, Act::MarkDone),
        (BulkAct::Dismiss, Act::Dismiss),
    ];
    for (bulk, single) in acts {
        for bench in benches().await {
            let (many, one) = (zoo(&bench, "many").await, zoo(&bench, "one").await);
            // Both zoos are as old.
            bench.live(TTL + MINUTE).await;
            let row = all_of_it(&bench, bulk.clone(), of("many")).await;
            let mut acted = 0;
            for (name, id) in &one {
                let single = bench.person(*id, single.clone()).await;
                acted += u64::from(matches!(single, Acted::Written(_)));
                let (a, b) = (bench.seen(many[name]).await, bench.seen(*id).await);
                if !matches!(a.claim.state, State::Processing(_)) && *name != "dismissed" {
                    assert_eq!(a.claim.processing_state(), b.claim.processing_state(), "{bulk:?} {name}");
                    assert_eq!(life(&a).parked, life(&b).parked, "{bulk:?} {name}");
                    assert_eq!(life(&a).resets, life(&b).resets, "{bulk:?} {name}");
                    assert_eq!(life(&a).generation, life(&b).generation, "{bulk:?} {name}");
                }
                let kinds = |story: Vec<String>| story.last().cloned();
                assert_eq!(kinds(bench.story(many[name]).await), kinds(bench.story(*id).await), "{name}");
            }
            assert_eq!(row.count("acted"), acted, "{bulk:?}");
            if let BulkAct::MarkError { tag } = &bulk {
                assert_eq!(bench.seen(many["done"]).await.tag.as_ref(), Some(tag));
            }
        }
    }
}

#[tokio::test]
async fn run_now_queues_what_oncegate_holds_and_refuses_the_rest() {
    for bench in benches().await {
        let caller_done = bench.ask(caller("zap").of("many")).await;
        bench.say(&caller_done.token.unwrap(), failed_for_good()).await;
        let mut ids = Vec::new();
        for n in 0..4 {
            let id = bench.ask(caller(&format!("flow{n}")).of("many").queued()).await.id;
            let run = bench.ask(runner(id, bench.boot())).await;
            bench.say(&run.token.unwrap(), failed_for_good()).await;
            ids.push(id);
        }
        assert_eq!(bench.due_ids().await, []);
        let errors = Filter { state: Some(ProcessingState::Error), ..of("many") };
        let row = all_of_it(&bench, BulkAct::RunNow, errors).await;
        assert_eq!((row.count("acted"), row.count("refused")), (4, 1));
        assert_eq!(bench.due_ids().await.len(), 4);
        assert_eq!(bench.seen(caller_done.id).await.claim.processing_state(), ProcessingState::Error);
    }
}

#[tokio::test]
async fn what_changed_since_the_count_is_left_alone() {
    for bench in benches().await {
        let mut tokens = Vec::new();
        for n in 0..5 {
            let held = bench.ask(caller(&format!("k{n}")).of("many")).await;
            bench.say(held.token.as_ref().unwrap(), failed_for_good()).await;
            tokens.push((held.id, held.token.unwrap()));
        }
        assert_eq!(begin(&bench, PLAIN, of("many"), 4).await, Bulked::CountChanged(5));
        let Bulked::Begun(row) = begin(&bench, PLAIN, of("many"), 5).await else { panic!() };
        // Between the count and its turn: one is proved done, and a new one fails.
        assert_eq!(bench.say(&tokens[4].1, Call::Done).await, Answer::Accepted);
        let new = bench.ask(caller("new").of("many")).await;
        bench.say(&new.token.unwrap(), failed_for_good()).await;
        let row = finished(&bench, row.id).await;
        assert_eq!((row.count("acted"), row.count("changed")), (4, 1));
        assert_eq!(bench.seen(tokens[4].0).await.claim.processing_state(), ProcessingState::Done);
        assert_eq!(bench.seen(new.id).await.claim.processing_state(), ProcessingState::Error);
        let claims = bench.bulk_claims(WS, row.id, None, 100).await.unwrap().rows;
        let fates: Vec<_> = claims.iter().map(|c| c.fate.as_deref().unwrap()).collect();
        assert_eq!(fates, ["acted", "acted", "acted", "acted", "changed"]);
        assert_eq!(bench.bulk(Workspace(2), row.id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_act_goes_on_where_a_restart_cut_it_and_touches_each_claim_once() {
    for mut bench in reopened_benches().await {
        let mut ids = Vec::new();
        for n in 0..10 {
            let held = bench.ask(caller(&format!("k{n}")).of("many")).await;
            bench.say(&held.token.unwrap(), failed_for_good()).await;
            ids.push(held.id);
        }
        let Bulked::Begun(row) = begin(&bench, PLAIN, of("many"), 10).await else { panic!() };
        for _ in 0..3 {
            bench.step_bulk(2).await.unwrap().unwrap();
            bench.reopen().await;
        }
        assert_eq!(bench.bulk(WS, row.id).await.unwrap().unwrap().count("acted"), 6);
        finished(&bench, row.id).await;
        for id in ids {
            let resets = bench.story(id).await.iter().filter(|line| line.starts_with("reset")).count();
            assert_eq!(resets, 1);
        }
        let audit = bench.audit(WS, None, 50).await.unwrap().rows;
        assert_eq!(audit.iter().filter(|row| row.action == "bulk_reset").count(), 1, "one row for all");
        assert!(!audit.iter().any(|row| row.action == "reset"));
    }
}

#[tokio::test]
async fn c95_an_undo_keeps_what_people_fixed_since_and_a_second_changes_nothing() {
    for mut bench in reopened_benches().await {
        let mut ids = Vec::new();
        for n in 1..=5 {
            let held = bench.ask(caller(&format!("c{n}")).of("many")).await;
            bench.say(&held.token.unwrap(), failed_for_good()).await;
            ids.push(held.id);
        }
        let mut before = Vec::new();
        for id in &ids {
            before.push(bench.seen(*id).await);
        }
        let row = all_of_it(&bench, PLAIN, of("many")).await;
        // Since then: c3 ran and is done, c4 was dismissed by a person, c5 runs.
        let c3 = bench.ask(caller("c3").of("many")).await;
        bench.say(&c3.token.unwrap(), Call::Done).await;
        bench.person(ids[3], Act::Dismiss).await;
        let c5 = bench.ask(caller("c5").of("many")).await.token.unwrap();
        let mut fixed = Vec::new();
        for id in &ids[2..] {
            fixed.push(bench.seen(*id).await.claim);
        }

        let Undone::Begun(undone) = undo(&bench, row.id).await else { panic!() };
        assert_eq!(undone.matched, 5);
        bench.reopen().await;
        let undone = finished(&bench, undone.id).await;
        assert_eq!((undone.count("acted"), undone.count("changed"), undone.count("failed")), (2, 3, 0));
        for (id, before) in ids.iter().zip(&before).take(2) {
            let now = bench.seen(*id).await;
            assert_eq!(now.claim.state, before.claim.state);
            assert_eq!(
                (now.claim.parked, now.inbox, now.tag),
                (before.claim.parked, before.inbox, before.tag.clone())
            );
            assert!(now.claim.generation > before.claim.generation, "no old token holds");
            assert_eq!(bench.story(*id).await.last().unwrap(), "undo none");
        }
        for (id, fixed) in ids[2..].iter().zip(&fixed) {
            assert_eq!(bench.seen(*id).await.claim, *fixed, "kept as people left it");
        }
        assert_eq!(bench.say(&c5, Call::Done).await, Answer::Accepted);

        // Again: the same answer, and nothing moves.
        let mut stood = Vec::new();
        for id in &ids {
            stood.push(bench.seen(*id).await.claim);
        }
        let again = undo(&bench, row.id).await;
        assert!(matches!(&again, Undone::Before(b) if b.id == undone.id), "{again:?}");
        assert!(bench.step_bulk(100).await.unwrap().is_none());
        for (id, stood) in ids.iter().zip(stood) {
            assert_eq!(bench.seen(*id).await.claim, stood);
        }
        assert_eq!(undo(&bench, undone.id).await, Undone::IsUndo);
        assert_eq!(undo(&bench, 99).await, Undone::NotFound);
    }
}

#[tokio::test]
async fn an_undo_gives_back_every_state_but_a_lease() {
    for act in [
        BulkAct::Reset { verified: true },
        BulkAct::MarkError { tag: "dup".into() },
        BulkAct::MarkDone,
        BulkAct::Dismiss,
        BulkAct::Tag { tag: Some("dup".into()) },
    ] {
        let of_both = async |name| benches().await.into_iter().map(move |bench| (bench, name));
        for (bench, name) in of_both("many").await.chain(of_both("hooked").await) {
            let ids = zoo(&bench, name).await;
            let mut before = BTreeMap::new();
            for (name, id) in &ids {
                before.insert(*name, bench.seen(*id).await);
            }
            let row = all_of_it(&bench, act.clone(), of(name)).await;
            let Undone::Begun(undone) = undo(&bench, row.id).await else { panic!() };
            let undone = finished(&bench, undone.id).await;
            assert_eq!(undone.count("acted"), row.count("acted"), "{act:?}");
            for (name, id) in &ids {
                let (was, is) = (&before[name], bench.seen(*id).await);
                assert_eq!((&is.result, &is.tag), (&was.result, &was.tag), "{act:?} {name}");
                if let State::Error { cause: ErrorCause::Stale, note, .. } = &is.claim.state {
                    assert!(matches!(was.claim.state, State::Processing(_)), "{act:?} {name}");
                    assert!(note.contains("was undone"), "{note}");
                    continue;
                }
                let numbers =
                    Claim { generation: was.claim.generation, resets: was.claim.resets, ..is.claim.clone() };
                assert_eq!(numbers, was.claim, "{act:?} {name}");
            }
        }
    }
}

#[tokio::test]
async fn an_act_cannot_be_undone_while_it_goes_on_or_after_a_month() {
    for bench in benches().await {
        let held = bench.ask(caller("k").of("many")).await;
        bench.say(&held.token.unwrap(), failed_for_good()).await;
        let Bulked::Begun(row) = begin(&bench, PLAIN, of("many"), 1).await else { panic!() };
        assert_eq!(undo(&bench, row.id).await, Undone::Running);
        finished(&bench, row.id).await;
        bench.clock.advance(DAY * 31);
        bench.reap(100).await.unwrap();
        assert_eq!(undo(&bench, row.id).await, Undone::TooOld);
    }
}

/// A tag is a word about a claim: taking it back takes nothing from whoever holds it.
#[tokio::test]
async fn an_undo_of_a_tag_leaves_each_claim_to_its_holder() {
    for bench in benches().await {
        let ids = zoo(&bench, "many").await;
        let live = bench.ask(caller("held").of("many").on("crm:1")).await;
        let child = bench.ask(caller("child").of("many").under(&live)).await;
        let act = BulkAct::Tag { tag: Some("dup".into()) };
        let row = all_of_it(&bench, act.clone(), of("many")).await;
        let mut before = Vec::new();
        for id in ids.values().chain([&live.id, &child.id]) {
            before.push((*id, bench.seen(*id).await.claim));
        }
        let Undone::Begun(undone) = undo(&bench, row.id).await else { panic!() };
        assert_eq!(finished(&bench, undone.id).await.count("acted"), row.count("acted"));
        for (id, was) in before {
            let is = bench.seen(id).await;
            assert_eq!((is.claim, is.tag), (was, None));
        }
        assert_eq!(bench.say(&child.token.unwrap(), Call::Done).await, Answer::Accepted);
        assert_eq!(bench.say(&live.token.unwrap(), Call::Done).await, Answer::Accepted);

        // Nor from a run whose answer may have got lost.
        let call = || caller("k").of("at_claim").under_run("exec-1:0");
        bench.ask(call()).await;
        let row = all_of_it(&bench, act, of("at_claim")).await;
        let Undone::Begun(undone) = undo(&bench, row.id).await else { panic!() };
        finished(&bench, undone.id).await;
        assert_eq!(bench.answer(call()).await, "run same_run");
    }
}
