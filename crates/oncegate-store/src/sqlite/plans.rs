//! Every statement that a claim's life runs must find its rows by an index: a store with a million claims answers
//! as fast as an empty one. The statements are the real ones, overheard on the connection.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use oncegate_core::claim::{Boot, ErrorCause, Holder, Parked, ProcessingState};
use oncegate_core::decide::{Request, Start};
use oncegate_core::fingerprint::Fingerprint;
use oncegate_core::finish::{Call, Failed};
use oncegate_core::identity::Likeness;
use oncegate_core::inbox::InboxList;
use oncegate_core::key::{AutomationName, IdempotencyKey, RecordName, RunId, StoreSecret};
use oncegate_core::limits;
use oncegate_core::policy::{Jitter, LoopLimit};
use oncegate_core::reset::Act;
use oncegate_core::time::{LeaseInstant, Now, Timestamp};
use oncegate_core::webhook::{Aside, Sender, SetAside};
use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::transition::Context;
use super::{
    audit, automations, bulk_rows, intake, migrations, nudges, payloads, queries, row, schema_meta, search,
    upkeep, vitals,
};
use crate::access::AuditFilter;
use crate::api::{
    ActCall, AdmitCall, AdmitEvent, ClaimCall, DefaultPolicies, Filter, FinishCall, Payload, PolicyBook,
    Release, StepBegin, StepEnd, StepOutcome, Target, UnverifiedCall, Workspace,
};
use crate::bulk::{BulkAct, BulkCall, Bulked};
use crate::nodes::Names;
use crate::observer::Journal;
use crate::people::{self, Kept, Once, Write, Written, Wrote};
use crate::search::By;

const NOW: Now = Now { wall: Timestamp::from_secs(1_767_607_200), lease: LeaseInstant(0) };
const BOOT: Boot = Boot::alone(1);
const WS: Workspace = Workspace::DEFAULT;

/// Tables that grow with every event; the others have a handful of rows.
const LARGE: [&str; 11] = [
    "claims",
    "payloads",
    "pruned",
    "record_runs",
    "history",
    "step_calls",
    "deliveries",
    "audit",
    "bulk_rows",
    "api_requests",
    "senders",
];

/// Walking along an index is walking along a table, unless the index only has the rows that are open.
const OPEN_ONLY: [&str; 7] = [
    "claims_live",
    "claims_error",
    "claims_marked",
    "claims_due",
    "deliveries_open",
    "deliveries_parked",
    "deliveries_parked_by_date",
];

/// Read newest first until the page is full; whatever is skipped on the way belongs to another workspace.
const PAGES: [&str; 3] = [
    " FROM audit WHERE workspace_id = ?1 AND id < ?2",
    // Bounded by their last parameter (search.rs).
    " WHERE TRUE AND c.id < ?4 ORDER BY c.id DESC LIMIT ?5",
    " WHERE TRUE AND c.id > ?4 ORDER BY c.id ASC LIMIT ?5",
];

/// What `EXPLAIN QUERY PLAN` says of a statement: a step that reads a large table from end to end.
fn full_scans(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    // Aliases are the first letter of their table in this crate.
    let is_large = |name: &str| LARGE.iter().any(|t| *t == name || (name.len() == 1 && t.starts_with(name)));
    let (mut rows, mut scans) = (statement.raw_query(), Vec::new());
    while let Some(step) = rows.next().unwrap() {
        let detail: String = step.get(3).unwrap();
        let mut words = detail.split(' ');
        let scan = match words.next() {
            Some("SCAN") => true,
            // Down the whole table, in the hope of a full page.
            Some("SEARCH") => {
                let down = detail.ends_with("(rowid<?)") || detail.ends_with("(rowid>?)");
                down && !PAGES.iter().any(|page| sql.contains(page))
            }
            _ => false,
        };
        let scanned = scan && words.next().is_some_and(is_large);
        if scanned && !OPEN_ONLY.iter().any(|index| detail.ends_with(&format!(" {index}"))) {
            scans.push(detail);
        }
    }
    scans
}

fn overhear(db: &mut Connection) -> Arc<Mutex<BTreeSet<String>>> {
    let heard = Arc::new(Mutex::new(BTreeSet::new()));
    let ear = Arc::clone(&heard);
    let hear = move |event: TraceEvent<'_>| {
        // Lines that begin with `--` are steps of triggers.
        if let TraceEvent::Stmt(_, sql) = event
            && !sql.starts_with("--")
        {
            ear.lock().unwrap().insert(sql.to_owned());
        }
    };
    db.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(hear)).unwrap();
    heard
}

/// Keys that begin alike repeat one another if they say so: `twice …`.
fn like(key: &str) -> [u8; 16] {
    let of = key.split_once(' ').map_or(key, |(of, _)| of);
    let mut hash = [0; 16];
    hash.copy_from_slice(&oncegate_core::key::sha256(of.as_bytes())[..16]);
    hash
}

fn claim_call(key: &str, start: Start) -> ClaimCall {
    ClaimCall {
        target: Target::Key {
            workspace: WS,
            automation: AutomationName::try_from("welcome").unwrap(),
            key: IdempotencyKey::try_from(key).unwrap(),
        },
        request: Request {
            start,
            fingerprint: None,
            record: Some(RecordName::try_from("crm:1").unwrap()),
            ttl: None,
            correction: false,
            likeness: Some(Likeness { hash: like(key), within: std::time::Duration::from_secs(60) }),
            identity: None,
            dated: None,
        },
        run_url: None,
        parent: None,
        payload: Some(Payload { body: vec![], json: "{}".into() }),
        actor: "token:crm".into(),
        again: false,
    }
}

/// One claim through everything that can happen to it.
fn live_a_life(db: &Connection, secret: &StoreSecret) {
    let policies: Arc<dyn PolicyBook> = Arc::new(DefaultPolicies::default());
    let restores = Arc::default();
    let journal = Journal::new(Arc::new(()));
    let cx = Context {
        db,
        secret,
        policies: &policies,
        now: NOW,
        boot: BOOT,
        clock_is_doubtful: false,
        restores: &restores,
        recovering: false,
        journal: &journal,
    };
    let caller = || Start::Now(Holder::Caller { run_id: Some(RunId::try_from("run").unwrap()) });
    let held = cx.claim(&claim_call("k", caller())).unwrap().unwrap();
    cx.claim(&claim_call("k", caller())).unwrap();
    let (id, fence) = (held.id, held.view.unwrap().claim.fence());
    let (step, idempotency_key, target) = ("mail".into(), "og-1".into(), "POST https://mail.test".into());
    let call = cx.begin_step(&StepBegin { id, fence, step, idempotency_key, target }).unwrap().unwrap();
    let outcome = StepOutcome::Succeeded;
    cx.end_step(&StepEnd { id, fence, call, outcome, status: None, answer: None, note: None }).unwrap();
    let failure = Failed::Retryable { retry_after: None };
    for call in [Call::Heartbeat, Call::Error { failure, note: "503".into() }, Call::Done] {
        let (result, actor) = (None, "token:crm".to_owned());
        cx.finish(&FinishCall { id, fence, call, jitter: Jitter::NONE, result, actor }).unwrap();
    }
    let act = Act::MarkError { note: "n".into() };
    cx.act(&ActCall { id, act, reason: "r".into(), actor: "mia".into() }).unwrap();
    // Stale, then taken over by another key of its record.
    cx.claim(&claim_call("stale", caller())).unwrap();
    let later = Now { lease: LeaseInstant(3_600_000), ..NOW };
    Context { now: later, ..cx }.claim(&claim_call("taker", caller())).unwrap();
    // The second is a repeat of the first, and is known to be one when it asks again.
    for key in ["twice 1", "twice 2", "twice 2"] {
        cx.claim(&claim_call(key, Start::Queue)).unwrap();
    }
    family_and_hooks(&cx);
    vitals::probe(db, NOW).unwrap();
    admit(&cx);
    act_on_many(&cx);
    read_all(db);
    let years = Now { wall: NOW.wall.after(std::time::Duration::from_secs(3 * 366 * 86_400)), ..NOW };
    Context { now: NOW, ..cx }.claim(&claim_call("k2", Start::Queue)).unwrap();
    payloads::remove(&Context { now: years, ..cx }, 10).unwrap();
    upkeep::reap(db, years, 100, &journal).unwrap();
}

fn family_and_hooks(cx: &Context<'_>) {
    let asks = || Start::Now(Holder::Caller { run_id: None });
    let on = |key: &str, record: &str| {
        let mut call = claim_call(key, asks());
        call.request.record = Some(RecordName::try_from(record).unwrap());
        call
    };
    let parent = cx.claim(&on("parent", "crm:9")).unwrap().unwrap();
    let under = Some((parent.id, parent.view.unwrap().claim.fence()));
    for key in ["child", "sibling"] {
        cx.claim(&ClaimCall { parent: under, ..on(key, "crm:9") }).unwrap().unwrap();
    }
    cx.nudge(parent.id).unwrap();
    let reset = Act::FromStart {
        run_now: true,
        confirm_holder: None,
        verified: true,
        confirm_sent: vec![],
        new_keys: true,
    };
    cx.act(&ActCall { id: parent.id, act: reset, reason: "r".into(), actor: "mia".into() }).unwrap();
}

fn admit(cx: &Context<'_>) {
    let automation = AutomationName::try_from("welcome").unwrap();
    let source = "typeform".to_owned();
    let event = |identity| AdmitEvent {
        identity,
        fingerprint: Fingerprint::of(&serde_json::Value::Null, &[]),
        json: "{}".into(),
        record: None,
        of_batch: false,
        aside: None,
        sender: None,
        likeness: None,
        about: None,
        delivery_id: None,
        dated: None,
    };
    let unverified = UnverifiedCall {
        workspace: WS,
        source: source.clone(),
        automation: automation.clone(),
        headers: "{}".into(),
        body: vec![],
        reason: "no".into(),
    };
    let released = cx.keep_unverified(&unverified).unwrap();
    assert_eq!(cx.keep_unverified(&unverified).unwrap(), released, "counted on its row");
    for n in 0..=limits::UNVERIFIED_KEPT_MAX {
        cx.keep_unverified(&UnverifiedCall { body: n.to_be_bytes().to_vec(), ..unverified.clone() }).unwrap();
    }
    // The flood has pushed out the first.
    let released = cx.keep_unverified(&unverified).unwrap();
    let call = AdmitCall {
        workspace: WS,
        source,
        automation: automation.clone(),
        headers: "{}".into(),
        body: vec![],
        events: vec![event(Ok(IdempotencyKey::try_from("e").unwrap())), event(Err("no id".into()))],
        releases: Some(Release { delivery: released, reason: "mended".into() }),
        actor: "mia".into(),
    };
    let other = AdmitEvent {
        fingerprint: Fingerprint::of(&serde_json::Value::Bool(true), &[]),
        ..event(Ok(IdempotencyKey::try_from("e").unwrap()))
    };
    cx.admit(&call).unwrap();
    // All of it again, counted on the rows that are there; the same event with another payload, twice.
    let elsewhere = AdmitEvent {
        aside: Some(SetAside { kind: Aside::OtherEnvironment, why: "test".into() }),
        ..other.clone()
    };
    // Two of one sender, of which one may run.
    let limit = LoopLimit { runs: 1, within: limits::REQUESTS_KEPT_FOR };
    let sent = |name: &str| AdmitEvent {
        sender: Some(Sender { hash: [3; 16], shown: "ann".into(), limit }),
        ..event(Ok(IdempotencyKey::try_from(name).unwrap()))
    };
    let again = AdmitCall {
        events: [vec![elsewhere, sent("s1"), sent("s2")], call.events.clone(), vec![other.clone(), other]]
            .concat(),
        releases: None,
        ..call
    };
    cx.admit(&again).unwrap();
    cx.set_paused(WS, &automation, true, "r", "mia").unwrap();
}

/// Every way in which a list can be walked.
fn filters() -> Vec<Filter> {
    let any = || Filter { limit: 10, ..Filter::default() };
    let mut filters = vec![
        any(),
        Filter { oldest_first: true, ..any() },
        Filter { state: Some(ProcessingState::Done), ..any() },
        Filter { state: Some(ProcessingState::Error), ..any() },
        Filter { cause: Some(ErrorCause::Failed), ..any() },
        Filter { parked: Some(Parked::Reset), ..any() },
        Filter { automation: Some(AutomationName::try_from("welcome").unwrap()), ..any() },
        Filter { record: Some(RecordName::try_from("crm:1").unwrap()), ..any() },
        Filter { run_id: Some(RunId::try_from("run").unwrap()), ..any() },
        Filter { tag: Some("dup".into()), ..any() },
        Filter { text: Some("form".into()), ..any() },
    ];
    // What is rejected is never a claim: SQLite sees the constant FALSE before it reads anything.
    let lists = InboxList::ALL.into_iter().filter(|l| *l != InboxList::Rejected);
    filters.extend(lists.map(|list| Filter { inbox: Some(list), ..any() }));
    filters
}

/// Acts on many claims, begun, done and undone; and a write that is named.
fn act_on_many(cx: &Context<'_>) {
    let filter = Filter { state: Some(ProcessingState::Error), ..Filter::default() };
    let act = BulkAct::MarkError { tag: "dup".into() };
    let expect = cx.count_bulk(WS, &act, &filter).unwrap().matched;
    let (told, reason, actor) = ("{}".into(), "r".into(), "mia".into());
    let call = BulkCall { workspace: WS, act, filter, told, expect, reason, actor, token_id: 1 };
    let request =
        people::Request { workspace: WS, key: IdempotencyKey::try_from("w").unwrap(), fingerprint: [0; 32] };
    let once = Once { request, answering: Arc::new(|_, _| Some(Kept { status: 200, body: None })) };
    let Wrote::Now(Written::Bulk(Bulked::Begun(bulk)), _) =
        cx.write_once(&Write::Bulk(call), Some(&once)).unwrap()
    else {
        panic!("not begun")
    };
    while cx.step_bulk(10).unwrap().is_some() {}
    cx.begin_undo((WS, bulk.id), "r", "mia", 1).unwrap();
    while cx.step_bulk(10).unwrap().is_some() {}
    bulk_rows::list(cx.db, WS, None, 10).unwrap();
    bulk_rows::claims(cx.db, (WS, bulk.id), None, 10, NOW, BOOT).unwrap();
}

fn read_all(db: &Connection) {
    let claims = search::search(db, WS, &Filter { limit: 10, ..Filter::default() }, NOW, BOOT).unwrap();
    for filter in filters() {
        search::search(db, WS, &filter, NOW, BOOT).unwrap();
        search::groups(db, WS, &filter, By { automation: true, age: true }, NOW).unwrap();
    }
    automations::list(db, WS, None, None, 10, NOW).unwrap();
    let id = claims.rows[0].at();
    row::load(db, id).unwrap();
    queries::history(db, id).unwrap();
    queries::history_page(db, id, None, 10).unwrap();
    queries::work(db, id).unwrap();
    queries::counts(db, WS, None, NOW).unwrap();
    let bound = [AutomationName::try_from("welcome").unwrap()];
    queries::counts(db, WS, Some(&bound), NOW).unwrap();
    audit::read(db, WS, &AuditFilter { limit: 10, ..AuditFilter::default() }).unwrap();
    queries::due(db, NOW, BOOT, (None, &Names::default()), 10).unwrap();
    let names = [(Workspace::DEFAULT, AutomationName::try_from("welcome").unwrap())];
    queries::due(db, NOW, BOOT, (Some(&names.clone().into()), &names.clone().into()), 10).unwrap();
    queries::stranded(db, NOW, BOOT, &names.into()).unwrap();
    upkeep::next_due(db, NOW.wall).unwrap();
    vitals::read(db, Path::new("."), NOW, BOOT).unwrap();
    intake::rejected(db, WS, None, None, 10).unwrap();
    intake::parked(db, WS, None, None, 10).unwrap();
    nudges::due(db, NOW, 10).unwrap();
    intake::delivery(db, WS, 1).unwrap();
}

#[test]
fn no_statement_reads_a_large_table_from_end_to_end() {
    let mut db = Connection::open_in_memory().unwrap();
    super::connection::keep_plans(&db).unwrap();
    migrations::step_up(&mut db, 0).unwrap();
    let meta = schema_meta::open(&mut db, std::path::Path::new("test"), [7; 32], NOW.wall).unwrap();
    let heard = overhear(&mut db);
    live_a_life(&db, &meta.secret);
    db.trace_v2(TraceEventCodes::empty(), None::<fn(TraceEvent<'_>)>).unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 30, "{} statements were heard", heard.len());
    let bad: Vec<_> =
        heard.iter().map(|sql| (full_scans(&db, sql), sql)).filter(|(scans, _)| !scans.is_empty()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Deliveries are what strangers send: a flood must not make each further one slower, so nothing about them is sorted,
/// and a quota is added up without reading a body.
#[test]
fn a_flood_of_deliveries_is_neither_sorted_nor_read_to_be_bounded() {
    let mut db = Connection::open_in_memory().unwrap();
    super::connection::keep_plans(&db).unwrap();
    migrations::step_up(&mut db, 0).unwrap();
    let meta = schema_meta::open(&mut db, std::path::Path::new("test"), [7; 32], NOW.wall).unwrap();
    let heard = overhear(&mut db);
    live_a_life(&db, &meta.secret);
    db.trace_v2(TraceEventCodes::empty(), None::<fn(TraceEvent<'_>)>).unwrap();
    let plan = |sql: &str| -> String {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let (mut rows, mut plan) = (statement.raw_query(), String::new());
        while let Some(step) = rows.next().unwrap() {
            plan += &step.get::<_, String>(3).unwrap();
            plan.push('\n');
        }
        plan
    };
    let heard = heard.lock().unwrap();
    let about = |word: &str| -> Vec<_> {
        let sqls = heard.iter().filter(|sql| sql.contains(" deliveries") && sql.contains(word));
        sqls.map(|sql| plan(sql)).collect()
    };
    let all = about("");
    assert!(all.iter().all(|plan| !plan.contains("TEMP B-TREE")), "{all:#?}");
    for (word, indexes) in [
        (
            "'rejected' RETURNING",
            &["INDEX deliveries_rejected_once (workspace_id=? AND source=? AND body_hash=? AND reason=?)"][..],
        ),
        (
            "AND verdict = 'mismatch'",
            &["INDEX deliveries_mismatch_once (claim_id=? AND source=? AND body_hash=? AND reason=?)"],
        ),
        (
            "'unverified' RETURNING",
            &["INDEX deliveries_unverified_once (workspace_id=? AND source=? AND body_hash=?)"],
        ),
        ("SELECT id, bytes", &["COVERING INDEX deliveries_unverified_newest (workspace_id=? AND source=?)"]),
        ("AND id <= ?3", &["INDEX deliveries_unverified_newest (workspace_id=? AND source=? AND id<?)"]),
        ("AND verdict = 'duplicate'", &["INDEX deliveries_duplicate (claim_id=?)"]),
        ("settled_at < ?1", &["INTEGER PRIMARY KEY (rowid=?)", "INDEX deliveries_released (settled_at<?)"]),
        (
            "received_at < ?1",
            &["INTEGER PRIMARY KEY (rowid=?)", "INDEX deliveries_unverified_by_date (received_at<?)"],
        ),
    ] {
        let plans = about(word);
        assert!(
            matches!(&plans[..], [plan] if indexes.iter().all(|i| plan.contains(i))),
            "{word}: {plans:#?}"
        );
    }
}
