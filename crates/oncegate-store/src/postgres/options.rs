//! How to reach a database, and what is refused there.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use oncegate_core::secret::Secret;
use tokio_postgres::config::{Host, SslMode};

use crate::StoreError;
use crate::api::PolicyBook;
use crate::clock::Clock;

/// How to open a store on PostgreSQL.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`.
    pub url: Secret,
    /// The node's name, the same at every start of this node and no other's: 1–64 of `a-z 0-9 . _ -`.
    pub node: String,
    /// Where the node's own clocks are read. Nothing is judged by them but waiting: time is the database's.
    pub clock: Arc<dyn Clock>,
    /// Whether `clock` stands in for the database's clock: for tests and drills, which turn it by hand.
    pub simulated: bool,
    /// What automations allow.
    pub policies: Arc<dyn PolicyBook>,
    /// 32 random bytes: the store's secret, if this opening makes the store.
    pub fresh_secret: [u8; 32],
    /// Bounds on what the node asks of the database.
    pub limits: Limits,
}

/// Bounds on what a node asks of its database.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at most, and one more for each export that is under way; all nodes together must stay below the
    /// server's `max_connections`.
    pub connections: usize,
    /// How long to wait for a connection to be made or to come free, before the caller is told 503.
    pub wait: Duration,
    /// How long one statement may take (`statement_timeout`).
    pub statement: Duration,
    /// How long to wait for a row that another transaction holds (`lock_timeout`).
    pub lock: Duration,
    /// How long a transaction may stand still (`idle_in_transaction_session_timeout`): a node that froze in one must
    /// not hold up the others.
    pub idle_in_transaction: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16,
            wait: Duration::from_secs(5),
            statement: Duration::from_secs(10),
            lock: Duration::from_secs(3),
            idle_in_transaction: Duration::from_secs(10),
        }
    }
}

/// What a URL says about encryption. A certificate that is not checked protects from nobody, and a mode in which an
/// attacker may choose plain text protects no better, so there are two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Plain text.
    Off,
    /// TLS, with the server's certificate checked against these roots, or the machine's.
    Verified { roots: Option<String> },
}

/// A URL, taken apart.
pub(super) struct Target {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: Tls,
}

fn refused(words: impl Into<String>) -> StoreError {
    StoreError::Refused(words.into())
}

impl Target {
    /// Reads a URL. `sslmode` and `sslrootcert` are ours to read; the rest is the driver's.
    pub(super) fn parse(url: &Secret) -> Result<Self, StoreError> {
        let text = std::str::from_utf8(url.expose()).map_err(|_| refused("the store's URL is not UTF-8"))?;
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => roots = Some(decoded(value)?),
                _ => rest.push(pair),
            }
        }
        let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        // Its message may quote the URL, and with it the password.
        let mut config = tokio_postgres::Config::from_str(&plain).map_err(|_| {
            refused(
                "the store's URL cannot be read; write postgres://user:password@host:5432/database, and \
                 percent-encode what is special in the password",
            )
        })?;
        let tls = match mode.as_deref() {
            None if is_local(&config) => Tls::Off,
            None | Some("verify-full" | "verify-ca" | "require") => Tls::Verified { roots },
            Some("disable") => Tls::Off,
            Some(other) => {
                return Err(refused(format!(
                    "sslmode={other} lets whoever stands in between choose plain text; write sslmode=verify-full, \
                     with sslrootcert=FILE if the server's certificate is signed by an authority of your own, or \
                     sslmode=disable on a network that you trust"
                )));
            }
        };
        config.ssl_mode(if tls == Tls::Off { SslMode::Disable } else { SslMode::Require });
        Ok(Self { config, tls })
    }

    /// The database in words, without its user and password.
    pub(super) fn name(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<String> = hosts.collect();
        let ports: String =
            self.config.get_ports().first().map(|port| format!(":{port}")).unwrap_or_default();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("postgres://{}{ports}/{database}", hosts.join(","))
    }
}

fn decoded(value: &str) -> Result<String, StoreError> {
    let decoded = percent_encoding::percent_decode_str(value).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| refused("sslrootcert is not UTF-8"))
}

/// Whether nothing leaves the machine.
fn is_local(config: &tokio_postgres::Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    })
}

/// Whether a node may be called so.
pub(super) fn check_node(name: &str) -> Result<(), StoreError> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    match (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        true => Ok(()),
        false => {
            Err(refused("a node's name has 1 to 64 of a-z, 0-9, `.`, `_` and `-`; set another with --node"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, StoreError> {
        Target::parse(&Secret::new(url.as_bytes().to_vec()))
    }

    #[test]
    fn only_what_stays_on_the_machine_goes_unencrypted_by_itself() {
        let verified = |roots: Option<&str>| Tls::Verified { roots: roots.map(str::to_owned) };
        for (url, tls) in [
            ("postgres://og@127.0.0.1/og", Tls::Off),
            ("postgres://og@localhost:5433/og", Tls::Off),
            ("postgres:///og?host=/var/run/postgresql&user=og", Tls::Off),
            ("postgres://og:pw@db.example/og", verified(None)),
            ("postgres://og:pw@db.example/og?sslmode=disable", Tls::Off),
            ("postgres://og:pw@127.0.0.1/og?sslmode=require", verified(None)),
            (
                "postgres://og:pw@db.example/og?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem",
                verified(Some("/etc/ca.pem")),
            ),
        ] {
            assert_eq!(parse(url).unwrap().tls, tls, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_telling_the_password() {
        for url in [
            "postgres://og:hunter2@db.example/og?sslmode=prefer",
            "postgres://og:hunter2@db.example:port/og",
            "postgres://og:hunter2@db.example/og?no_such_option=1",
        ] {
            let error = parse(url).err().unwrap().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
