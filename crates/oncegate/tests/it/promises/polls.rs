//! Polls: whatever the API answers, nothing is lost and nothing is doubled, and a person sees what is wrong.

use serde_json::{Value, json};

use crate::cases::polls::{effects, has_polled, page, polling, shown};
use crate::cases::schedules::told;
use crate::cli::run;
use crate::harness::{Gate, Hold, Receiver, Reply, at, eventually, mins, secs};

const KEY: &str = "key: [id]";

async fn started(poll: &str, api: &Receiver, crm: &Receiver) -> Gate {
    let poll = format!("every: 1m\n      start: '2026-01-05T09:00:00Z'\n      {poll}");
    polling(KEY, &poll, api, crm).start().await
}

fn with_next(items: &[&str], next: &Value) -> Reply {
    let mut page = page(items);
    page["next"] = next.clone();
    Reply::json(&page)
}

fn text(status: u16, body: &str) -> Reply {
    Reply::Status(status, vec![], body.to_owned())
}

/// Waits until so many polls failed in a row.
async fn has_failed(gate: &Gate, in_a_row: u32) -> Value {
    eventually(&format!("{in_a_row} polls failed"), async || {
        let shown = shown(gate).await;
        (shown["failing"]["in_a_row"] == in_a_row).then_some(shown)
    })
    .await
}

/// Lets time pass until the next poll is due.
async fn next(gate: &Gate, shown: &Value) {
    gate.advance_to(at(shown["next_at"].as_str().unwrap()).max(gate.now())).await;
}

/// What the API was asked for, in order.
fn asked(api: &Receiver) -> Vec<String> {
    let since = |path: &str| path.split_once("since=").map(|(_, since)| since.replace("%3A", ":"));
    api.requests().iter().filter_map(|request| since(&request.path)).collect()
}

#[tokio::test]
async fn each_answer_that_is_no_page_is_told_and_asked_for_again_with_nothing_lost() {
    let elsewhere = with_next(&["r1@10:00:00"], &json!("https://evil.example/contacts?page=2"));
    let circle = with_next(&["r1@10:00:00"], &json!("?since=2026-01-05T08:59:00Z&page=2"));
    let twice = format!("{{\"results\": [], \"results\": [{}]}}", "{}");
    for (name, replies, says, effects_by_then) in [
        ("401", vec![text(401, "{}")], "answered 401; check the credentials in `headers`", 0),
        ("429", vec![Reply::retry_after(429, "120")], "answered 429 and asked to wait 120 s", 0),
        ("503", vec![Reply::retry_after(503, "120")], "answered 503 and asked to wait 120 s", 0),
        ("500", vec![text(500, "oops")], "answered 500", 0),
        (
            "302",
            vec![Reply::Status(302, vec![("location", "/login".into())], String::new())],
            "redirects are not",
            0,
        ),
        ("html", vec![text(200, "<html>s3cret</html>")], "the answer cannot be read: it is not JSON", 0),
        ("twice", vec![text(200, &twice)], "the answer cannot be read", 0),
        ("nothing", vec![text(204, "")], "the answer cannot be read", 0),
        ("no list", vec![text(200, "{\"results\": {\"a\": 1}}")], "no list at `results`; check `items`", 0),
        (
            "no cursor",
            vec![text(200, "{\"results\": [{\"id\": \"r0\"}]}")],
            "has a `updated_at` that is a date",
            0,
        ),
        ("too large", vec![text(200, &" ".repeat(5 * 1024 * 1024 + 1))], "has more than 5242880 bytes", 0),
        ("silence", vec![Reply::Silence], "did not answer within 1000 ms", 0),
        ("reset", vec![Reply::Reset], "broke off", 0),
        ("way", vec![with_next(&["r1@10:00:00"], &json!({ "a": 1 }))], "is neither a text nor a number", 0),
        ("elsewhere", vec![elsewhere], "the next page is on another server", 1),
        ("circle", vec![circle.clone(), circle], "a page came a second time", 1),
        (
            "other words, same page",
            vec![with_next(&["r1@10:00:00"], &json!("?p=2")), with_next(&["r1@10:00:00"], &json!("?p=3"))],
            "a page came a second time",
            1,
        ),
    ] {
        let (api, crm) = (Receiver::start().await, Receiver::start().await);
        let tries = replies.len();
        api.script("/contacts", replies);
        api.always("/contacts", Reply::json(&page(&["r1@10:00:00", "r2@09:59:00"])));
        let gate = started("timeout: 1s\n      next: next", &api, &crm).await;
        let failed = has_failed(&gate, 1).await;
        let reason = failed["failing"]["reason"].as_str().unwrap();
        assert!(reason.contains(says) && !reason.contains("s3cret"), "{name}: {reason}");
        assert_eq!(failed["cursor"], "2026-01-05T09:00:00Z", "{name}");
        assert_eq!((api.to("/contacts").len(), failed["under_way"].clone()), (tries, json!(false)), "{name}");
        crm.got("/put", effects_by_then).await;
        assert_eq!(told(&gate, "poll_fails").await, None, "{name}: one bad minute is nobody's business");
        let waits = at(failed["next_at"].as_str().unwrap()).since(gate.now());
        let wanted = if matches!(name, "429" | "503") { 120 } else { 60 };
        assert_eq!(waits, secs(wanted), "{name}");
        gate.advance(waits - secs(1)).await;
        assert_eq!(api.to("/contacts").len(), tries, "{name}: not before");
        next(&gate, &failed).await;
        let well = has_polled(&gate, gate.now()).await;
        crm.got("/put", 2).await;
        assert_eq!(
            (well["cursor"].clone(), well["failing"].clone()),
            (json!("2026-01-05T10:00:00Z"), Value::Null)
        );
        assert_eq!(effects(&crm), ["r1", "r2"], "{name}");
    }
}

#[tokio::test]
async fn a_poll_that_fails_again_and_again_is_told_once_and_no_more_when_it_is_over() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.always("/contacts", text(401, "{}"));
    let mut gate = started("", &api, &crm).await;
    for failures in 1..=5 {
        let failed = has_failed(&gate, failures).await;
        // It is told when it was written down, in one transaction.
        let notice = told(&gate, "poll_fails").await;
        match failures {
            1 | 2 => assert_eq!(notice, None),
            _ => {
                let (count, words) = notice.unwrap();
                assert!(
                    words
                        .starts_with("the poll `contacts` failed 3 times in a row since 2026-01-05T10:00:00")
                );
                assert!(words.contains("answered 401") && count == 1, "{count} {words}");
            }
        }
        let waits = at(failed["next_at"].as_str().unwrap()).since(gate.now());
        assert_eq!(waits, mins([1, 2, 4, 8, 15][failures as usize - 1]), "longer and longer, and no longer");
        next(&gate, &failed).await;
    }
    has_failed(&gate, 6).await;
    assert_eq!(told(&gate, "poll_fails").await.unwrap().0, 2, "told again when there are twice as many");
    let page_of_all = run(&gate, &["sources"]).ok();
    assert!(page_of_all.contains("contacts: failed 6 times in a row"), "{page_of_all}");
    let page_of_one = run(&gate, &["sources", "contacts"]).ok();
    assert!(page_of_one.contains("answered 401"), "{page_of_one}");
    // Restarts change nothing of it.
    gate.restart().await;
    let failed = has_failed(&gate, 6).await;
    api.always("/contacts", Reply::json(&page(&["r1@10:00:00"])));
    next(&gate, &failed).await;
    has_polled(&gate, gate.now()).await;
    assert_eq!(told(&gate, "poll_fails").await, None, "it is over");
    crm.got("/put", 1).await;
}

#[tokio::test]
async fn pages_that_came_stay_and_the_cursor_moves_with_them_only_where_their_order_is_declared() {
    let two = json!("/contacts?page=2");
    for (order, next_since) in [("", "2026-01-05T08:59:00Z"), ("order: ascending", "2026-01-05T09:39:00Z")] {
        let (api, crm) = (Receiver::start().await, Receiver::start().await);
        api.script("/contacts?page=2", [Reply::Silence]);
        api.always("/contacts?page=2", Reply::json(&page(&["r3@09:50:00"])));
        api.always("/contacts", with_next(&["r1@09:30:00", "r2@09:40:00"], &two));
        let gate = started(&format!("timeout: 1s\n      next: next\n      {order}"), &api, &crm).await;
        let failed = has_failed(&gate, 1).await;
        crm.got("/put", 2).await;
        next(&gate, &failed).await;
        let well = has_polled(&gate, gate.now()).await;
        crm.got("/put", 3).await;
        assert_eq!(effects(&crm), ["r1", "r2", "r3"], "{order}");
        assert_eq!(asked(&api), ["2026-01-05T08:59:00Z", next_since], "{order}");
        assert_eq!(well["cursor"], "2026-01-05T09:50:00Z", "{order}");
    }
    // An order that is declared and does not hold: nothing is believed to be read but what was.
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.script("/contacts?page=2", [text(500, "")]);
    api.always("/contacts?page=2", Reply::json(&page(&["r1@09:30:00"])));
    api.always("/contacts", with_next(&["r3@09:50:00", "r2@09:40:00"], &two));
    let gate = started("next: next\n      order: ascending", &api, &crm).await;
    let failed = has_failed(&gate, 1).await;
    assert_eq!(failed["cursor"], "2026-01-05T09:00:00Z");
    next(&gate, &failed).await;
    has_polled(&gate, gate.now()).await;
    crm.got("/put", 3).await;
}

#[tokio::test]
async fn a_word_leads_from_page_to_page_and_empty_pages_are_no_end() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.script(
        "/contacts",
        [
            with_next(&["r1@09:30:00"], &json!("a b&c")),
            with_next(&[], &json!(7)),
            with_next(&["r2@09:40:00"], &json!("")),
        ],
    );
    let gate = started("next: { token: next, query: after }", &api, &crm).await;
    let well = has_polled(&gate, gate.now()).await;
    crm.got("/put", 2).await;
    let paths: Vec<String> = api.requests().into_iter().map(|request| request.path).collect();
    let since = "/contacts?since=2026-01-05T08%3A59%3A00Z";
    assert_eq!(paths, [since.to_owned(), format!("{since}&after=a+b%26c"), format!("{since}&after=7")]);
    assert_eq!(well["last_brought"], json!({ "pages": 3, "items": 2, "new": 2, "older": 0 }));
    let keys: std::collections::BTreeSet<String> = api.by_key().into_keys().collect();
    assert_eq!(keys.len(), 3, "no question is answered with the answer to another one");
}

#[tokio::test]
async fn an_item_without_identity_is_kept_for_a_person_and_stops_no_other() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    let item = json!({ "email": "ann@example.com", "updated_at": "2026-01-05T09:40:00Z" });
    let mut answer = page(&["r1@09:30:00", "r2@09:50:00"]);
    answer["results"].as_array_mut().unwrap().insert(1, item);
    api.always("/contacts", Reply::json(&answer));
    let mut gate = started("overlap: 1h", &api, &crm).await;
    has_polled(&gate, gate.now()).await;
    crm.got("/put", 2).await;
    let rejected = gate.api.rejected().await;
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert!(rejected[0]["reason"].as_str().unwrap().contains("`id` is missing"), "{rejected:?}");
    // It comes with each poll, and again after a restart, when the process knows nothing of it.
    gate.advance(mins(1)).await;
    has_polled(&gate, gate.now()).await;
    gate.restart().await;
    gate.advance(mins(1)).await;
    has_polled(&gate, gate.now()).await;
    assert_eq!(gate.api.rejected().await.len(), 1);
    gate.api.release(&rejected[0]["id"]).await.problem(422, "invalid_field");
}

#[tokio::test]
async fn a_rejected_item_runs_once_its_key_is_mended() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    let item = json!({ "id": "r1", "updated_at": "2026-01-05T09:40:00Z" });
    api.script("/contacts", [Reply::json(&json!({ "results": [item] }))]);
    api.always("/contacts", Reply::json(&page(&[])));
    let poll = "every: 1m\n      start: '2026-01-05T09:00:00Z'";
    let mut gate = polling("key: [contact_id]", poll, &api, &crm).start().await;
    has_polled(&gate, gate.now()).await;
    let rejected = gate.api.rejected().await;
    gate.api.release(&rejected[0]["id"]).await.problem(422, "invalid_field");
    gate.restart_with(|yaml| yaml.replace("contact_id", "id")).await;
    let released = gate.api.release(&rejected[0]["id"]).await.ok();
    assert_eq!(released["status"], "accepted");
    crm.got("/put", 1).await;
    assert_eq!(effects(&crm), ["r1"]);
}

#[tokio::test]
async fn a_page_of_ten_thousand_is_taken_whole_and_once() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    let item =
        |n: usize| json!({ "id": format!("r{n}"), "updated_at": format!("2026-01-05T09:{:02}:00Z", n % 60) });
    let answer = json!({ "results": (0..10_000).map(item).collect::<Vec<_>>() });
    api.script("/contacts", [Reply::json(&page(&[]))]);
    api.always("/contacts", Reply::json(&answer));
    let mut gate = started("overlap: 2h", &api, &crm).await;
    has_polled(&gate, gate.now()).await;
    gate.api.pause("sync").await.ok();
    for new in [10_000, 0] {
        gate.advance(mins(1)).await;
        let well = has_polled(&gate, gate.now()).await;
        assert_eq!(
            (&well["last_brought"]["items"], &well["last_brought"]["new"]),
            (&json!(10_000), &json!(new))
        );
    }
    // What the process knew is gone; what the store knows is not.
    gate.restart().await;
    gate.advance(mins(1)).await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(well["last_brought"]["new"], 0);
    for id in ["r0", "r199", "r200", "r9999"] {
        assert_eq!(gate.api.find("sync", id).await.unwrap()["processing_state"], "none", "{id}");
    }
    assert_eq!(crm.requests().len(), 0);
}

#[tokio::test]
async fn a_restart_goes_on_from_the_cursor_and_what_was_read_before_a_kill_is_stopped_by_its_key() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    let hold = Hold::new();
    let second = Reply::Held(hold.clone(), Box::new(Reply::json(&page(&["r2@09:20:00"]))));
    api.script("/contacts?page=2", [second]);
    api.always("/contacts?page=2", Reply::json(&page(&["r2@09:20:00"])));
    api.always("/contacts", with_next(&["r1@09:40:00"], &json!("/contacts?page=2")));
    let mut gate = started("next: next", &api, &crm).await;
    api.got("/contacts?page=2", 1).await;
    eventually("the first page has run", async || {
        gate.api.find("sync", "r1").await.filter(|claim| claim["processing_state"] == "done")
    })
    .await;
    assert_eq!(shown(&gate).await["under_way"], true);
    gate.crash();
    gate.reopen().await;
    // Whoever was killed says nothing: it is believed to be at work for as long as a page may take.
    gate.advance(mins(2)).await;
    has_polled(&gate, gate.now().before(mins(1))).await;
    crm.got("/put", 2).await;
    assert_eq!(effects(&crm), ["r1", "r2"]);
    let claim = gate.api.find("sync", "r1").await.unwrap();
    assert_eq!((&claim["processing_state"], &claim["attempt"]), (&json!("done"), &json!(1)));
    // And one that was told to end lets go: the next one asks at once, for what is behind the cursor.
    api.always("/contacts", Reply::json(&page(&["r1@09:40:00", "r3@09:50:00"])));
    gate.restart().await;
    gate.advance(mins(1)).await;
    let well = has_polled(&gate, gate.now()).await;
    crm.got("/put", 3).await;
    assert_eq!(asked(&api).last().unwrap(), "2026-01-05T09:39:00Z");
    assert_eq!(well["cursor"], "2026-01-05T09:50:00Z");
    hold.let_go();
    // Also in the middle of a page: nobody waits for a process that said that it ends.
    let hold = Hold::new();
    api.script("/contacts", [Reply::Held(hold.clone(), Box::new(Reply::json(&page(&[]))))]);
    let before = api.to("/contacts").len();
    gate.advance(mins(1)).await;
    api.got("/contacts", before + 1).await;
    gate.restart().await;
    api.got("/contacts", before + 2).await;
    hold.let_go();
}

#[tokio::test]
async fn a_new_poll_runs_no_history_and_the_future_holds_up_nothing() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    // An API that shows everything, whatever it is asked for.
    let all = |more: &[&str]| {
        let mut items = vec!["old@08:00:00", "older@07:00:00"];
        items.extend(more);
        Reply::json(&page(&items))
    };
    api.always("/contacts", all(&[]));
    let gate = polling(KEY, "every: 1m", &api, &crm).start().await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(
        (&well["cursor"], &well["last_brought"]["older"]),
        (&json!("2026-01-05T10:00:00Z"), &json!(2))
    );
    api.always("/contacts", all(&["r1@10:00:30", "r2@23:00:00"]));
    gate.advance(mins(1)).await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(
        well["cursor"], "2026-01-05T10:01:00Z",
        "what is dated tonight does not keep away what comes before"
    );
    api.always("/contacts", all(&["r1@10:00:30", "r2@23:00:00", "r3@10:01:10"]));
    gate.advance(mins(1)).await;
    has_polled(&gate, gate.now()).await;
    // Nor does the cursor go back with what the API shows.
    api.always("/contacts", all(&[]));
    gate.advance(mins(1)).await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(well["cursor"], "2026-01-05T10:02:00Z");
    crm.got("/put", 3).await;
    assert_eq!(effects(&crm), ["r1", "r2", "r3"]);
}

#[tokio::test]
async fn an_earlier_start_brings_history_once_and_a_source_may_become_another_kind() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.always("/contacts", Reply::json(&page(&["old@08:00:00", "r1@09:59:30"])));
    let mut gate = polling(KEY, "every: 1m\n      start: now", &api, &crm).start().await;
    has_polled(&gate, gate.now()).await;
    crm.got("/put", 1).await;
    // It is polled at once, whenever the last one was.
    gate.restart_with(|yaml| yaml.replace("start: now", "start: '2026-01-05T07:00:00Z'")).await;
    crm.got("/put", 2).await;
    has_polled(&gate, gate.now()).await;
    assert_eq!(effects(&crm), ["old", "r1"]);
    // Back to `now`: it goes on from where it stands, and leaves nothing out.
    gate.restart_with(|yaml| yaml.replace("start: '2026-01-05T07:00:00Z'", "start: now")).await;
    gate.advance(mins(1)).await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(well["starts_from"], "2026-01-05T07:00:00Z");
    let poll_yaml = std::cell::RefCell::new(String::new());
    gate.restart_with(|yaml| {
        *poll_yaml.borrow_mut() = yaml.to_owned();
        let (before, _) = yaml.split_once("    key:").unwrap();
        format!("{before}    schedule: {{ every: 1h }}\n")
    })
    .await;
    eventually("it runs by the clock now", async || {
        let shown = shown(&gate).await;
        (!shown["counts_from"].is_null()).then_some(())
    })
    .await;
    gate.restart_with(|_| poll_yaml.into_inner()).await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(well["starts_from"], json!(gate.now().to_string().replace(".000Z", "Z")), "it is new again");
}

#[tokio::test]
async fn a_poll_keeps_to_what_its_target_allows() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.always("/contacts?page=2", Reply::json(&page(&["r2@09:50:00"])));
    api.always("/contacts", with_next(&["r1@09:40:00"], &json!("/contacts?page=2")));
    let poll = "every: 10m\n      next: next\n      start: '2026-01-05T09:00:00Z'";
    let setup =
        polling(KEY, poll, &api, &crm).top(&format!("targets: {{ '{}': {{ rate: 1/30s }} }}", api.address));
    let gate = setup.start().await;
    api.got("/contacts?since=2026-01-05T08%3A59%3A00Z", 1).await;
    crm.got("/put", 1).await;
    gate.advance(secs(25)).await;
    assert_eq!(api.requests().len(), 1, "its turn has not come");
    eventually("its turn comes", async || {
        gate.advance(secs(5)).await;
        (api.requests().len() == 2).then_some(())
    })
    .await;
    has_polled(&gate, at("2026-01-05T10:00:00Z")).await;
    crm.got("/put", 2).await;
}

#[tokio::test]
async fn what_is_shown_of_a_poll_holds_no_secret_and_nobody_can_send_to_it() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.always("/contacts", Reply::json(&page(&["r1@09:59:59"])));
    let poll = "every: 1m\n      headers: { Authorization: env:CRM }";
    let gate = polling(KEY, poll, &api, &crm).var("CRM", "Bearer s3cret-of-the-crm").start().await;
    let well = has_polled(&gate, gate.now()).await;
    assert_eq!(api.requests()[0].headers["authorization"], "Bearer s3cret-of-the-crm");
    assert_eq!(well["url"], format!("{}/contacts", api.url()));
    let all = gate.api.get("/v1/sources").await.ok();
    assert_eq!((all["polls"].as_array().unwrap().len(), &all["sources"]), (1, &json!([])));
    assert!(!all.to_string().contains("s3cret"));
    let other = gate.bound_to("another").await;
    assert_eq!(other.get("/v1/sources").await.ok()["polls"], json!([]));
    other.get("/v1/sources/contacts").await.problem(404, "not_found");
    gate.api.post("/in/contacts", &json!({ "id": "r9" })).await.problem(404, "unknown_source");
    let claim = gate.api.find("sync", "r1").await.unwrap();
    let claim = gate.api.show(claim["claim_id"].as_str().unwrap()).await;
    assert_eq!(claim["history"][0]["actor"], "source:contacts");
    // What is read back with each poll is not told with each poll.
    crm.got("/put", 1).await;
    let lines =
        async || gate.api.find("sync", "r1").await.filter(|claim| claim["processing_state"] == "done");
    let before = eventually("it is done", lines).await["history"].clone();
    for _ in 0..3 {
        gate.advance(mins(1)).await;
        has_polled(&gate, gate.now()).await;
    }
    assert!(before.as_array().is_some_and(|lines| lines.len() > 1), "{before}");
    assert_eq!(lines().await.unwrap()["history"], before);
    for page in [run(&gate, &["sources"]).ok(), run(&gate, &["sources", "contacts"]).ok()] {
        assert!(page.contains("contacts") && page.contains("2026-01-05T10:00:00Z"), "{page}");
        assert!(!page.contains("s3cret"));
    }
}

#[tokio::test]
async fn a_paused_automation_takes_what_is_new_and_runs_it_when_it_is_resumed() {
    let (api, crm) = (Receiver::start().await, Receiver::start().await);
    api.script("/contacts", [Reply::json(&page(&[]))]);
    api.always("/contacts", Reply::json(&page(&["r1@09:30:00", "r2@09:40:00"])));
    let gate = started("", &api, &crm).await;
    has_polled(&gate, gate.now()).await;
    gate.api.pause("sync").await.ok();
    gate.advance(mins(1)).await;
    has_polled(&gate, gate.now()).await;
    assert_eq!((gate.api.list("automation=sync").await.len(), crm.requests().len()), (2, 0));
    gate.api.resume("sync").await.ok();
    crm.got("/put", 2).await;
}
