//! Where the store lies, and how it is opened: the embedded one in a directory, or PostgreSQL.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncegate_core::secret::Secret;
use oncegate_runner::entropy;
use oncegate_store::StoreError;
use oncegate_store::api::{PolicyBook, Store};
use oncegate_store::clock::Clock;
use oncegate_store::observer::Observer;
use oncegate_store::postgres::{self, PgStore};
use oncegate_store::sqlite::{self, SqliteStore};

use crate::config::{Environment, secret_file};

/// Where the store lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// The embedded store, in this directory.
    Sqlite(PathBuf),
    /// PostgreSQL. The URL may hold a password, so it does not print.
    Postgres(Secret),
}

/// What names no store. Never quotes what was given: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// Another kind of store, or a typing error.
    #[error(
        "--store: write `sqlite`, `sqlite:DIR`, `postgres://user:password@host:5432/database`, or `file:PATH` of a file \
         in which one of these stands"
    )]
    Unknown,
    /// The same directory is named twice, and differently.
    #[error("--store names the directory {store} and --data names {data}; give one of them")]
    Twice {
        /// By `--store`.
        store: String,
        /// By `--data`.
        data: String,
    },
    /// `file:PATH` does not read.
    #[error("--store: {0}")]
    File(String),
}

/// Where the embedded store lies if nobody says.
const DATA: &str = "oncegate-data";

impl StoreUrl {
    /// Reads `--store`, with the directory of `--data` where that counts.
    ///
    /// # Errors
    /// It names no store, or two.
    pub fn parse(store: Option<&Secret>, data: Option<PathBuf>) -> Result<Self, StoreUrlError> {
        let Some(store) = store else { return Ok(Self::Sqlite(data.unwrap_or_else(|| DATA.into()))) };
        let text = std::str::from_utf8(store.expose()).map_err(|_| StoreUrlError::Unknown)?.trim();
        match text.split_once(':') {
            None if text == "sqlite" => Ok(Self::Sqlite(data.unwrap_or_else(|| DATA.into()))),
            Some(("sqlite", dir)) if !dir.is_empty() => match data {
                Some(data) if data.as_path() != Path::new(dir) => {
                    Err(StoreUrlError::Twice { store: dir.to_owned(), data: data.display().to_string() })
                }
                _ => Ok(Self::Sqlite(dir.into())),
            },
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                // A directory that is named as well, as a container's environment may, is not used.
                Ok(Self::Postgres(Secret::new(text)))
            }
            Some(("file", path)) if !path.is_empty() => {
                let inside = secret_file(path).map_err(StoreUrlError::File)?;
                match inside.expose().starts_with(b"file:") {
                    true => Err(StoreUrlError::Unknown),
                    false => Self::parse(Some(&inside), data),
                }
            }
            _ => Err(StoreUrlError::Unknown),
        }
    }

    /// Whether the argument list, which everybody on the machine may read, shows a password: the store was named there
    /// and not in the environment or a file.
    pub fn shows_a_password(given: Option<&Secret>, environment: &dyn Environment) -> bool {
        let Some(given) = given.and_then(|given| std::str::from_utf8(given.expose()).ok()) else {
            return false;
        };
        let Some((_, rest)) = given.split_once("://") else { return false };
        let Some((user, _)) = rest.split('/').next().unwrap_or_default().rsplit_once('@') else {
            return false;
        };
        user.contains(':') && environment.get("ONCEGATE_STORE").as_deref() != Some(given)
    }
}

/// What a verb that works on files says where there are none.
pub(crate) fn needs_a_directory(url: &StoreUrl, instead: &str) -> Result<PathBuf, String> {
    match url {
        StoreUrl::Sqlite(dir) => Ok(dir.clone()),
        StoreUrl::Postgres(_) => Err(format!("the store is on PostgreSQL: {instead} (docs/postgresql.md)")),
    }
}

/// How a store is opened.
pub struct Opening {
    /// What this node is called, where there may be several.
    pub node: String,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether `clock` also stands in for the database's: for tests, which turn it by hand.
    pub simulated: bool,
    /// What automations allow.
    pub policies: Arc<dyn PolicyBook>,
    /// Accept a directory that does not last.
    pub ephemeral: bool,
    /// Largest size of an embedded database in bytes; `None` is the disk's.
    pub max_bytes: Option<u64>,
}

/// Opens a store, or makes it.
///
/// # Errors
/// The store's.
pub async fn open_store(
    url: &StoreUrl,
    how: Opening,
    observer: Arc<dyn Observer>,
) -> Result<Arc<dyn Store>, StoreError> {
    match url {
        StoreUrl::Sqlite(dir) => {
            let options = sqlite::Options {
                clock: how.clock,
                policies: how.policies,
                fresh_secret: entropy::bytes(),
                ephemeral: how.ephemeral,
                max_bytes: how.max_bytes,
            };
            Ok(Arc::new(SqliteStore::open_observed(dir, &options, observer)?))
        }
        StoreUrl::Postgres(url) => {
            let options = postgres::Options {
                url: url.clone(),
                node: how.node,
                clock: how.clock,
                simulated: how.simulated,
                policies: how.policies,
                fresh_secret: entropy::bytes(),
                limits: postgres::Limits::default(),
            };
            let opened = PgStore::open_observed(&options, observer).await.map_err(|error| match error {
                // Callers of a gate that runs are told to come back; whoever starts one has to mend something.
                StoreError::Away(why) => StoreError::Refused(format!(
                    "the database does not answer ({why}): see that it runs and can be reached from here, or name \
                     another one with --store"
                )),
                other => other,
            });
            Ok(Arc::new(opened?))
        }
    }
}

/// What a node is called if nobody says: the machine's name, as far as it can be a node's.
pub fn machine_name() -> String {
    let uname = rustix::system::uname();
    node_of(&uname.nodename().to_string_lossy())
}

fn node_of(machine: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let name: String =
        machine.to_ascii_lowercase().chars().map(|c| if fits(c) { c } else { '-' }).take(64).collect();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// Reads `--node`.
///
/// # Errors
/// It has other letters, or too many.
pub fn node_name(text: &str) -> Result<String, String> {
    match !text.is_empty() && text == node_of(text) {
        true => Ok(text.to_owned()),
        false => Err("write 1 to 64 of a-z, 0-9, `.`, `_` and `-`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(store: &str, data: Option<&str>) -> Result<StoreUrl, StoreUrlError> {
        StoreUrl::parse(Some(&Secret::new(store)), data.map(Into::into))
    }

    #[test]
    fn a_store_is_named_by_url_by_directory_or_not_at_all() {
        let sqlite = |dir: &str| Ok(StoreUrl::Sqlite(dir.into()));
        let url = "postgres://og:pw@db/og?sslmode=require";
        assert_eq!(StoreUrl::parse(None, None), sqlite("oncegate-data"));
        assert_eq!(StoreUrl::parse(None, Some("d".into())), sqlite("d"));
        for (store, data, expected) in [
            ("sqlite", None, sqlite("oncegate-data")),
            ("sqlite", Some("d"), sqlite("d")),
            ("sqlite:d", None, sqlite("d")),
            ("sqlite:d", Some("d"), sqlite("d")),
            (url, None, Ok(StoreUrl::Postgres(Secret::new(url)))),
            (url, Some("d"), Ok(StoreUrl::Postgres(Secret::new(url)))),
            ("postgresql://db/og\n", None, Ok(StoreUrl::Postgres(Secret::new("postgresql://db/og")))),
            ("sqlite:d", Some("e"), Err(StoreUrlError::Twice { store: "d".into(), data: "e".into() })),
        ] {
            assert_eq!(parse(store, data), expected, "{store}");
        }
        for store in
            ["", "sqlite:", "postgres", "postgres:og", "mysql://a:hunter2@b/c", "file:", "x y:hunter2@"]
        {
            let error = parse(store, None).unwrap_err();
            assert_eq!(error, StoreUrlError::Unknown, "{store}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn a_file_may_hold_the_url() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        std::io::Write::write_all(
            &mut std::fs::OpenOptions::new().create_new(true).write(true).open(&path).unwrap(),
            b"postgres://og:pw@db/og\n",
        )
        .unwrap();
        let named = format!("file:{}", path.display());
        assert_eq!(parse(&named, None), Ok(StoreUrl::Postgres(Secret::new("postgres://og:pw@db/og"))));
        let error = parse("file:not-there", None).unwrap_err().to_string();
        assert!(error.contains("not-there"), "{error}");
    }

    struct Variable(&'static str);

    impl Environment for Variable {
        fn get(&self, name: &str) -> Option<String> {
            (name == "ONCEGATE_STORE").then(|| self.0.to_owned())
        }
    }

    #[test]
    fn only_a_password_among_the_arguments_is_shown_to_others() {
        let url = "postgres://og:pw@db/og";
        for (given, variable, shows) in [
            (url, "", true),
            (url, url, false),
            ("postgres://og@db/og", "", false),
            ("postgres://db/og?x=a:b@c", "", false),
            ("sqlite:a", "", false),
        ] {
            let given_secret = Secret::new(given);
            assert_eq!(
                StoreUrl::shows_a_password(Some(&given_secret), &Variable(variable)),
                shows,
                "{given}"
            );
        }
    }

    #[test]
    fn a_machines_name_becomes_a_nodes() {
        for (machine, node) in
            [("Web-1.Example", "web-1.example"), ("büro", "b-ro"), ("", "node"), ("a b", "a-b")]
        {
            assert_eq!(node_of(machine), node);
            assert_eq!(node_name(node).as_deref(), Ok(node));
        }
        assert_eq!(node_of(&"x".repeat(70)).len(), 64);
        for wrong in ["", "A", "a b", "ä", &"x".repeat(65)] {
            assert!(node_name(wrong).is_err(), "{wrong}");
        }
        assert!(node_name(&machine_name()).is_ok());
    }
}
