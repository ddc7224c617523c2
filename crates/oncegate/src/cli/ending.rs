//! How a command ends: its exit status, and what it says if it failed.

/// Exit statuses besides 0. They are a promise to scripts (docs/cli.md); `--help` shows [`Exit::TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    /// It failed; stderr says why.
    Failed = 1,
    /// The command line is wrong. clap ends with the same.
    Usage = 2,
    /// The gate was asked whether to run, and said stop.
    Stop = 3,
    /// There is no such claim, automation or delivery.
    NotFound = 4,
    /// The gate understood and refused: the claim's state does not allow it, or a field is wrong.
    Refused = 5,
    /// The gate does not answer, or cannot take anything now. Trying again later makes sense.
    Unreachable = 6,
    /// The token is missing, unknown, or not allowed to do this.
    NotAllowed = 7,
}

impl Exit {
    /// For the end of `--help`.
    pub(super) const TABLE: &str = "\
Exit status:
  0  done; for claim: run
  1  it failed, stderr says why
  2  the command line is wrong
  3  claim: stop
  4  there is no such claim, automation or delivery
  5  refused: the state does not allow it, or a field is wrong
  6  the gate does not answer or is busy: try again later
  7  not allowed: the token is missing, unknown or may not do this";
}

/// Why a command failed: for people on stderr, for scripts by its status.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) exit: Exit,
    /// What happened, where, how to mend it. May have several lines.
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The command line says something that cannot be meant.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The same with one more line that says how to go on.
    #[must_use]
    pub(super) fn hint(mut self, line: impl AsRef<str>) -> Self {
        self.message.push_str("\n  → ");
        self.message.push_str(line.as_ref());
        self
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(Exit::Failed, message)
    }
}
