//! The directory of backups: what files are called, which are ours, and which may go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_core::limits;
use oncegate_core::time::Timestamp;

use super::backup::{Made, UNFINISHED};
use super::dir;

/// Where backups lie.
#[derive(Clone, Debug)]
pub struct BackupDir {
    path: PathBuf,
}

const OURS: (&str, &str) = ("oncegate-", ".db");
const BEFORE_UPGRADE: &str = "before-upgrade-";

impl BackupDir {
    /// In a directory of its own.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Inside the data directory.
    pub fn of_data(data: &Path) -> Self {
        Self::new(data.join("backups"))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name for a backup begun now that no file has yet.
    pub fn next(&self, now: Timestamp) -> PathBuf {
        self.unused(OURS.0, now)
    }

    fn unused(&self, prefix: &str, now: Timestamp) -> PathBuf {
        let stamp = stamp(now);
        let named = |number: String| self.path.join(format!("{prefix}{stamp}{number}{}", OURS.1));
        let mut others = (2u32..).map(|n| named(format!("-{n}")));
        let first = named(String::new());
        // There are more numbers than files; if not, the copy refuses to replace one.
        if first.exists() { others.find(|path| !path.exists()).unwrap_or(first) } else { first }
    }

    /// What the copy made before an upgrade from `schema` is called.
    pub(super) fn before_upgrade(&self, schema: i64, now: Timestamp) -> PathBuf {
        self.unused(&format!("{BEFORE_UPGRADE}{schema}-"), now)
    }

    /// Backups by this program, oldest first, with when they were begun. Other files are not looked at.
    fn ours(&self) -> Vec<(Timestamp, PathBuf)> {
        let mut found: Vec<_> = dir::names(&self.path)
            .into_iter()
            .filter_map(|name| Some((dated(name.strip_prefix(OURS.0)?.strip_suffix(OURS.1)?)?, name)))
            .map(|((at, number), name)| ((at, number), self.path.join(name)))
            .collect();
        found.sort();
        found.into_iter().map(|((at, _), path)| (at, path)).collect()
    }

    fn upgrades(&self) -> Vec<(Timestamp, PathBuf)> {
        let at = |name: &str| {
            let rest = name.strip_prefix(BEFORE_UPGRADE)?.strip_suffix(OURS.1)?;
            let (schema, rest) = rest.split_once('-')?;
            schema.parse::<u32>().ok()?;
            dated(rest)
        };
        let mut found: Vec<_> = dir::names(&self.path)
            .into_iter()
            .filter_map(|name| Some((at(&name)?.0, self.path.join(name))))
            .collect();
        found.sort();
        found
    }

    /// Removes what is more than the newest `keep` backups, now that `made` is whole, and copies made before upgrades
    /// that are older than 30 days and not the newest. Returns what went.
    pub fn rotate(&self, keep: usize, made: &Made) -> Vec<PathBuf> {
        let ours = self.ours();
        let extra = ours.len().saturating_sub(keep.max(1));
        // The one that was just made is known to be good, whatever the clock said when the others were.
        let old = ours.into_iter().take(extra).map(|(_, path)| path).filter(|path| *path != made.path);
        let mut upgrades = self.upgrades();
        upgrades.pop();
        let cut = made.at.before(limits::UPGRADE_COPY_KEPT_FOR);
        let outlived = upgrades.into_iter().filter(|(at, _)| *at < cut).map(|(_, path)| path);
        // Left by a gate that was killed; no copy takes a day.
        let yesterday = made.at.before(Duration::from_secs(24 * 3600));
        let left = dir::names(&self.path).into_iter().filter(move |name| {
            let begun = |name: &str| {
                dated(name.strip_suffix(UNFINISHED)?.strip_suffix(OURS.1)?.strip_prefix(OURS.0)?)
            };
            begun(name).is_some_and(|(at, _)| at < yesterday)
        });
        let left = left.map(|name| self.path.join(name));
        old.chain(outlived).chain(left).filter(|path| dir::remove(path)).collect()
    }
}

/// When the newest backup in the directory was begun.
pub fn newest(directory: &BackupDir) -> Option<Timestamp> {
    directory.ours().last().map(|(at, _)| *at)
}

/// `20260105T030000Z`: sorts by time, and every file system takes it.
fn stamp(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.chars().filter(char::is_ascii_alphanumeric).chain(['Z']).collect()
}

/// Reads a stamp, with the number that tells apart what was begun within one second.
fn dated(text: &str) -> Option<(Timestamp, u32)> {
    let (stamp, number) = match text.split_once('-') {
        Some((stamp, number)) => (stamp, number.parse().ok()?),
        None => (text, 1),
    };
    let digits = |from: usize, to: usize| stamp.get(from..to);
    let rfc3339 = format!(
        "{}-{}-{}T{}:{}:{}Z",
        digits(0, 4)?,
        digits(4, 6)?,
        digits(6, 8)?,
        digits(9, 11)?,
        digits(11, 13)?,
        digits(13, 15)?
    );
    let at = Timestamp::parse_rfc3339(&rfc3339).ok()?;
    (self::stamp(at) == stamp).then_some((at, number))
}

/// When the nightly backup comes next: at the time of day `at` (UTC) and `spread`, so that a team's gates do not all
/// begin at once. What was missed is made up at once: a slot that has passed since `last` is due now.
///
/// `spread` is the same on every call of one run of the gate.
pub fn nightly_due(last: Timestamp, at: Duration, spread: Duration) -> Timestamp {
    const DAY: i64 = 86_400_000;
    let offset = i64::try_from((at + spread).as_millis()).unwrap_or_default();
    let passed = (last.as_millis() - offset).div_euclid(DAY);
    Timestamp::from_millis((passed + 1) * DAY + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).unwrap()
    }

    #[test]
    fn names_say_when_and_are_read_back() {
        let directory = BackupDir::new("/nowhere".into());
        let path = directory.next(at("2026-01-05T03:00:07.5Z"));
        assert_eq!(path, Path::new("/nowhere/oncegate-20260105T030007Z.db"));
        assert_eq!(dated("20260105T030007Z"), Some((at("2026-01-05T03:00:07Z"), 1)));
        assert_eq!(dated("20260105T030007Z-2"), Some((at("2026-01-05T03:00:07Z"), 2)));
        for text in [
            "",
            "20260105",
            "20261305T030007Z",
            "20260105T030007Zx",
            "2026010éT030007Z",
            "20260105T030007Z-x",
        ] {
            assert_eq!(dated(text), None, "{text}");
        }
    }

    #[test]
    fn a_night_that_was_missed_is_due_at_once() {
        let three = Duration::from_secs(3 * 3600);
        let minute = Duration::from_secs(60);
        for (last, spread, next) in [
            ("2026-01-05T10:00:00Z", Duration::ZERO, "2026-01-06T03:00:00Z"),
            ("2026-01-05T10:00:00Z", minute, "2026-01-06T03:01:00Z"),
            ("2026-01-05T02:59:59Z", Duration::ZERO, "2026-01-05T03:00:00Z"),
            ("2026-01-05T03:00:00Z", Duration::ZERO, "2026-01-06T03:00:00Z"),
            // Made within the spread of tonight: not again tonight.
            ("2026-01-05T03:01:00Z", minute, "2026-01-06T03:01:00Z"),
        ] {
            assert_eq!(nightly_due(at(last), three, spread), at(next), "{last}");
        }
    }
}
