//! The server that the tests get: that it is what it says, and that nothing of it stays.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers are tests too")]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests live outside the program: they have clocks and files"
)]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oncegate_testing::{Database, Postgres, Proxy};

const PROGRAM: &str = env!("CARGO_BIN_EXE_oncegate-testing");

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(60), "did not come about: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Asks as the gate would: over the URL, with the role and the password in it.
fn ask(database: &Database, url: &str, sql: &str) -> Result<String, String> {
    let psql = database.server().binaries().program("psql");
    let said = Command::new(psql).args(["-XAtq", url, "-c", sql]).stdin(Stdio::null()).output().unwrap();
    match said.status.success() {
        true => Ok(String::from_utf8(said.stdout).unwrap().trim_end().to_owned()),
        false => Err(String::from_utf8(said.stderr).unwrap()),
    }
}

fn gate(database: &Database, sql: &str) -> String {
    ask(database, &database.url(), sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[test]
fn each_database_is_empty_and_the_roles_own() {
    let (one, two) = (Postgres::shared().database(), Postgres::shared().database());
    assert_ne!(one.name(), two.name());
    for database in [&one, &two] {
        assert_eq!(gate(database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "0");
        gate(database, "CREATE TABLE mine (n int)");
    }
    gate(&one, "INSERT INTO mine VALUES (1)");
    assert_eq!((one.sql("SELECT * FROM mine"), two.sql("SELECT * FROM mine")), ("1".into(), String::new()));
    // No more than a customer gives it.
    assert_eq!(gate(&one, "SELECT usesuper FROM pg_user WHERE usename = current_user"), "f");
    for (name, value) in
        [("synchronous_commit", "on"), ("max_connections", "300"), ("server_encoding", "UTF8")]
    {
        assert_eq!(gate(&one, &format!("SHOW {name}")), value, "{name}");
    }
    // A wrong password is refused, so that a right one is a test of something.
    let wrong = one.url().replace("made-up-password", "another");
    assert!(ask(&one, &wrong, "SELECT 1").unwrap_err().contains("password authentication failed"));
}

#[test]
fn a_database_is_dropped_with_its_connections() {
    let server = Postgres::shared();
    let database = server.database();
    let name = database.name().to_owned();
    let url = database.url();
    let mut sleeper = Command::new(server.binaries().program("psql"))
        .args(["-XAtq", &url, "-c", "SELECT pg_sleep(600)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let other = server.database();
    let busy = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'");
    until("the sleeper sleeps", || other.sql(&busy) == "1");
    assert_eq!(other.cut(), 0, "only its own connections are cut");
    drop(database);
    assert!(!sleeper.wait().unwrap().success(), "its connection was cut");
    assert_eq!(other.sql(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")), "0");
}

#[test]
fn a_server_of_ones_own_is_stopped_killed_and_started_with_its_data() {
    let server = Postgres::own(&[("synchronous_commit", "off")]);
    let database = server.database();
    assert_eq!(gate(&database, "SHOW synchronous_commit"), "off");
    gate(&database, "CREATE TABLE kept (n int); SET synchronous_commit = on; INSERT INTO kept VALUES (1)");
    server.stop();
    assert!(!answers(server.port()));
    // Twice is once.
    server.stop();
    server.start();
    assert_eq!(gate(&database, "SELECT * FROM kept"), "1");
    gate(&database, "SET synchronous_commit = on; INSERT INTO kept VALUES (2)");
    server.kill();
    assert!(!answers(server.port()));
    server.start();
    assert_eq!(
        gate(&database, "SELECT * FROM kept ORDER BY n"),
        "1\n2",
        "acknowledged is there after kill -9"
    );
}

#[test]
fn a_paused_server_answers_nothing_until_it_goes_on() {
    let server = Postgres::own(&[]);
    let database = server.database();
    let url = database.url();
    // One connection is open already, another comes while nothing moves.
    let mut open = Command::new(server.binaries().program("psql"))
        .args(["-XAtq", &url, "-c", "SELECT pg_sleep(0.2)", "-c", "SELECT 'awake'"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until("it is open", || {
        database.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.2)'") == "1"
    });
    server.pause();
    let timed = format!("{url}?connect_timeout=2");
    let refused = ask(&database, &timed, "SELECT 1").unwrap_err();
    assert!(refused.contains("timeout expired"), "{refused}");
    assert_eq!(open.try_wait().unwrap(), None, "an open connection was answered");
    server.resume();
    assert_eq!(gate(&database, "SELECT 1"), "1");
    assert!(open.wait().unwrap().success());
}

#[test]
fn connections_are_cut() {
    let database = Postgres::shared().database();
    let url = database.url();
    let mut sleeper = Command::new(database.server().binaries().program("psql"))
        .args(["-XAtq", &url, "-c", "SELECT pg_sleep(600)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the sleeper is cut", || database.cut() == 1);
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn what_is_held_stays_locked_until_it_is_let_go_and_is_undone() {
    let database = Postgres::shared().database();
    gate(&database, "CREATE TABLE held (n int)");
    let held = database.hold("INSERT INTO held VALUES (1); LOCK TABLE held IN SHARE MODE");
    let url = database.url();
    let mut other = Command::new(database.server().binaries().program("psql"))
        .args(["-XAtq", &url, "-c", "INSERT INTO held VALUES (2)"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the other waits", || database.waiting() == 1);
    assert_eq!(other.try_wait().unwrap(), None);
    drop(held);
    assert!(other.wait().unwrap().success());
    assert_eq!(gate(&database, "SELECT * FROM held"), "2");
}

#[test]
fn a_proxy_cuts_refuses_and_loses_the_answer_of_a_commit() {
    let database = Postgres::shared().database();
    let proxy = Proxy::to(database.server().port());
    let url = database.url_through(proxy.port());
    assert_eq!(ask(&database, &url, "CREATE TABLE through (n int)"), Ok(String::new()));
    let mut sleeper = Command::new(database.server().binaries().program("psql"))
        .args(["-XAtq", &url, "-c", "SELECT pg_sleep(600)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the sleeper is cut", || proxy.cut() == 1);
    assert!(!sleeper.wait().unwrap().success());
    proxy.refuse(true);
    assert!(ask(&database, &url, "SELECT 1").is_err());
    proxy.refuse(false);
    proxy.lose_answers_to(b"COMMIT", 1);
    let insert = |n: u32| {
        Command::new(database.server().binaries().program("psql"))
            .args([
                "-XAtq",
                &url,
                "-c",
                "BEGIN",
                "-c",
                &format!("INSERT INTO through VALUES ({n})"),
                "-c",
                "COMMIT",
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    assert!(!insert(1).status.success(), "nobody heard of it");
    assert_eq!(proxy.lost(), 1);
    until("it is there all the same", || database.sql("SELECT * FROM through") == "1");
    assert!(insert(2).status.success());
    assert_eq!(database.sql("SELECT * FROM through ORDER BY n"), "1\n2");
}

#[test]
fn with_tls_its_certificate_is_the_only_one_that_is_believed() {
    let server = Postgres::own(&[("ssl", "on")]);
    let database = server.database();
    let root = server.certificate();
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", database.url(), root.display());
    let tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(ask(&database, &url, tls).unwrap(), "t");
    let other = Postgres::own(&[("ssl", "on")]);
    let wrong =
        format!("{}?sslmode=verify-full&sslrootcert={}", database.url(), other.certificate().display());
    assert!(ask(&database, &wrong, tls).unwrap_err().contains("certificate verify failed"));
}

/// What is found of a server: its port, its directory, its process.
struct Traces {
    port: u16,
    dir: PathBuf,
    pid: u32,
}

impl Traces {
    /// Of the server whose URL this is, by the directory in which it says it runs.
    fn of(url: &str) -> Self {
        let port: u16 = url.rsplit(['/', ':']).nth(1).unwrap().parse().unwrap();
        let parent = Path::new(PROGRAM).parent().unwrap().join("../tmp");
        let lock = |dir: &Path| std::fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
        let all = [parent, std::env::temp_dir(), PathBuf::from("/dev/shm")];
        let all = all.map(|parent| std::fs::read_dir(parent).into_iter().flatten());
        let mut dirs = all.into_iter().flatten().flatten().map(|entry| entry.path());
        let dir = dirs.find(|dir| lock(dir).lines().nth(3) == Some(&port.to_string())).unwrap();
        let pid = lock(&dir).lines().next().unwrap().parse().unwrap();
        Self { port, dir, pid }
    }

    fn gone(&self) -> bool {
        let proc = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let alive = proc.contains("(postgres)") && !proc.contains(") Z ");
        !alive && !self.dir.exists() && !answers(self.port)
    }
}

/// The server of another process, which ends in one of these ways.
#[test]
fn it_ends_with_the_process_that_it_was_started_by_and_leaves_nothing() {
    for how in ["its input ends", "killed", "killed while the server stands still"] {
        let mut parent = Command::new(PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let traces = Traces::of(url.trim());
        assert!(answers(traces.port) && !traces.gone(), "{url}");
        match how {
            "its input ends" => drop(parent.stdin.take()),
            "killed" => parent.kill().unwrap(),
            _ => {
                let pid = rustix::process::Pid::from_raw(i32::try_from(traces.pid).unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
                parent.kill().unwrap();
            }
        }
        parent.wait().unwrap();
        until(&format!("nothing is left: {how}"), || traces.gone());
    }
}

#[test]
fn the_version_is_told() {
    let said = Command::new(PROGRAM).arg("version").output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success() && text.starts_with("postgres (PostgreSQL) "), "{text}");
    let said = Command::new(PROGRAM)
        .arg("version")
        .env("ONCEGATE_TEST_POSTGRES_BIN", "/nowhere/at/all")
        .output()
        .unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(!said.status.success() && text.contains("/nowhere/at/all"), "{text}");
}
