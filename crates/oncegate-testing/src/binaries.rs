//! Where the programs of PostgreSQL lie. The one place that looks for them; `scripts/test.sh` asks it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the directory of `initdb`, `postgres` and `psql`, where the one that is found by itself is not meant.
const OVERRIDE: &str = "ONCEGATE_TEST_POSTGRES_BIN";
/// Debian keeps a directory for each version here and puts none of the server's programs on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The version that is tested first where there are several: that of Debian 12.
const PREFERRED: &str = "15";

/// A directory with the programs of one version of PostgreSQL.
#[derive(Clone, Debug)]
pub struct Binaries(PathBuf);

impl Binaries {
    /// The directory that `ONCEGATE_TEST_POSTGRES_BIN` names; else Debian's version 15, else its newest, else the
    /// first on the PATH.
    ///
    /// # Errors
    /// What is missing and how to install it.
    pub fn find() -> Result<Self, String> {
        if let Some(named) = std::env::var_os(OVERRIDE) {
            let named = PathBuf::from(named);
            return match complete(&named) {
                true => Ok(Self(named)),
                false => {
                    Err(format!("{OVERRIDE} is {}, where initdb, postgres and psql are not", named.display()))
                }
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = debian().into_iter().chain(std::env::split_paths(&path)).find(|dir| complete(dir));
        found.map(Self).ok_or_else(|| {
            format!(
                "no PostgreSQL server was found, neither in {DEBIAN}/*/bin nor on the PATH. Install one, e.g. with: \
                 sudo apt-get install postgresql   (Debian 12 installs postgresql-15); or name the directory of \
                 initdb, postgres and psql in {OVERRIDE}"
            )
        })
    }

    /// What `postgres --version` says, e.g. `postgres (PostgreSQL) 15.18`.
    ///
    /// # Panics
    /// When the program does not run.
    #[must_use]
    pub fn version(&self) -> String {
        let said = Command::new(self.program("postgres")).arg("--version").output().unwrap();
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The path of one program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn complete(dir: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|name| dir.join(name).is_file())
}

/// Debian's directories, the preferred version first, then from the newest on.
fn debian() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    versions.sort_by_key(|version| {
        let number: u32 = version.parse().unwrap_or_default();
        (version != PREFERRED, std::cmp::Reverse(number))
    });
    versions.iter().map(|version| Path::new(DEBIAN).join(version).join("bin")).collect()
}
