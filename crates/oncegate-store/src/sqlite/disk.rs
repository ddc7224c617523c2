//! What can be known about a data directory from outside: its disk, its files, how long a sync takes there.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_core::time::Timestamp;
use rustix::fs::statfs;

use super::dir::DATABASE;
use crate::StoreError;
use crate::clock::Clock;

/// File system magic numbers (statfs(2)).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const OVERLAYFS: i64 = 0x794c_7630;

/// The file system that a path is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name, or `unknown`.
    pub name: &'static str,
    /// What its kind says about lasting.
    pub lasting: Lasting,
    /// Bytes that this process may still write there.
    pub free: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Whether what is written to a file system is there after a restart of the machine or the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// A disk.
    Yes,
    /// It is not, because the file system is this.
    No(&'static str),
    /// A disk elsewhere: locks and syncs are only as good as the server and its mount options.
    Network,
    /// A kind that is not known here.
    Unknown,
}

impl FileSystem {
    /// Of the file or directory at `path`.
    ///
    /// # Errors
    /// It is not there, or cannot be looked at.
    pub fn of(path: &Path) -> rustix::io::Result<Self> {
        let found = statfs(path)?;
        #[allow(clippy::unnecessary_cast, reason = "the field's type differs between platforms")]
        let magic = found.f_type as i64;
        let (name, lasting) = Self::kind(magic);
        let space = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Self { name, lasting, free: bytes(space.f_bavail), size: bytes(space.f_blocks) })
    }

    /// By its magic number (statfs(2), linux/magic.h); those below 2^32 only.
    fn kind(magic: i64) -> (&'static str, Lasting) {
        match magic & 0xffff_ffff {
            TMPFS => ("tmpfs", Lasting::No("tmpfs (memory)")),
            RAMFS => ("ramfs", Lasting::No("ramfs (memory)")),
            OVERLAYFS => ("overlay", Lasting::No("an overlay (a container's own layer)")),
            0xef53 => ("ext4", Lasting::Yes),
            0x5846_5342 => ("xfs", Lasting::Yes),
            0x9123_683e => ("btrfs", Lasting::Yes),
            0x2fc1_2fc1 => ("zfs", Lasting::Yes),
            0xf2f5_2010 => ("f2fs", Lasting::Yes),
            0x6969 => ("nfs", Lasting::Network),
            0xff53_4d42 => ("cifs", Lasting::Network),
            0xfe53_4d42 => ("smb2", Lasting::Network),
            0x0102_1997 => ("9p", Lasting::Network),
            0x00c3_6400 => ("ceph", Lasting::Network),
            0x6573_5546 => ("fuse", Lasting::Network),
            _ => ("unknown", Lasting::Unknown),
        }
    }
}

/// A copy of the store that was finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Where.
    pub path: PathBuf,
    /// When it was last written.
    pub at: Timestamp,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The newest backup in the folder `backups` of a data directory; `None` if there is none.
///
/// # Errors
/// The folder is there and cannot be read.
pub fn newest_backup(data: &Path) -> Result<Option<Backup>, StoreError> {
    let dir = data.join("backups");
    let at = |e: std::io::Error| StoreError::Path { path: dir.clone(), message: e.to_string() };
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(e)),
    };
    let mut newest: Option<Backup> = None;
    for entry in entries {
        let entry = entry.map_err(at)?;
        let path = entry.path();
        // What is still being written has another name.
        if path.extension().is_none_or(|e| e != "db") {
            continue;
        }
        // One that rotation takes away meanwhile is none.
        let Ok(meta) = entry.metadata() else { continue };
        let written = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        let Some(written) = written.filter(|_| meta.is_file()) else { continue };
        let at = Timestamp::from_millis(i64::try_from(written.as_millis()).unwrap_or(i64::MAX));
        if newest.as_ref().is_none_or(|n| n.at < at) {
            newest = Some(Backup { path, at, bytes: meta.len() });
        }
    }
    Ok(newest)
}

/// Size of the database file in a data directory, in bytes; 0 if there is none.
pub fn database_bytes(data: &Path) -> u64 {
    std::fs::metadata(data.join(DATABASE)).map(|m| m.len()).unwrap_or(0)
}

/// Bytes of the store's files, and what is left on their disk.
pub(super) struct Sizes {
    pub(super) database: u64,
    pub(super) wal: u64,
    pub(super) free: u64,
}

/// Sizes of a data directory. A log that is not there has none.
pub(super) fn sizes(data: &Path) -> Result<Sizes, StoreError> {
    let wal = std::fs::metadata(data.join("oncegate.db-wal")).map(|m| m.len()).unwrap_or(0);
    let disk = FileSystem::of(data)
        .map_err(|e| StoreError::Path { path: data.to_owned(), message: e.to_string() })?;
    Ok(Sizes { database: database_bytes(data), wal, free: disk.free })
}

/// The permission bits of a file or directory, e.g. `0o700`; `None` if it is not there.
///
/// # Errors
/// It cannot be looked at.
pub fn permissions(path: &Path) -> std::io::Result<Option<u32>> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.permissions().mode() & 0o7777)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// How long it takes until a small write is on the disk: the median of some. The file it writes is removed.
///
/// # Errors
/// Nothing can be written there.
pub fn sync_time(dir: &Path, clock: &dyn Clock) -> std::io::Result<Duration> {
    const ROUNDS: usize = 15;
    let path = dir.join(format!(".oncegate-doctor-{}", std::process::id()));
    let mut file = File::options().create_new(true).write(true).open(&path)?;
    let mut once = || {
        let begun = clock.read().monotonic;
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        Ok(clock.read().monotonic.saturating_sub(begun))
    };
    let took: std::io::Result<Vec<Duration>> = (0..ROUNDS).map(|_| once()).collect();
    std::fs::remove_file(&path)?;
    let mut took = took?;
    took.sort();
    Ok(took[ROUNDS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_file_systems_are_told_apart() {
        for (magic, name, lasting) in [
            (0xef53, "ext4", Lasting::Yes),
            (0x6969, "nfs", Lasting::Network),
            (TMPFS, "tmpfs", Lasting::No("tmpfs (memory)")),
            // As it comes where the field has 32 bits and a sign.
            (0x9123_683e - (1 << 32), "btrfs", Lasting::Yes),
            (0x7777, "unknown", Lasting::Unknown),
        ] {
            assert_eq!(FileSystem::kind(magic), (name, lasting));
        }
        let here = FileSystem::of(Path::new("/")).unwrap();
        assert!(here.size > 0 && here.free <= here.size, "{here:?}");
        assert!(FileSystem::of(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn a_sync_is_timed_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(sync_time(dir.path(), &crate::clock::SystemClock::new()).unwrap() > Duration::ZERO);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(sync_time(&dir.path().join("none"), &crate::clock::SystemClock::new()).is_err());
    }

    #[test]
    fn the_newest_backup_is_the_one_that_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(newest_backup(dir.path()).unwrap(), None, "no folder");
        let backups = dir.path().join("backups");
        std::fs::create_dir(&backups).unwrap();
        assert_eq!(newest_backup(dir.path()).unwrap(), None, "nothing in it");
        for (name, age) in [("b.db", 10), ("a.db", 20), ("c.db.part", 1)] {
            let file =
                File::options().create(true).truncate(false).write(true).open(backups.join(name)).unwrap();
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 - age);
            file.set_modified(at).unwrap();
        }
        let newest = newest_backup(dir.path()).unwrap().unwrap();
        assert_eq!((newest.path, newest.at), (backups.join("b.db"), Timestamp::from_secs(999_990)));
    }
}
