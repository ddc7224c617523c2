//! What a store can fail with. Answers of the gate (stop, lost claim, not found) are no errors.

use std::path::PathBuf;

/// A fault of the store itself. Nothing of the failed call was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// No space for the write; the caller is told 503 and nothing was claimed.
    #[error("the store is full: {0}; free some disk space; nothing was written")]
    Full(String),
    /// The store is closing, or its writer is gone.
    #[error("the store is closed")]
    Closed,
    /// More calls are waiting than the store takes.
    #[error("the store is busy: too many calls are waiting; try again in a moment")]
    Busy,
    /// Another process uses the data directory.
    #[error(
        "{path} is in use by another oncegate process; stop that one, or choose another --data directory"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file system that loses data when the machine or the container stops.
    #[error(
        "{path} is on {kind}, which does not survive a restart of the machine or container; choose a --data \
         directory on a disk or a mounted volume, or pass --ephemeral if losing everything is fine"
    )]
    Ephemeral {
        /// The directory.
        path: PathBuf,
        /// What it is on.
        kind: &'static str,
    },
    /// Made by a later oncegate.
    #[error(
        "{path} was written by a newer oncegate (schema {found}, this one knows {known}); run that version, or \
         restore the copy it made before upgrading"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest this program knows.
        known: i64,
    },
    /// The database cannot be reached, or does not answer; the caller is told 503.
    #[error(
        "the database is away: {0}; callers are told to come back, and it goes on by itself once it answers"
    )]
    Away(String),
    /// The database was told to commit and did not say whether it has: the call may be written or not.
    #[error(
        "the database did not answer whether it has committed: {0}; look, or repeat the call with the same run_id"
    )]
    Unsure(String),
    /// The database, or what is said of it, cannot be worked with.
    #[error("{0}")]
    Refused(String),
    /// A file of an earlier version, which is not touched before there is a copy of it.
    #[error(
        "{path} is of an earlier oncegate and could not be copied before its upgrade, so it was left as it was: {message}"
    )]
    NotCopied {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A file or directory could not be opened or made.
    #[error("{path}: {message}")]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A row that this program cannot read, or a constraint that judged against us: a bug or a damaged file.
    #[error("the store is inconsistent: {0}")]
    Inconsistent(String),
    /// Anything else the database says.
    #[error("the store failed: {0}")]
    Database(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(error.to_string()),
            // A disk or a quota that ends within a write of the log, its index or its sync.
            Some(ErrorCode::SystemIoFailure) if is_for_want_of_room(&error) => Self::Full(error.to_string()),
            Some(ErrorCode::ConstraintViolation | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Inconsistent(error.to_string())
            }
            _ => Self::Database(error.to_string()),
        }
    }
}

fn is_for_want_of_room(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_FSYNC, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_WRITE};
    error
        .sqlite_extended_error_code()
        .is_some_and(|code| [SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_SHMSIZE].contains(&code))
}
