//! One database of a server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use crate::postgres::{PASSWORD, Postgres, ROLE, SHARED};

/// One database of a server; it is dropped with this, as far as that is possible.
#[derive(Debug)]
pub struct Database<'a> {
    server: &'a Postgres,
    name: String,
}

impl<'a> Database<'a> {
    pub(crate) fn new(server: &'a Postgres, name: String) -> Self {
        Self { server, name }
    }

    /// How the gate finds it, over TCP, with its password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{}/{}", self.server.port(), self.name)
    }

    /// The same by way of another port of this machine, e.g. that of a proxy which cuts connections.
    #[must_use]
    pub fn url_through(&self, port: u16) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/{}", self.name)
    }

    /// Its name in the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &Postgres {
        self.server
    }

    /// Runs SQL as the administrator: rows are lines, columns are parted by `|`.
    ///
    /// # Panics
    /// With what the server says, where it refuses.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.server.admin(&self.name, sql)
    }

    /// Begins a transaction as the administrator, runs SQL in it, and keeps it open: what it locks stays locked until
    /// [`Held`] is dropped, and what it wrote is undone.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn hold(&self, sql: &str) -> Held {
        let mut psql = self.server.psql(&self.name);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN;\n{sql};\n\\echo held").unwrap();
        let lines = BufReader::new(psql.stdout.take().unwrap()).lines();
        let held = lines.map_while(Result::ok).any(|line| line == "held");
        assert!(held, "the server refused: {sql}");
        Held { psql, input: Some(input) }
    }

    /// How many connections of the gate wait for a lock.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let waiting =
            format!("usename = '{ROLE}' AND datname = current_database() AND wait_event_type = 'Lock'");
        self.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {waiting}")).parse().unwrap()
    }

    /// Cuts every connection to it but the one that asks for this; says how many there were.
    ///
    /// # Panics
    /// As [`Self::sql`].
    pub fn cut(&self) -> u32 {
        let others =
            "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        let count = format!(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {others}"
        );
        self.sql(&count).parse().unwrap()
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // The directory goes with the server anyhow; this only keeps one that many tests share small.
        if SHARED.get().is_some_and(|shared| std::ptr::eq(self.server, shared)) {
            let _ = self
                .server
                .try_admin("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        }
    }
}

/// A transaction that is kept open; undone when this is dropped.
#[derive(Debug)]
pub struct Held {
    psql: Child,
    input: Option<ChildStdin>,
}

impl Held {
    /// Runs more SQL in it, and commits it all.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn commit(mut self, sql: &str) {
        // Quits by itself at the end of its input, and with 3 where a statement failed (psql's manual, "Exit Status").
        if let Some(mut input) = self.input.take() {
            writeln!(input, "{sql};\nCOMMIT;").unwrap();
        }
        let ended = self.psql.wait().unwrap();
        assert!(ended.success(), "the server refused: {sql}");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // At the end of its input it goes, and the server undoes what it did.
        drop(self.input.take());
        let _ = self.psql.wait();
    }
}
