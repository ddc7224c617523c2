//! The data directory: made with private permissions, locked by one process, refused where data would not last.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::disk::{FileSystem, Lasting};
use crate::StoreError;

/// The lock is held for as long as this lives.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// The database's file in a data directory.
pub(super) const DATABASE: &str = "oncegate.db";

/// How often the lock is looked at, and how long between: a second in all. The process before may be about to end, and
/// a child that was just begun holds its parent's locks until it becomes a program of its own.
const LOOKS: (u32, std::time::Duration) = (50, std::time::Duration::from_millis(20));

impl DataDir {
    pub(super) fn open(path: &Path, ephemeral: bool) -> Result<Self, StoreError> {
        let at = |p: &Path, e: &dyn std::fmt::Display| StoreError::Path {
            path: p.to_owned(),
            message: e.to_string(),
        };
        make_private(path).map_err(|e| at(path, &format!("cannot be used as the data directory: {e}")))?;
        if !ephemeral && let Some(kind) = volatile(path).map_err(|e| at(path, &e))? {
            return Err(StoreError::Ephemeral { path: path.to_owned(), kind });
        }
        let lock_path = path.join("oncegate.lock");
        let lock = private_file(&lock_path).map_err(|e| at(&lock_path, &e))?;
        let mut looks = 0..LOOKS.0;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { path: path.to_owned(), _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) if looks.next().is_some() => std::thread::sleep(LOOKS.1),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::Locked { path: path.to_owned() });
                }
                Err(e) => return Err(at(&lock_path, &e)),
            }
        }
    }

    /// Makes the database's file, if it is not there, with its permissions; SQLite gives them to its log.
    pub(super) fn make_database(&self) -> Result<PathBuf, StoreError> {
        let database = self.database();
        private_file(&database)
            .map_err(|e| StoreError::Path { path: database.clone(), message: e.to_string() })?;
        Ok(database)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }
}

/// What SQLite appends to it for the files that belong together.
const DATABASE_FILES: [&str; 3] = ["", "-wal", "-shm"];

/// The schema's number as the file's own first page has it, read without opening it as a database (SQLite file format,
/// "User version number", bytes 60 to 64); 0 if there is none.
pub(super) fn schema_on_disk(database: &Path) -> i64 {
    use std::io::Read;
    let mut head = [0; 64];
    let read = File::options().read(true).open(database).and_then(|mut file| file.read_exact(&mut head));
    match (read, head.last_chunk::<4>()) {
        (Ok(()), Some(number)) => i64::from(u32::from_be_bytes(*number)),
        _ => 0,
    }
}

/// Whether any file of a database is there; a log that was left alone must not meet another database.
pub(super) fn has_database(database: &Path) -> bool {
    DATABASE_FILES.iter().any(|suffix| with_suffix(database, suffix).exists())
}

/// Payloads and tokens' hashes lie here: nobody else on the machine may read them.
pub(super) fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens, or makes, a file that only its owner may read, whatever the directory allows (it may be a mounted volume).
pub(super) fn private_file(path: &Path) -> std::io::Result<File> {
    use std::fs::Permissions;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    // One that was copied here, e.g. from a backup, has the permissions that the copy gave it.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// The directory of a file.
pub(super) fn parent(file: &Path) -> &Path {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The same path with something at its end.
pub(super) fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What is written in it is on the disk when this returns. Works for directories too.
pub(super) fn sync(path: &Path) -> std::io::Result<()> {
    File::options().read(true).open(path)?.sync_all()
}

/// Gives a synced file its name, durably, and never another one's. Returns its size.
pub(super) fn rename_synced(from: &Path, to: &Path) -> std::io::Result<u64> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let bytes = std::fs::metadata(from)?.len();
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Some file systems cannot promise it; who calls has looked before.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => std::fs::rename(from, to)?,
        Err(e) => return Err(e.into()),
    }
    sync(parent(to))?;
    Ok(bytes)
}

/// Removes a file; whether it was there and is gone. What stays is told in the log.
pub(super) fn remove(path: &Path) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => true,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a file could not be removed");
            false
        }
    }
}

/// The names of the plain files in a directory; none if it is not there.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// A size as people write it.
pub(super) fn in_mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1024 * 1024))
}

fn volatile(path: &Path) -> rustix::io::Result<Option<&'static str>> {
    let kind = FileSystem::of(path)?;
    Ok(match kind.lasting {
        Lasting::No(why) => Some(why),
        Lasting::Yes | Lasting::Network | Lasting::Unknown => None,
    })
}

/// The size of a file in bytes; 0 if it is not there.
pub(super) fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// A file's name, for people.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Moves the database of a locked directory into a folder of its own beside it. Returns the folder.
pub(super) fn set_aside(dir: &DataDir, now: oncegate_core::time::Timestamp) -> std::io::Result<PathBuf> {
    let stamp: String = now.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let folder = (1u32..)
        .map(|n| dir.path().join(format!("before-restore-{stamp}-{n}")))
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| dir.path().join("before-restore"));
    make_private(&folder)?;
    // The database goes first: without its log it would be an older one, the log without it is nothing.
    for suffix in DATABASE_FILES {
        let from = with_suffix(&dir.database(), suffix);
        if from.exists() {
            std::fs::rename(&from, with_suffix(&folder.join(DATABASE), suffix))?;
        }
    }
    sync(&folder)?;
    sync(dir.path())?;
    Ok(folder)
}
