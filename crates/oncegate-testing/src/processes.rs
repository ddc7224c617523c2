//! Whose processes are whose, and signals to them.
//!
//! PostgreSQL gives each of its processes a session of its own, so that no process group holds them all: they are found
//! by their parent.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Who a server runs as, where we are root: it refuses to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// `postgres`, else `nobody`, where we are root; `None` where we are somebody already.
    pub(crate) fn other_than_root() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap();
        let found = ["postgres", "nobody"].iter().find_map(|name| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut ids = line.split(':').skip(2).map(str::parse::<u32>);
            Some(Self { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? })
        });
        Some(found.expect("PostgreSQL does not run as root, and there is neither a user postgres nor nobody"))
    }
}

/// Sends a signal; whoever is gone already needs none.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    let _ = kill_process(pid, signal);
}

/// The server that is `postmaster` together with the processes it made, all stopped where they stand.
pub(crate) fn freeze(postmaster: u32) -> Vec<u32> {
    // It first: from then on it makes no more of them.
    signal(postmaster, Signal::STOP);
    let children = children(postmaster);
    for child in &children {
        signal(*child, Signal::STOP);
    }
    children
}

/// The processes whose parent this is.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let proc = Path::new("/proc");
    assert!(
        proc.join("self/stat").exists(),
        "the processes of a server are looked up in /proc, which is not there"
    );
    let pids = std::fs::read_dir(proc).unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// By proc(5): the second word behind the program's name, which stands in parentheses and may hold some.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.split(' ').nth(1)?.parse().ok()
}
