//! The files of receiver and sender: one JSON line per thing that happened, written before anybody is told.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use oncegate_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What one request did at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::cli) enum Did {
    /// The first with its key: the world changed.
    Effect,
    /// Its key was known: nothing changed.
    Repeat,
    /// Turned away (429) before anything was done.
    Refused,
    /// It broke (500, a reset) before anything was done.
    Nothing,
    /// It asked what is there: nothing changed.
    Look,
}

/// One request that reached the receiver whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::cli) struct Arrival {
    /// Counted from 1.
    pub(in crate::cli) number: u64,
    /// Before it was answered.
    pub(in crate::cli) at: Timestamp,
    pub(in crate::cli) key: Option<String>,
    pub(in crate::cli) method: String,
    pub(in crate::cli) path: String,
    pub(in crate::cli) body_sha256: String,
    pub(in crate::cli) did: Did,
}

/// One delivery of the sender that came to its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::cli) struct Delivery {
    /// The event's token.
    pub(in crate::cli) event: String,
    /// Which of the parallel copies, counted from 1.
    pub(in crate::cli) copy: u32,
    /// The last answer; 200 is the acknowledgement.
    pub(in crate::cli) status: u16,
    /// What stood in it.
    pub(in crate::cli) answer: String,
    /// How often it was sent over a connection that came about.
    pub(in crate::cli) sent: u32,
    pub(in crate::cli) body_sha256: String,
    pub(in crate::cli) at: Timestamp,
}

/// A file that only grows.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<File>);

impl Ledger {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(Mutex::new(file)))
    }

    /// Handed to the system when this returns: it outlives this process, which is all that dies in a lab.
    pub(super) fn write(&self, line: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_string(line).map_err(|e| e.to_string())?;
        text.push('\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|e| e.to_string())
    }
}

/// The lines written so far; a file that is not there yet has none.
///
/// # Errors
/// The file cannot be read, or a line is none of ours.
pub(in crate::cli) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, String> {
    #[expect(clippy::disallowed_methods, reason = "the lab's own files")]
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    // What stands after the last line break is still being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| format!("{}: {e}: {line}", path.display())))
        .collect()
}
