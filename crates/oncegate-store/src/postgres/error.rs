//! What can go wrong between a node and its database, and what is done about it.

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// Why a transaction did not come to its end.
#[derive(Debug)]
pub(super) enum Fault {
    /// It lost against another one, and may win when it is tried again: nothing of it was written.
    Again(String),
    /// It failed.
    Failed(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        judge(&error)
    }
}

impl From<deadpool_postgres::PoolError> for Fault {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        use deadpool_postgres::PoolError;
        Self::Failed(match error {
            PoolError::Backend(error) => match judge(&error) {
                Fault::Failed(error) => error,
                Fault::Again(why) => StoreError::Away(why),
            },
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => StoreError::Busy,
            PoolError::Timeout(_) => StoreError::Away("it did not answer in time".into()),
            PoolError::Closed => StoreError::Closed,
            PoolError::PostCreateHook(error) => match error {
                deadpool_postgres::HookError::Backend(error) => match judge(&error) {
                    Fault::Failed(error) => error,
                    Fault::Again(why) => StoreError::Away(why),
                },
                deadpool_postgres::HookError::Message(why) => StoreError::Refused(why.into_owned()),
            },
            PoolError::NoRuntimeSpecified => StoreError::Database("the pool has no runtime".into()),
        })
    }
}

/// What SQLSTATE says (PostgreSQL's manual, appendix A). 40001 and 40P01: try again, and distributed databases ask for
/// it more often. 23505: a unique index told two apart that had both looked before; the second look decides.
fn judge(error: &tokio_postgres::Error) -> Fault {
    let Some(db) = error.as_db_error() else {
        return Fault::Failed(match is_distrust(error) {
            true => StoreError::Refused(format!(
                "the database's server cannot be trusted: {} (sslmode, sslrootcert: docs/postgresql.md)",
                in_words(error)
            )),
            false => StoreError::Away(in_words(error)),
        });
    };
    let code = db.code();
    let words = format!("{} ({})", db.message(), code.code());
    if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION]
        .contains(code)
    {
        return Fault::Again(words);
    }
    // Somebody has held the row for as long as we wait: the caller has waited long enough, too.
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        return Fault::Failed(StoreError::Busy);
    }
    Fault::Failed(match code.code().get(..2) {
        Some("53") if *code == SqlState::DISK_FULL => StoreError::Full(words),
        // No connection left, out of memory; the server goes away or comes up; a read-only standby; cancelled.
        Some("53" | "57" | "58" | "08") => StoreError::Away(words),
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::Away(words),
        Some("28") => StoreError::Refused(format!("{words}; mend user and password in --store")),
        Some("3D") => {
            StoreError::Refused(format!("{words}; make it with `createdb`, or mend its name in --store"))
        }
        Some("23" | "22") => StoreError::Inconsistent(words),
        _ => StoreError::Database(words),
    })
}

/// Whether encryption was asked for and the server has none, or not one that its certificate vouches for: waiting mends
/// nothing. A connection that breaks during the handshake is merely away.
fn is_distrust(error: &tokio_postgres::Error) -> bool {
    use std::error::Error;
    // The driver does not say which kind it is but in words (tokio-postgres, `Kind::Tls`).
    if !error.to_string().starts_with("error performing TLS handshake") {
        return false;
    }
    match error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(io) => io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        None => true,
    }
}

/// The whole chain: the first link alone says only "error connecting to server".
fn in_words(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        words = format!("{words}: {next}");
        cause = next.source();
    }
    words
}

/// A row that this program cannot read.
pub(super) fn unreadable(what: impl std::fmt::Display) -> Fault {
    Fault::Failed(StoreError::Inconsistent(what.to_string()))
}
