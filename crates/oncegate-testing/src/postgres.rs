//! A real PostgreSQL server that lives as long as the test process, and databases in it.

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::process::Signal;

use crate::binaries::Binaries;
use crate::database::Database;
use crate::processes::{self, User};
use crate::{PATIENCE, within};

/// Whom the gate connects as: the owner of its database, and nothing more than that.
pub(crate) const ROLE: &str = "oncegate";
/// What it shows, as the administrator does too.
pub(crate) const PASSWORD: &str = "made-up-password";
const ADMIN: &str = "postgres";

/// Durability costs what a disk costs, and these databases live for seconds: what survives the death of a *process*
/// does so without `fsync`. Acknowledged means written all the same, as `synchronous_commit` is on.
const SETTINGS: [(&str, &str); 13] = [
    ("listen_addresses", "'127.0.0.1'"),
    ("max_connections", "300"),
    ("shared_buffers", "'32MB'"),
    // In its own directory, which goes: a server that is killed leaves the other kinds to the system.
    ("dynamic_shared_memory_type", "'mmap'"),
    ("synchronous_commit", "on"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("max_wal_size", "'256MB'"),
    // A worker every few moments, for databases that are gone before it comes.
    ("autovacuum", "off"),
    ("jit", "off"),
    ("password_encryption", "'scram-sha-256'"),
    ("timezone", "'UTC'"),
    ("log_line_prefix", "'%m [%p] %d '"),
];

/// Waits for the end of its input, which comes with our death however we die, ends the server, and takes the directory
/// away. A server that is stopped (SIGSTOP) hears nothing until it goes on.
const UNDERTAKER: &str = r#"cat > /dev/null
lock=$1/data/postmaster.pid
pid=$(head -n 1 "$lock" 2> /dev/null)
if [ -n "$pid" ]; then
    kill -QUIT "$pid" 2> /dev/null
    kill -CONT "$pid" 2> /dev/null
    left=300
    while [ -e "$lock" ] && [ $left -gt 0 ]; do left=$((left - 1)); sleep 0.1; done
fi
rm -rf "$1""#;

pub(crate) static SHARED: OnceLock<Postgres> = OnceLock::new();

/// A server with a directory, a port and a password of its own. It ends with the test process, also with one that is
/// killed, and leaves nothing behind.
#[derive(Debug)]
pub struct Postgres {
    binaries: Binaries,
    user: Option<User>,
    dir: PathBuf,
    port: u16,
    tls: bool,
    /// `None` while it is stopped.
    postmaster: Mutex<Option<Child>>,
    /// `None` once it has done its work.
    undertaker: Option<Child>,
}

impl Postgres {
    /// The server of this process, started when it is first asked for. Nobody stops or configures it.
    ///
    /// # Panics
    /// When there is no PostgreSQL on this machine or it does not start; the message says what to do.
    pub fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::own(&[]))
    }

    /// A server for one test, which may stop, kill and pause it. `settings` go into `postgresql.conf` as they are
    /// written there, behind and therefore above ours; with `("ssl", "on")` it has a certificate, see
    /// [`Self::certificate`].
    ///
    /// # Panics
    /// As [`Self::shared`].
    #[must_use]
    pub fn own(settings: &[(&str, &str)]) -> Self {
        let binaries = Binaries::find().unwrap_or_else(|missing| panic!("{missing}"));
        let user = User::other_than_root();
        let dir = directory(user);
        let undertaker = Command::new("sh")
            .args(["-c", UNDERTAKER, "undertaker"])
            .arg(&dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let tls = settings.iter().any(|(name, value)| *name == "ssl" && *value == "on");
        let mut server = Self {
            binaries,
            user,
            dir,
            port: 0,
            tls,
            postmaster: Mutex::default(),
            undertaker: Some(undertaker),
        };
        server.initialise(settings);
        let mut tries = 20;
        while let Err(log) = {
            server.port = free_port();
            server.try_start()
        } {
            // A port that was free when it was looked at may be somebody's when it is taken.
            tries -= 1;
            assert!(tries > 0 && log.contains("could not bind"), "PostgreSQL did not start:\n{log}");
        }
        server.admin("postgres", &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"));
        server
    }

    /// A fresh, empty database that belongs to the gate's role.
    ///
    /// # Panics
    /// When the server does not run.
    pub fn database(&self) -> Database<'_> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("gate_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.admin("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE} TEMPLATE template0"));
        Database::new(self, name)
    }

    /// The programs of its version.
    #[must_use]
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The TCP port, the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the unix socket; `None` where its path is longer than the system takes.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        // sockaddr_un, unix(7): 108 bytes with the final zero.
        let longest = "/.s.PGSQL.65535".len();
        (self.dir.as_os_str().len() + longest < 108).then_some(&self.dir)
    }

    /// The certificate of a server with `ssl = on`, for `127.0.0.1` and `localhost`; it is its own authority (PEM).
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("data/server.crt")
    }

    /// What the server wrote into its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Ends it in order: connections are cut, everything is written. Nothing happens to one that is stopped.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&self) {
        self.end(Signal::INT);
    }

    /// Starts it again, on the same port and data.
    ///
    /// # Panics
    /// When it runs already or does not start.
    pub fn start(&self) {
        assert!(self.lock().is_none(), "PostgreSQL runs already");
        self.try_start().unwrap_or_else(|log| panic!("PostgreSQL did not start again:\n{log}"));
    }

    /// kill -9 of all of its processes at one moment.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&self) {
        let mut postmaster = self.lock();
        let mut child = postmaster.take().expect("PostgreSQL does not run");
        let children = processes::freeze(child.id());
        for pid in children.iter().chain([&child.id()]) {
            processes::signal(*pid, Signal::KILL);
        }
        child.wait().unwrap();
        // They are nobody's children now; their memory is let go of when the last is gone.
        let gone = within(PATIENCE, || children.iter().all(|pid| !is_alive(*pid)).then_some(()));
        assert!(gone.is_some(), "processes of PostgreSQL outlived kill -9");
        // It names a process that is no more, and later perhaps another's.
        fs::remove_file(self.dir.join("data/postmaster.pid")).unwrap();
    }

    /// Every process stands still (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        processes::freeze(self.pid());
    }

    /// Goes on after [`Self::pause`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        let postmaster = self.pid();
        for pid in processes::children(postmaster).into_iter().chain([postmaster]) {
            processes::signal(pid, Signal::CONT);
        }
    }

    /// The process that all others of this server are made by.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lock().as_ref().expect("PostgreSQL does not run").id()
    }

    /// Runs SQL in a database as the administrator; rows are lines, columns are parted by `|`.
    pub(crate) fn admin(&self, database: &str, sql: &str) -> String {
        self.try_admin(database, sql).unwrap_or_else(|error| panic!("{sql}:\n{error}"))
    }

    /// The administrator's terminal.
    pub(crate) fn psql(&self, database: &str) -> Command {
        let mut command = Command::new(self.binaries.program("psql"));
        command
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"])
            .args(["--host=127.0.0.1", &format!("--port={}", self.port), &format!("--username={ADMIN}")])
            .arg(format!("--dbname={database}"))
            .env("PGPASSWORD", PASSWORD)
            .env("PGCONNECT_TIMEOUT", "10");
        command
    }

    pub(crate) fn try_admin(&self, database: &str, sql: &str) -> Result<String, String> {
        let said = self.psql(database).arg(format!("--command={sql}")).stdin(Stdio::null()).output().unwrap();
        match said.status.success() {
            true => Ok(String::from_utf8_lossy(&said.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&said.stderr).into_owned()),
        }
    }

    /// Makes the data directory and its configuration.
    fn initialise(&self, settings: &[(&str, &str)]) {
        let password = self.dir.join("password");
        fs::write(&password, PASSWORD).unwrap();
        self.give(&password);
        // Text is sorted by a language's rules, as on most servers: whoever relies on the order of bytes is found out.
        // A server built without ICU sorts as it can.
        const ICU: [&str; 3] = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"];
        let made = self.initdb(&password, &ICU).or_else(|_| self.initdb(&password, &["--locale=C"]));
        made.unwrap_or_else(|error| panic!("initdb failed:\n{error}"));
        let data = self.dir.join("data");
        let socket = self.socket().map_or(String::new(), |dir| dir.display().to_string());
        let ours = SETTINGS.iter().chain(settings).map(|(name, value)| format!("{name} = {value}\n"));
        let mut text: String = ours.collect();
        text.push_str(&format!("unix_socket_directories = '{socket}'\n"));
        let conf = data.join("postgresql.conf");
        fs::write(&conf, fs::read_to_string(&conf).unwrap() + &text).unwrap();
        if self.tls {
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            fs::write(self.certificate(), made.cert.pem()).unwrap();
            let key = data.join("server.key");
            fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            // The server refuses a key that others may read.
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
            self.give(&key);
            self.give(&self.certificate());
        }
    }

    fn initdb(&self, password: &Path, locale: &[&str]) -> Result<(), String> {
        let mut command = self.as_user("initdb");
        command.args(["--no-sync", "--encoding=UTF8", "--wal-segsize=1", "--no-instructions"]).args(locale);
        command.args(["--auth-local=trust", "--auth-host=scram-sha-256", &format!("--username={ADMIN}")]);
        command.arg("--pwfile").arg(password).arg("--pgdata").arg(self.dir.join("data"));
        let said = command.stdin(Stdio::null()).output().unwrap();
        match said.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&said.stderr).into_owned()),
        }
    }

    /// Returns when it answers; otherwise with its log.
    fn try_start(&self) -> Result<(), String> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let before = log.metadata().unwrap().len();
        let mut child = self
            .as_user("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-p", &self.port.to_string()])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let lock = self.dir.join("data/postmaster.pid");
        let pid = child.id().to_string();
        // What pg_ctl waits for, too: the eighth line of that file.
        let ready = || {
            let text = fs::read_to_string(&lock).ok()?;
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            (lines.first() == Some(&pid.as_str()) && lines.get(7) == Some(&"ready")).then_some(true)
        };
        let came = within(PATIENCE, || ready().or_else(|| child.try_wait().unwrap().map(|_| false)));
        if came == Some(true) {
            *self.lock() = Some(child);
            return Ok(());
        }
        let _ = child.kill();
        child.wait().unwrap();
        Err(self.log().get(usize::try_from(before).unwrap()..).unwrap_or_default().to_owned())
    }

    fn end(&self, how: Signal) {
        let Some(mut child) = self.lock().take() else { return };
        processes::signal(child.id(), how);
        let ended = within(PATIENCE, || child.try_wait().unwrap());
        assert!(ended.is_some(), "PostgreSQL did not end:\n{}", self.log());
    }

    fn as_user(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.program(program));
        // The messages that are looked at are in English.
        command.env("LC_ALL", "C").current_dir(&self.dir);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    fn give(&self, path: &Path) {
        if let Some(user) = self.user {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).unwrap();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.postmaster.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    /// Returns when the server and its directory are gone.
    fn drop(&mut self) {
        let child = self.lock().take();
        if let Some(mut child) = child {
            // Those that stand still hear nothing else.
            for pid in processes::freeze(child.id()).into_iter().chain([child.id()]) {
                processes::signal(pid, Signal::KILL);
            }
            let _ = child.wait();
            let _ = fs::remove_file(self.dir.join("data/postmaster.pid"));
        }
        if let Some(mut undertaker) = self.undertaker.take() {
            drop(undertaker.stdin.take());
            let _ = undertaker.wait();
        }
    }
}

/// Linux's file system in memory. A database is three hundred files, which are made and removed for every test; on a
/// disk that was most of what the tests cost.
const MEMORY: &str = "/dev/shm";
/// Free bytes in it from which it is used. A server needs some 40 MB, its log up to 256.
const MEMORY_BYTES_MIN: u64 = 4 << 30;

/// An empty directory that the server's user can come to: in memory where there is plenty, else under `target/tmp`,
/// else among the system's.
fn directory(user: Option<User>) -> PathBuf {
    let memory = Some(PathBuf::from(MEMORY)).filter(|dir| {
        let free = rustix::fs::statvfs(dir).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        free >= MEMORY_BYTES_MIN && is_open(dir, user)
    });
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists()).map(|dir| dir.join("tmp"));
    let target = target.filter(|dir| fs::create_dir_all(dir).is_ok() && is_open(dir, user));
    let parent = memory.or(target).unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("postgres-").tempdir_in(parent).unwrap().keep();
    if let Some(user) = user {
        std::os::unix::fs::chown(&dir, Some(user.uid), Some(user.gid)).unwrap();
    }
    dir
}

/// Whether somebody else gets through to this directory.
fn is_open(dir: &Path, user: Option<User>) -> bool {
    let passes = |dir: &Path| fs::metadata(dir).is_ok_and(|there| there.mode() & 0o001 != 0);
    user.is_none() || dir.canonicalize().is_ok_and(|dir| dir.ancestors().all(passes))
}

/// Below those that the system hands out by itself: while the server is down, one of those could be given to somebody
/// else.
fn free_port() -> u16 {
    loop {
        let dice = std::hash::RandomState::new().build_hasher().finish();
        let port = 10_000 + u16::try_from(dice % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie has let go of everything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}
