//! Writing the log back into the file, which takes random writes and two syncs of its own. A thread does most of it while
//! transactions go on; the writer itself only writes back what came since, so that the log can begin anew.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rusqlite::Connection;

use super::connection;
use crate::StoreError;

/// Pages in the log, and again so many more, at which the thread is woken.
const PAGES_EARLY: i32 = 4_000;
/// Pages in the log at which the writer sees to it. Fewer and larger ones cost less than many small ones, because pages
/// that were written more than once go into the file once.
const PAGES_LATE: i32 = 20_000;

/// The thread beside a writer.
#[derive(Debug)]
pub(super) struct Checkpoints {
    thread: std::thread::JoinHandle<()>,
}

impl Checkpoints {
    /// Starts the thread, and has `writer` wake it. A checkpoint that fails is tried again after a later commit: what
    /// was committed is in the log, whatever becomes of it.
    pub(super) fn start(writer: &mut Connection, path: &Path) -> Result<Self, StoreError> {
        let beside = connection::connect(path)?;
        // It writes back, it commits nothing.
        beside.pragma_update(None, "wal_autocheckpoint", 0)?;
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || write_back(&beside, &woken))
            .map_err(|e| StoreError::Database(e.to_string()))?;
        let mut ringing = Ringing { next: PAGES_EARLY, wake };
        writer.wal_hook(Some(move |log: &mut rusqlite::hooks::Wal, pages| {
            if ringing.committed(pages) {
                let _ = log.checkpoint();
            }
            // The transaction is committed: an error here would be taken for its own.
            Ok(())
        }))?;
        Ok(Self { thread })
    }

    /// Ends the thread and leaves one file behind instead of three; failing to is harmless.
    pub(super) fn end(self, writer: &mut Connection) {
        // With the hook goes what wakes the thread, and so the thread.
        let _ = writer.wal_hook(None::<fn(&mut rusqlite::hooks::Wal, i32) -> rusqlite::Result<()>>);
        let _ = self.thread.join();
        let _ = writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

/// Passive: it waits for nobody and nobody waits for it. What readers still need stays in the log.
fn write_back(db: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        let _ = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
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
            match self.wake.try_send(()) {
                // One that is at work hears of it next.
                Ok(()) | Err(TrySendError::Full(())) => {}
                // It has ended; the writer does all of it.
                Err(TrySendError::Disconnected(())) => {}
            }
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
}
