//! Room on the disk. Nothing new is taken while there is still some, so that what was taken can be finished: done,
//! error, reset and the like are written from what is kept free, and from a file that only holds a place.

use std::path::{Path, PathBuf};

use oncegate_core::limits;
use rusqlite::Connection;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::dir::{self, DataDir};
use crate::StoreError;

/// What one store may use, and what it keeps back.
#[derive(Debug)]
pub(super) struct Room {
    directory: PathBuf,
    /// The file that holds a place.
    reserve: PathBuf,
    is_held: bool,
    /// It was given up, and what it was given up for needs what is left of it.
    is_used: bool,
    /// The size to which the database is bounded, in bytes; `None` is the disk's.
    max_bytes: Option<u64>,
}

impl Room {
    /// Makes the reserve, if there is room for it.
    pub(super) fn new(dir: &DataDir, max_bytes: Option<u64>) -> Self {
        let directory = dir.path().to_owned();
        let reserve = directory.join("oncegate.reserve");
        let mut room = Self { directory, reserve, is_held: false, is_used: false, max_bytes };
        room.hold();
        if !room.is_held {
            tracing::warn!(
                "there is no room for the reserve of {}: if the disk fills up, what runs may not be written down",
                dir::in_mib(limits::RESERVE_BYTES)
            );
        }
        room
    }

    /// Whether new work may be taken; asked before every transaction, as it costs one system call.
    pub(super) fn for_new_work(&mut self, db: &Connection) -> Result<(), StoreError> {
        if let Some(max) = self.max_bytes {
            let kept = limits::DATABASE_KEPT_FREE_BYTES.min(max / 20);
            let left = left(db, max)?;
            if left < kept {
                return Err(StoreError::Full(format!(
                    "the database may hold {}, and the last {} KiB are kept for what runs already",
                    dir::in_mib(max),
                    kept / 1024
                )));
            }
        }
        // A file system that does not tell is judged by its writes.
        let Some((free, kept)) = free_and_kept(&self.directory) else { return Ok(()) };
        if free < kept {
            return Err(StoreError::Full(format!(
                "the disk of {} has {} free, and the last {} are kept for what runs already",
                self.directory.display(),
                dir::in_mib(free),
                dir::in_mib(kept)
            )));
        }
        if !self.is_held {
            self.hold();
        }
        match self.is_used {
            false => Ok(()),
            true => Err(StoreError::Full(format!(
                "the disk of {} was full and has {} free: not enough yet to hold the reserve of {} again",
                self.directory.display(),
                dir::in_mib(free),
                dir::in_mib(limits::RESERVE_BYTES)
            ))),
        }
    }

    /// Frees the place that was held; whether there was one.
    pub(super) fn give_up_reserve(&mut self) -> bool {
        if !std::mem::take(&mut self.is_held) {
            return false;
        }
        let given = dir::remove(&self.reserve);
        self.is_used = given;
        if given {
            tracing::error!(
                "the disk is full: the reserve of {} is used to write down what runs; free some space",
                dir::in_mib(limits::RESERVE_BYTES)
            );
        }
        given
    }

    /// Takes the place, if that leaves more free than must be.
    fn hold(&mut self) {
        if dir::size(&self.reserve) == limits::RESERVE_BYTES {
            self.is_held = true;
            return;
        }
        if free_and_kept(&self.directory).is_some_and(|(free, kept)| free < kept + limits::RESERVE_BYTES) {
            return;
        }
        match allocate(&self.reserve) {
            Ok(()) => (self.is_held, self.is_used) = (true, false),
            Err(error) => {
                tracing::debug!(%error, "the reserve could not be made");
                dir::remove(&self.reserve);
            }
        }
    }
}

/// Really takes the blocks; a file of that length alone would hold nothing.
fn allocate(path: &Path) -> std::io::Result<()> {
    use std::io::Write;
    dir::remove(path);
    let file = dir::private_file(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, limits::RESERVE_BYTES) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            let block = [0u8; 64 * 1024];
            for _ in 0..limits::RESERVE_BYTES / block.len() as u64 {
                (&file).write_all(&block)?;
            }
        }
        Err(e) => return Err(e.into()),
    }
    file.sync_all()
}

/// Bytes that the bounded database may still take, in pages that were never used or are free again.
fn left(db: &Connection, max: u64) -> Result<u64, StoreError> {
    let read = |name: &str| -> Result<u64, StoreError> {
        Ok(db.pragma_query_value(None, name, |r| r.get::<_, i64>(0))?.unsigned_abs())
    };
    let page = read("page_size")?.max(1);
    let used = read("page_count")?.saturating_sub(read("freelist_count")?);
    Ok((max / page).saturating_sub(used) * page)
}

/// Free bytes for a program without privileges; `None` if the system does not tell.
pub(super) fn free(directory: &Path) -> Option<u64> {
    statvfs(directory).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

fn free_and_kept(directory: &Path) -> Option<(u64, u64)> {
    let fs = statvfs(directory).ok()?;
    let all = fs.f_blocks.saturating_mul(fs.f_frsize);
    Some((fs.f_bavail.saturating_mul(fs.f_frsize), limits::DISK_KEPT_FREE_BYTES.min(all / 20)))
}
