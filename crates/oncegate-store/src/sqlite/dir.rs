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
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::Locked { path: path.to_owned() }),
            Err(e) => return Err(at(&lock_path, &e)),
        }
        let dir = Self { path: path.to_owned(), _lock: lock };
        // SQLite gives its log the permissions of the file.
        let database = dir.database();
        private_file(&database).map_err(|e| at(&database, &e))?;
        Ok(dir)
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Payloads and tokens' hashes lie here: nobody else on the machine may read them.
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens, or makes, a file that only its owner may read, whatever the directory allows (it may be a mounted volume).
fn private_file(path: &Path) -> std::io::Result<File> {
    use std::fs::Permissions;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    // One that was copied here, e.g. from a backup, has the permissions that the copy gave it.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn volatile(path: &Path) -> rustix::io::Result<Option<&'static str>> {
    let kind = FileSystem::of(path)?;
    Ok(match kind.lasting {
        Lasting::No(why) => Some(why),
        Lasting::Yes | Lasting::Network | Lasting::Unknown => None,
    })
}
