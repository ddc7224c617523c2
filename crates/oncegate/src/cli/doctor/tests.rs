//! Each check, shown what is well and what is not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_core::time::Timestamp;
use oncegate_store::sqlite::{self, FileSystem, Inspection, Lasting};

use super::checks;
use super::look::{Backup, Clock, Disk, Gate};
use super::public::{self, Public, Reached, Reply};
use super::report::{Finding, Mark, text};
use crate::config::{self, Environment};

const GB: u64 = 1 << 30;

fn disk(change: impl FnOnce(&mut Disk)) -> Disk {
    let system = FileSystem { name: "ext4", lasting: Lasting::Yes, free: 50 * GB, size: 100 * GB };
    let mut disk = Disk {
        path: "data".into(),
        system: Ok(system),
        directory: Ok(Some(0o700)),
        files: vec![("oncegate.db", 0o600)],
        database_bytes: GB,
        sync: Some(Ok(Duration::from_millis(2))),
    };
    change(&mut disk);
    disk
}

fn with_system(change: impl FnOnce(&mut FileSystem)) -> Disk {
    disk(|d| change(d.system.as_mut().unwrap()))
}

#[track_caller]
fn are(cases: impl IntoIterator<Item = (Finding, Mark, &'static str)>) {
    for (finding, mark, word) in cases {
        assert_eq!(finding.mark, mark, "{finding:?}");
        assert!(finding.said.contains(word), "{word}: {finding:?}");
        // Who is told that something is wrong is told how to mend it.
        assert_eq!(finding.mend.is_some(), matches!(mark, Mark::Warn | Mark::Problem), "{finding:?}");
    }
}

#[test]
fn disks() {
    are([
        (checks::file_system(&disk(|_| ())), Mark::Ok, "ext4"),
        (
            checks::file_system(&with_system(|s| s.lasting = Lasting::No("tmpfs (memory)"))),
            Mark::Problem,
            "tmpfs",
        ),
        (checks::file_system(&with_system(|s| s.lasting = Lasting::Network)), Mark::Warn, "locks"),
        (checks::file_system(&with_system(|s| s.lasting = Lasting::Unknown)), Mark::Warn, "not known"),
        (checks::file_system(&disk(|d| d.system = Err("denied".into()))), Mark::Problem, "denied"),
        (checks::space(&disk(|_| ())), Mark::Ok, "50.0 GB free (50 %)"),
        (checks::space(&with_system(|s| s.free = 100 << 20)), Mark::Problem, "100.0 MB free"),
        (checks::space(&with_system(|s| s.free = GB / 2)), Mark::Warn, "512.0 MB"),
        (checks::space(&disk(|d| d.database_bytes = 51 * GB)), Mark::Warn, "51.0 GB"),
        (
            checks::space(&with_system(|s| *s = FileSystem { free: 0, size: 0, ..*s })),
            Mark::Problem,
            "0 bytes free (0 %)",
        ),
        (checks::sync(&disk(|_| ())), Mark::Ok, "2.00 ms"),
        (checks::sync(&disk(|d| d.sync = Some(Ok(Duration::from_micros(8))))), Mark::Warn, "faster"),
        (checks::sync(&disk(|d| d.sync = Some(Ok(Duration::from_millis(90))))), Mark::Warn, "90.00 ms"),
        (checks::sync(&disk(|d| d.sync = Some(Err("no space".into())))), Mark::Problem, "no space"),
        (checks::sync(&disk(|d| d.sync = None)), Mark::Skipped, "no data directory"),
    ]);
}

#[test]
fn permissions_are_those_that_let_others_in() {
    let of = |directory, file| {
        checks::permissions(&disk(|d| {
            (d.directory, d.files) = (Ok(Some(directory)), vec![("oncegate.db", file)])
        }))
    };
    are([
        (of(0o700, 0o600), Mark::Ok, "0700"),
        (of(0o700, 0o644), Mark::Ok, "0700"),
        (of(0o755, 0o600), Mark::Warn, "0755"),
        (of(0o755, 0o640), Mark::Problem, "oncegate.db (0640)"),
        (checks::permissions(&disk(|d| d.directory = Ok(None))), Mark::Skipped, "not there yet"),
        (checks::permissions(&disk(|d| d.directory = Err("denied".into()))), Mark::Problem, "denied"),
    ]);
}

#[test]
fn stores() {
    let well = Inspection {
        schema: 3,
        schema_known: 3,
        journal_mode: "wal".into(),
        synchronous: 2,
        ticked_at: None,
        moved: None,
        recovering: false,
        damage: vec![],
    };
    let with = |change: fn(&mut Inspection)| {
        let mut inspection = well.clone();
        change(&mut inspection);
        Ok(Some(inspection))
    };
    let broken = Err("file is not a database".to_owned());
    are([
        (checks::durability(&with(|_| ())), Mark::Ok, "FULL"),
        (checks::durability(&with(|i| i.journal_mode = "delete".into())), Mark::Problem, "delete"),
        (checks::durability(&with(|i| i.synchronous = 1)), Mark::Problem, "synchronous=1"),
        (
            checks::durability(&with(|i| (i.recovering, i.journal_mode) = (true, "delete".into()))),
            Mark::Skipped,
            "restored",
        ),
        (checks::store(&with(|_| ())), Mark::Ok, "in use"),
        (checks::store(&with(|i| i.recovering = true)), Mark::Warn, "in recovery"),
        (
            checks::store(&with(|i| i.moved = Some(("db.example.com/gate".into(), "then".into())))),
            Mark::Problem,
            "moved to db.example.com/gate at then",
        ),
        (checks::store(&broken), Mark::Skipped, "cannot be read"),
        (checks::durability(&broken), Mark::Problem, "not a database"),
        (checks::durability(&Ok(None)), Mark::Skipped, "no store"),
        (checks::schema(&with(|_| ())), Mark::Ok, "3"),
        (checks::schema(&with(|i| i.schema = 2)), Mark::Warn, "schema 2"),
        (checks::schema(&with(|i| i.schema = 4)), Mark::Problem, "schema 4"),
        (checks::schema(&broken), Mark::Skipped, "no database"),
        (checks::integrity(&with(|_| ())), Mark::Ok, "nothing"),
        (
            checks::integrity(&with(|i| i.damage = vec!["page 7".into(), "page 8".into()])),
            Mark::Problem,
            "2 fault(s): page 7",
        ),
    ]);
}

#[test]
fn clocks() {
    let now = Timestamp::from_secs(1_000_000);
    let clock = |ago: i64, is_ticking| Clock {
        now,
        ticked_at: Some(Timestamp::from_secs(1_000_000 - ago)),
        is_ticking,
    };
    let never = Clock { ticked_at: None, ..clock(0, true) };
    are([
        (checks::clock_source(Some(true)), Mark::Ok, "NTP"),
        (checks::clock_source(Some(false)), Mark::Warn, "not synchronised"),
        (checks::clock_source(None), Mark::Skipped, "cannot ask"),
        (checks::clock_and_store(&clock(3, true)), Mark::Ok, "3s ago"),
        (checks::clock_and_store(&clock(7_200, false)), Mark::Ok, "2 h ago"),
        (checks::clock_and_store(&clock(7_200, true)), Mark::Problem, "last ticked 2 h ago"),
        (checks::clock_and_store(&clock(-30, true)), Mark::Ok, "0s ago"),
        (checks::clock_and_store(&clock(-7_200, true)), Mark::Problem, "set back"),
        (checks::clock_and_store(&never), Mark::Skipped, "not ticked"),
    ]);
}

#[test]
fn backups() {
    let now = Timestamp::from_secs(100_000_000);
    let old = |hours: u64, bytes| Backup {
        now,
        newest: Ok(Some(sqlite::Backup {
            path: "b.db".into(),
            at: now.before(Duration::from_secs(3600 * hours)),
            bytes,
        })),
        has_store: true,
    };
    are([
        (checks::backup(&old(5, GB)), Mark::Ok, "5 h"),
        (checks::backup(&old(27, GB)), Mark::Warn, "27 h"),
        (checks::backup(&old(24 * 9, GB)), Mark::Problem, "216 h"),
        (checks::backup(&old(5, 0)), Mark::Problem, "empty"),
        (checks::backup(&Backup { now, newest: Ok(None), has_store: true }), Mark::Warn, "none"),
        (checks::backup(&Backup { now, newest: Ok(None), has_store: false }), Mark::Skipped, "no store"),
        (
            checks::backup(&Backup { now, newest: Err("denied".into()), has_store: true }),
            Mark::Problem,
            "denied",
        ),
        (checks::open_files(Some(256)), Mark::Warn, "256"),
        (checks::open_files(Some(65_536)), Mark::Ok, "65536"),
        (checks::open_files(None), Mark::Ok, "no limit"),
    ]);
}

struct Vars;

impl Environment for Vars {
    fn get(&self, name: &str) -> Option<String> {
        (name == "ORDERS").then(|| "orders-secret".to_owned())
    }
}

#[test]
fn configurations_and_gates() {
    const SOURCE: &str = "automations: { a: { steps: [ { name: s, http: { url: https://crm.example/x }, repeat: by_key } ] } }\n\
        sources: { orders: { provider: hmac, automation: a, secret: env:ORDERS, hmac: { header: X-S }, key: [id] } }\n";
    let url = |yaml: &str| {
        let path = Path::new("oncegate.yaml");
        let read = config::parse(yaml, path, &Vars).map_err(|e| e.to_string());
        checks::public_url(&Some((PathBuf::from(path), read)))
    };
    let gate = |is_named, answer: Result<&[&str], &str>| {
        let answer = answer.map(|r| r.iter().map(ToString::to_string).collect()).map_err(str::to_owned);
        checks::gate(&Gate { url: "http://gate".into(), is_named, answer, store: None })
    };
    are([
        (url("public_url: https://hooks.example.com"), Mark::Ok, "https"),
        (url("public_url: http://hooks.example.com:8080"), Mark::Warn, "unencrypted"),
        (url("public_url: http://127.0.0.1:7480"), Mark::Ok, "this machine"),
        (url("public_url: http://localhost:7480"), Mark::Ok, "this machine"),
        (url("public_url: http://localhost.example.com"), Mark::Warn, "unencrypted"),
        (url(""), Mark::Skipped, "not set"),
        (url(SOURCE), Mark::Warn, "not set, though"),
        (url("sorces: {}"), Mark::Skipped, "no configuration"),
        (checks::configuration(&None), Mark::Skipped, "no oncegate.yaml"),
        (gate(false, Ok(&[])), Mark::Ok, "ready"),
        (gate(false, Ok(&["store_full"])), Mark::Problem, "store_full"),
        (gate(false, Err("refused")), Mark::Skipped, "none answers"),
        (gate(true, Err("refused")), Mark::Problem, "refused"),
    ]);
}

#[test]
fn a_report_counts_what_it_shows() {
    let findings = [Finding::ok("gate", "ready"), Finding::problem("disk space", "full", "free some")];
    assert_eq!(
        text(&findings, false),
        "\n  ok       gate        ready\n  problem  disk space  full\n                       → free some\n\
         \n  2 checks: 1 ok, 0 warnings, 1 problem, 0 skipped"
    );
    assert!(text(&findings, true).contains("\x1b[1;31mproblem\x1b[0m"));
}

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn public(change: impl FnOnce(&mut Public, &mut Reached)) -> [Finding; 3] {
    let webhook = Reply { status: 404, code: Some("unknown_source".into()), location: None };
    let mut reached = Reached {
        webhook,
        store: Some("a1".into()),
        ours: Some("a1".into()),
        took: Duration::from_millis(42),
        certificate: Some((NOW.before(30 * DAY), NOW.after(60 * DAY))),
    };
    let mut seen = Public {
        url: Some("https://gate.example.com".into()),
        addresses: Some(Ok(vec!["93.184.215.14".parse().unwrap()])),
        reached: Err(String::new()),
        now: NOW,
    };
    change(&mut seen, &mut reached);
    if seen.reached.as_ref().is_err_and(String::is_empty) {
        seen.reached = Ok(reached);
    }
    public::findings(&seen)
}

#[test]
fn names_that_senders_find() {
    let of = |addresses| public(|seen, _| seen.addresses = addresses)[0].clone();
    are([
        (of(Some(Ok(vec!["93.184.215.14".parse().unwrap()]))), Mark::Ok, "93.184.215.14"),
        (of(Some(Ok(vec!["192.168.1.5".parse().unwrap()]))), Mark::Problem, "a private address"),
        (of(Some(Ok(vec!["::1".parse().unwrap()]))), Mark::Problem, "a loopback address"),
        (of(Some(Err("no such host".into()))), Mark::Problem, "no such host"),
        (of(None), Mark::Warn, "a number in place of a name"),
        (public(|seen, _| seen.url = None)[0].clone(), Mark::Problem, "no public_url"),
    ]);
}

#[test]
fn what_answers_in_public() {
    let of = |change: &dyn Fn(&mut Reached)| public(|_, reached| change(reached))[1].clone();
    let webhook = |status, code: Option<&str>, location: Option<&str>| Reply {
        status,
        code: code.map(Into::into),
        location: location.map(Into::into),
    };
    are([
        (of(&|_| ()), Mark::Ok, "this gate answers at https://gate.example.com, in 42ms"),
        (of(&|seen| seen.store = Some("b2".into())), Mark::Problem, "another gate"),
        (of(&|seen| seen.store = None), Mark::Ok, "it may be another"),
        (of(&|seen| seen.ours = None), Mark::Warn, "none where this machine's should"),
        (of(&|seen| seen.webhook = webhook(404, None, None)), Mark::Problem, "something answers 404"),
        (of(&|seen| seen.webhook = webhook(200, None, None)), Mark::Problem, "something answers 200"),
        (of(&|seen| seen.webhook = webhook(401, None, None)), Mark::Problem, "wants to know who calls"),
        (
            of(&|seen| seen.webhook = webhook(308, None, Some("https://www.example.com/in/"))),
            Mark::Problem,
            "sends on to https://www.example.com/in/",
        ),
        (
            public(|seen, _| seen.reached = Err("connection refused".into()))[1].clone(),
            Mark::Problem,
            "cannot be reached from here: connection refused",
        ),
        (public(|seen, _| seen.url = None)[1].clone(), Mark::Skipped, "no public_url"),
    ]);
}

#[test]
fn certificates() {
    let of = |certificate| public(|_, reached| reached.certificate = certificate)[2].clone();
    let old = |left: Duration, life: Duration| of(Some((NOW.after(left).before(life), NOW.after(left))));
    are([
        (old(60 * DAY, 90 * DAY), Mark::Ok, "ends in 60 days"),
        (old(19 * DAY, 90 * DAY), Mark::Ok, "ends in 19 days"),
        (old(17 * DAY, 90 * DAY), Mark::Warn, "ends in 17 days: it should have been renewed"),
        (old(5 * DAY, 6 * DAY), Mark::Ok, "ends in 5 days"),
        (old(DAY, 6 * DAY), Mark::Warn, "ends in 24 h"),
        (of(None), Mark::Skipped, "does not say when it ends"),
        (
            public(|seen, _| seen.url = Some("http://gate.example.com".into()))[2].clone(),
            Mark::Problem,
            "there is none",
        ),
        (
            public(|seen, _| seen.reached = Err("reset".into()))[2].clone(),
            Mark::Skipped,
            "nothing was reached",
        ),
    ]);
}
