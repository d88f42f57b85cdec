//! How a command ends: its exit code, and its message on standard error.
//!
//! Each kind of [`CliError`] has one [`ExitCode`], which `weft --help` documents.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use weft_base::causes::with_causes;
use weft_config::{ConfigError, ReadError};
use weft_control::exit::ExitCode;
use weft_control::supervise::BeginError;
use weft_lab::netdev::OpenError;

/// The codes, for `weft --help`.
pub const EXIT_CODES: &str = "Exit codes:
  0  done; comparisons found no difference, and checks passed
  1  a comparison or check failed
  2  the command line or a configuration is wrong
  3  a file, device or system call failed
  4  no switch answered, or it refused the request
  5  a serving process was told to stop, and parts of it did not stop in time
  7  a running switch made a system call that its filter refuses (docs/privileges.md)
  20 to 32  a thread of a process that serves ended: see `weft run --help`";

/// Exit codes of `weft run` when one of its threads ends unexpectedly, for its help.
pub const THREAD_EXIT_CODES: &str = "Exit codes when a thread ends unexpectedly and so ends the process:
  20  worker                   26  writer of a mirror, or closer of sockets
  21  follower of express      27  events and their log, or supervision of the main thread
  22  agent                    28  reading the configuration again
  23  CCI                      29  fabric manager (weft fm serve)
  24  management socket        30  fabric (weft fabric up)
  25  metrics                  31  main thread
                               32  SAI service
5: a signal asked it to stop, and not all parts stopped in time. 0 to 4 and 7: as for all commands.
Signals: SIGTERM and SIGINT stop, within 5 s; SIGHUP reads the configuration again; SIGUSR1 is ignored.";

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A comparison or check failed; the text says which.
    #[error("{0}")]
    Difference(String),
    /// The arguments are contradictory or out of range.
    #[error("{0}")]
    Usage(String),
    /// A configuration was refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be read or written.
    #[error("{verb} {}", path.display())]
    File {
        /// The operation, such as `read`.
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Standard output could not be written.
    #[error("write standard output")]
    Output(#[source] io::Error),
    /// A device, thread or system call failed; `what` says which operation.
    #[error("{what}")]
    System {
        /// The operation, as a verb and its object.
        what: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No switch answered, or it refused.
    #[error("{0}")]
    Switch(String),
    /// A serving process was told to stop, and parts of it did not in time.
    #[error("{0}; its ports and counters may not be up to date")]
    Late(String),
}

impl CliError {
    #[must_use]
    pub const fn exit_code(&self) -> ExitCode {
        match self {
            Self::Difference(_) => ExitCode::Difference,
            Self::Usage(_) | Self::Config(_) => ExitCode::Usage,
            Self::File { .. } | Self::Output(_) | Self::System { .. } => ExitCode::System,
            Self::Switch(_) => ExitCode::Switch,
            Self::Late(_) => ExitCode::Late,
        }
    }

    /// Whether the reader of our output has closed the pipe, which is no failure (`weft show ports | head`).
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Refuses a file that a user wrote, by the places of its mistakes.
    #[must_use]
    pub fn refused(file: &Path, mistakes: ConfigError) -> Self {
        Self::Config(mistakes.in_file(&file.display().to_string()))
    }

    /// Refuses a file that a user wrote, for a reason that has no place in it.
    pub fn wrong(file: &Path, why: &impl fmt::Display) -> Self {
        Self::Usage(format!("{}: {why}", file.display()))
    }

    /// A [`CliError::System`]: the operation `what` failed because of `source`.
    pub fn system(
        what: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::System { what: what.into(), source: Box::new(source) }
    }

    /// The message followed by its causes, separated by colons.
    #[must_use]
    pub fn with_causes(&self) -> String {
        with_causes(self)
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        Self::File { verb: "read", path: error.path, source: error.source }
    }
}

impl From<BeginError> for CliError {
    fn from(error: BeginError) -> Self {
        Self::System { what: error.tried.to_owned(), source: Box::new(error.source) }
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        let what = error.to_string();
        match error {
            // An unknown kind of port is a mistake in the arguments: exit code 2, not 3.
            OpenError::Kind(_) => Self::Usage(what),
            OpenError::Open(source) => Self::System { what, source: Box::new(source) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented() {
        use ExitCode::{Difference, Late, Ok, Refused, Switch, System, Usage};
        for code in [Ok, Difference, Usage, System, Switch, Late, Refused] {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", code as u8)), "{code:?}");
        }
        for role in weft_base::threads::Role::ALL {
            let code = format!("{}  ", role.exit_code());
            assert!(THREAD_EXIT_CODES.contains(&code), "{role:?}");
        }
    }

    #[test]
    fn causes_are_told() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let error = CliError::File { verb: "read", path: "x.toml".into(), source };
        assert_eq!(error.with_causes(), "read x.toml: entity not found");
        assert_eq!(error.exit_code(), ExitCode::System);
    }
}
