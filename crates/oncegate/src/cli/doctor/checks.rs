//! The checks: each takes what was seen and says whether it is well, and if not, how to mend it.

use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::policy::in_words;
use oncegate_store::sqlite::Lasting;

use crate::config::Declared;

use super::look::{Backup, Clock, Configuration, Disk, Gate, Store};
use super::report::Finding;

pub(super) fn gate(gate: &Gate) -> Finding {
    const NAME: &str = "gate";
    match &gate.answer {
        Ok(reasons) if reasons.is_empty() => Finding::ok(NAME, format!("ready at {}", gate.url)),
        Ok(reasons) => Finding::problem(
            NAME,
            format!("answers at {}, but is not ready: {}", gate.url, reasons.join(", ")),
            "see the findings below, and the gate's log",
        ),
        Err(why) if gate.is_named => Finding::problem(
            NAME,
            format!("does not answer at {}: {why}", gate.url),
            "start it, or name another address with --url or ONCEGATE_URL",
        ),
        Err(_) => Finding::skipped(
            NAME,
            format!("none answers at {}; if it should run elsewhere, name that with --url", gate.url),
        ),
    }
}

pub(super) fn configuration(configuration: &Configuration) -> Finding {
    const NAME: &str = "configuration";
    match configuration {
        None => Finding::skipped(
            NAME,
            "there is no oncegate.yaml here; name one with --config if there should be",
        ),
        Some((path, Ok(config))) => Finding::ok(
            NAME,
            format!(
                "{}: {} source(s), {} automation(s)",
                path.display(),
                config.all().map(Declared::all_sources).sum::<usize>(),
                config.all().map(|d| d.automations.len()).sum::<usize>()
            ),
        ),
        Some((_, Err(why))) => Finding::problem(
            NAME,
            why.clone(),
            "mend it there; if a variable is missing, run doctor with the environment of the service",
        ),
    }
}

pub(super) fn public_url(configuration: &Configuration) -> Finding {
    const NAME: &str = "public_url";
    let Some((_, Ok(config))) = configuration else {
        return Finding::skipped(NAME, "no configuration to look at");
    };
    let Some(url) = &config.public_url else {
        return match config.all().all(|d| d.sources.is_empty()) {
            true => Finding::skipped(NAME, "not set; only needed to be reached from other machines"),
            false => Finding::warn(
                NAME,
                "not set, though there are sources: call-back URLs begin with the listen address",
                "set public_url to the address under which senders reach this gate",
            ),
        };
    };
    let Some(rest) = url.strip_prefix("http://") else { return Finding::ok(NAME, url.clone()) };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match is_loopback {
        true => Finding::ok(NAME, format!("{url} (this machine only)")),
        false => Finding::warn(
            NAME,
            format!("{url}: claim tokens and payloads would travel unencrypted"),
            "put a TLS proxy in front and write https://",
        ),
    }
}

pub(super) fn file_system(disk: &Disk) -> Finding {
    const NAME: &str = "file system";
    let system = match &disk.system {
        Ok(system) => system,
        Err(why) => {
            return Finding::problem(
                NAME,
                format!("{} cannot be looked at: {why}", disk.path.display()),
                "name the data directory with --data, and run doctor as the gate's user",
            );
        }
    };
    let said = format!("{} on {}", disk.path.display(), system.name);
    match system.lasting {
        Lasting::Yes => Finding::ok(NAME, said),
        Lasting::No(why) => Finding::problem(
            NAME,
            format!("{} is on {why}: it does not survive a restart", disk.path.display()),
            "put the data directory on a disk, or mount a volume there",
        ),
        Lasting::Network => Finding::warn(
            NAME,
            format!("{said}: locks and syncs are only as good as the server and its mount options"),
            "prefer a local disk or a block volume; SQLite on a network file system can be damaged",
        ),
        Lasting::Unknown => Finding::warn(
            NAME,
            format!("{said}: not known here"),
            "make sure that it lasts, locks and syncs as a local disk does",
        ),
    }
}

/// Below this nothing is safe: a log that is not yet written back grows to 80 MB and more.
const FREE_LEAST: u64 = 256 * 1024 * 1024;
const FREE_LITTLE: u64 = 1024 * 1024 * 1024;

pub(super) fn space(disk: &Disk) -> Finding {
    const NAME: &str = "disk space";
    let Ok(system) = &disk.system else { return Finding::skipped(NAME, "no disk to look at") };
    let percent = (u128::from(system.free) * 100).checked_div(u128::from(system.size)).unwrap_or_default();
    let database = match disk.database_bytes {
        0 => String::new(),
        bytes => format!("; the database has {}", bytes_in_words(bytes)),
    };
    let said = format!("{} free ({percent} %){database}", bytes_in_words(system.free));
    let mend = "free some space, or move the data directory to a larger disk while the gate is stopped";
    // To make its file smaller, or a copy of it, SQLite needs as much again.
    if system.free < FREE_LEAST {
        Finding::problem(NAME, format!("{said}: new claims will soon be refused"), mend)
    } else if system.free < FREE_LITTLE || system.free < disk.database_bytes {
        Finding::warn(NAME, format!("{said}: not enough for a backup or a flood"), mend)
    } else {
        Finding::ok(NAME, said)
    }
}

pub(super) fn permissions(disk: &Disk) -> Finding {
    const NAME: &str = "permissions";
    let bits = match &disk.directory {
        Ok(Some(bits)) => *bits,
        Ok(None) => {
            return Finding::skipped(
                NAME,
                format!("{} is not there yet; serve makes it", disk.path.display()),
            );
        }
        Err(why) => {
            return Finding::problem(
                NAME,
                format!("{} cannot be looked at: {why}", disk.path.display()),
                "run doctor as the gate's user",
            );
        }
    };
    // A directory that nobody else can enter hides whatever lies in it.
    let open: Vec<String> = disk
        .files
        .iter()
        .filter(|(_, bits)| bits & 0o077 != 0)
        .map(|(name, bits)| format!("{name} ({bits:04o})"))
        .collect();
    match (bits & 0o077, open.is_empty()) {
        (0, _) => Finding::ok(NAME, format!("{} is for its owner only ({bits:04o})", disk.path.display())),
        (_, true) => Finding::warn(
            NAME,
            format!(
                "others may look into {} ({bits:04o}); its files are closed to them",
                disk.path.display()
            ),
            format!("chmod 700 {}", disk.path.display()),
        ),
        (_, false) => Finding::problem(
            NAME,
            format!("others on this machine may read payloads and secrets: {}", open.join(", ")),
            format!("chmod -R go= {}", disk.path.display()),
        ),
    }
}

/// A disk that survives a power cut is seldom this fast: an SSD takes 100 µs and more, one with a protected cache 20 to
/// 100 µs, a file that is only in memory 1 to 10 µs.
const SYNC_TOO_FAST: Duration = Duration::from_micros(50);
/// Each group of claims waits for one sync: at 50 ms that is felt by whoever waits for an answer.
const SYNC_SLOW: Duration = Duration::from_millis(50);

pub(super) fn sync(disk: &Disk) -> Finding {
    const NAME: &str = "sync";
    let took = match &disk.sync {
        None => return Finding::skipped(NAME, "no data directory to write to"),
        Some(Ok(took)) => *took,
        Some(Err(why)) => {
            return Finding::problem(
                NAME,
                format!("nothing can be written to {}: {why}", disk.path.display()),
                "free some space, and run doctor as the gate's user",
            );
        }
    };
    let said = format!("a synced write takes {:.2} ms", took.as_secs_f64() * 1000.0);
    if took < SYNC_TOO_FAST {
        Finding::warn(
            NAME,
            format!("{said}: faster than a disk that keeps its word"),
            "if its cache has no battery, a power cut may lose what was acknowledged; look at the disk's write cache \
             and the host's settings for syncs",
        )
    } else if took > SYNC_SLOW {
        Finding::warn(
            NAME,
            format!("{said}: callers wait for that"),
            "use a faster disk; an SSD takes 0.1 to 5 ms",
        )
    } else {
        Finding::ok(NAME, said)
    }
}

const UNREAD: &str =
    "stop the gate, keep a copy of the data directory as it is, and go back to the newest backup";

pub(super) fn durability(store: &Store) -> Finding {
    const NAME: &str = "durability";
    match store {
        Err(why) => Finding::problem(NAME, format!("the database cannot be read: {why}"), UNREAD),
        Ok(None) => Finding::skipped(NAME, "there is no store yet"),
        Ok(Some(i)) if i.journal_mode == "wal" && i.synchronous >= 2 => {
            Finding::ok(NAME, "journal_mode=wal, synchronous=FULL: an answer means synced")
        }
        Ok(Some(i)) if i.recovering && i.journal_mode == "delete" => {
            Finding::skipped(NAME, "no gate has opened it since it was restored")
        }
        Ok(Some(i)) => Finding::problem(
            NAME,
            format!("journal_mode={}, synchronous={}", i.journal_mode, i.synchronous),
            "start the gate once on a local disk: it sets wal and FULL, and says so if it cannot",
        ),
    }
}

pub(super) fn schema(store: &Store) -> Finding {
    const NAME: &str = "schema";
    let Ok(Some(i)) = store else { return Finding::skipped(NAME, "no database to look at") };
    let said = format!("the database has schema {}, this program knows {}", i.schema, i.schema_known);
    match i.schema.cmp(&i.schema_known) {
        std::cmp::Ordering::Equal => Finding::ok(NAME, format!("{}, as this program has it", i.schema)),
        std::cmp::Ordering::Less => Finding::warn(
            NAME,
            said,
            "the next start of this program brings it up to date; make a backup first",
        ),
        std::cmp::Ordering::Greater => Finding::problem(
            NAME,
            said,
            "run the newer oncegate that wrote it; this one refuses to start on it",
        ),
    }
}

pub(super) fn integrity(store: &Store) -> Finding {
    const NAME: &str = "integrity";
    let Ok(Some(i)) = store else { return Finding::skipped(NAME, "no database to look at") };
    match i.damage.first() {
        None => Finding::ok(NAME, "quick_check found nothing"),
        Some(first) => {
            Finding::problem(NAME, format!("quick_check found {} fault(s): {first}", i.damage.len()), UNREAD)
        }
    }
}

pub(super) fn clock_source(synchronised: Option<bool>) -> Finding {
    const NAME: &str = "clock";
    match synchronised {
        Some(true) => Finding::ok(NAME, "kept right by the network (NTP)"),
        Some(false) => Finding::warn(
            NAME,
            "not synchronised: due times, signatures' ages and retention follow a clock that nobody keeps right",
            "switch on time synchronisation, e.g. timedatectl set-ntp true",
        ),
        None => Finding::skipped(NAME, "cannot ask here whether it is synchronised; look on the host"),
    }
}

pub(super) fn clock_and_store(clock: &Clock) -> Finding {
    const NAME: &str = "clock and store";
    /// A gate ticks every 5 s.
    const TICKS_WITHIN: Duration = Duration::from_secs(60);
    let Some(ticked_at) = clock.ticked_at else {
        return Finding::skipped(NAME, "the store has not ticked yet");
    };
    let (ahead, ago) = (ticked_at.since(clock.now), clock.now.since(ticked_at));
    if ahead > limits::CLOCK_SLACK {
        Finding::problem(
            NAME,
            format!("the clock stands {} before the store's last tick: it was set back", in_words(ahead)),
            "set the clock right before the gate goes on",
        )
    } else if clock.is_ticking && ago > TICKS_WITHIN {
        Finding::problem(
            NAME,
            format!("a gate answers, but the store last ticked {} ago", in_words(ago)),
            "look whether the gate runs on this data directory, and into its log",
        )
    } else {
        Finding::ok(NAME, format!("the store last ticked {} ago", in_words(ago)))
    }
}

/// Nightly, and some hours for one that took long.
const BACKUP_WITHIN: Duration = Duration::from_secs(26 * 3600);
const BACKUP_LONG_AGO: Duration = Duration::from_secs(8 * 24 * 3600);

pub(super) fn backup(backup: &Backup) -> Finding {
    const NAME: &str = "backup";
    const MEND: &str = "make one with `oncegate backup`; a gate that runs makes one every night by itself (docs/backup-and-restore.md)";
    match &backup.newest {
        Err(why) => Finding::problem(NAME, why.clone(), "run doctor as the gate's user"),
        Ok(None) if !backup.has_store => Finding::skipped(NAME, "there is no store yet"),
        Ok(None) => Finding::warn(NAME, "there is none in the folder backups of the data directory", MEND),
        Ok(Some(newest)) => {
            let age = backup.now.since(newest.at);
            let size = bytes_in_words(newest.bytes);
            let said = format!("the newest is {} old ({}, {size})", in_words(age), newest.path.display());
            if newest.bytes == 0 {
                Finding::problem(NAME, format!("{} is empty", newest.path.display()), MEND)
            } else if age > BACKUP_LONG_AGO {
                Finding::problem(NAME, said, MEND)
            } else if age > BACKUP_WITHIN {
                Finding::warn(NAME, said, MEND)
            } else {
                Finding::ok(NAME, said)
            }
        }
    }
}

/// Whether it is this store that is in use.
pub(super) fn store(store: &Store) -> Finding {
    const NAME: &str = "store";
    match store {
        Ok(Some(seen)) => match (&seen.moved, seen.recovering) {
            (Some((to, at)), _) => Finding::problem(
                NAME,
                format!(
                    "was moved to {to} at {at}: what it has still to do is done there, and what lies here is old"
                ),
                "look there, with --store; or take the move back with `oncegate move --undo`",
            ),
            (None, true) => in_recovery(),
            (None, false) => Finding::ok(NAME, "in use: neither in recovery nor moved"),
        },
        Ok(None) => Finding::skipped(NAME, "there is none yet"),
        Err(_) => Finding::skipped(NAME, "it cannot be read"),
    }
}

pub(super) fn in_recovery() -> Finding {
    Finding::warn(
        "store",
        "in recovery after a restore: nothing of it runs until somebody ends that",
        "look with `oncegate recovery show`, then `oncegate recovery end` (docs/backup-and-restore.md)",
    )
}

/// Some hundred callers at a time, besides what the store, the steps and the log need.
const FILES_FEW: u64 = 1024;

pub(super) fn open_files(most: Option<u64>) -> Finding {
    const NAME: &str = "open files";
    match most {
        None => Finding::ok(NAME, "no limit"),
        Some(n) if n >= FILES_FEW => {
            Finding::ok(NAME, format!("{n} at most; the gate raises its own limit to that"))
        }
        Some(n) => Finding::warn(
            NAME,
            format!("{n} at most, so few callers at a time"),
            "raise the hard limit: LimitNOFILE= in systemd, ulimit -Hn in a shell",
        ),
    }
}

pub(super) fn bytes_in_words(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} bytes"),
    }
}
