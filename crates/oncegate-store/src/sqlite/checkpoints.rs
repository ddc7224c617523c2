//! Writing the log back into the file, which takes random writes and two syncs of its own. A thread does most of it
//! while transactions go on; the writer itself only writes back what came since, so that the log can begin anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use oncegate_core::limits;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};

use super::{connection, dir, room};
use crate::StoreError;

/// Pages in the log, and again so many more, at which the thread is woken.
const PAGES_EARLY: i32 = 4_000;
/// Pages in the log at which the writer sees to it. Fewer and larger ones cost less than many small ones, because pages
/// that were written more than once go into the file once.
const PAGES_LATE: i32 = 20_000;

/// The thread beside a writer. It ends when the writer's connection does, and is to be dropped after that.
#[derive(Debug)]
pub(super) struct Checkpoints {
    thread: Option<std::thread::JoinHandle<()>>,
    broken: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Starts the thread, and has `writer` wake it.
    pub(super) fn start(writer: &mut Connection, path: &Path) -> Result<Self, StoreError> {
        let beside = connection::connect(path)?;
        // It writes back, it commits nothing.
        beside.pragma_update(None, "wal_autocheckpoint", 0)?;
        let broken = Arc::new(AtomicBool::new(false));
        let (wake, woken) = sync_channel(1);
        let beside =
            Beside { db: beside, directory: dir::parent(path).to_owned(), broken: Arc::clone(&broken) };
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || beside.run(&woken))
            .map_err(|e| StoreError::Database(e.to_string()))?;
        let mut ringing = Ringing { next: PAGES_EARLY, wake };
        let told = Arc::clone(&broken);
        writer.wal_hook(Some(move |log: &mut Wal, pages| {
            if !told.load(Ordering::Relaxed) && ringing.committed(pages) {
                judge(log.checkpoint(), &told);
            }
            // The transaction is committed: an error here would be taken for its own.
            Ok(())
        }))?;
        Ok(Self { thread: Some(thread), broken })
    }

    /// Ends the thread and leaves one file behind instead of three; failing to is harmless.
    pub(super) fn end(mut self, writer: &mut Connection) {
        // With the hook goes what wakes the thread, and so the thread.
        let _ = writer.wal_hook(None::<fn(&mut Wal, i32) -> rusqlite::Result<()>>);
        self.join();
        match self.broken.load(Ordering::Relaxed) {
            // The log is all there is of what it holds. The next start reads it from its beginning.
            true => drop(writer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)),
            false => drop(writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")),
        }
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Nothing of a store is open once it has let go of its directory, however it ends.
impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.join();
    }
}

/// After a disk failed to write or to sync, it may take a later sync for a success although what failed is lost
/// (Linux keeps the page and forgets the error), and SQLite would let the log begin anew over the only copy. So nothing
/// is written back any more: the log grows, and the next start reads all of it again. Everything else is tried again
/// after a later commit; a reader or a full disk may be in the way.
fn judge(checkpoint: rusqlite::Result<()>, broken: &AtomicBool) {
    let Err(error) = checkpoint else { return };
    if error.sqlite_error_code() != Some(ErrorCode::SystemIoFailure) {
        tracing::debug!(%error, "the log was not written back now");
        return;
    }
    if !broken.swap(true, Ordering::Relaxed) {
        tracing::error!(
            %error,
            "the disk failed while the log was written back into the database. Nothing is lost, all of it is in the \
             log, which grows from now on: look at the disk, then restart the gate"
        );
    }
}

/// What the thread works with.
struct Beside {
    db: Connection,
    directory: PathBuf,
    broken: Arc<AtomicBool>,
}

impl Beside {
    /// Passive: it waits for nobody and nobody waits for it. What readers still need stays in the log.
    fn run(self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            // The last room on a disk is for what runs; the file grows when the log is written back.
            let is_tight =
                room::free(&self.directory).is_some_and(|free| free < limits::DISK_KEPT_FREE_BYTES);
            if is_tight || self.broken.load(Ordering::Relaxed) {
                continue;
            }
            judge(self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())), &self.broken);
        }
    }
}

/// When the thread is woken.
struct Ringing {
    next: i32,
    wake: SyncSender<()>,
}

impl Ringing {
    /// After a commit that left so many pages in the log: whether the writer must see to it itself.
    fn committed(&mut self, pages: i32) -> bool {
        if pages >= PAGES_LATE {
            return true;
        }
        if pages < self.next - PAGES_EARLY {
            // The log began anew.
            self.next = PAGES_EARLY;
        }
        if pages >= self.next {
            self.next = pages + PAGES_EARLY;
            // One that is at work hears of it next; if it has ended, the writer does all of it.
            let _ = self.wake.try_send(());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_is_woken_in_steps_and_the_writer_sees_to_the_rest() {
        let (wake, woken) = sync_channel(1);
        let mut ringing = Ringing { next: PAGES_EARLY, wake };
        let mut rings = |pages| (ringing.committed(pages), woken.try_recv().is_ok());
        assert_eq!(rings(PAGES_EARLY - 1), (false, false));
        assert_eq!(rings(PAGES_EARLY), (false, true));
        assert_eq!(rings(PAGES_EARLY + 1), (false, false));
        assert_eq!(rings(2 * PAGES_EARLY), (false, true));
        assert_eq!(rings(PAGES_LATE), (true, false));
        assert_eq!(rings(PAGES_LATE + 1), (true, false), "a reader held it up");
        assert_eq!(rings(3), (false, false), "the log began anew");
        assert_eq!(rings(PAGES_EARLY + 2), (false, true));
    }

    #[test]
    fn only_a_disk_that_fails_ends_it() {
        let of = |code| {
            let broken = AtomicBool::new(false);
            judge(Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)), &broken);
            broken.into_inner()
        };
        assert!(of(rusqlite::ffi::SQLITE_IOERR_FSYNC) && of(rusqlite::ffi::SQLITE_IOERR_WRITE));
        assert!(!of(rusqlite::ffi::SQLITE_BUSY) && !of(rusqlite::ffi::SQLITE_FULL));
    }
}
