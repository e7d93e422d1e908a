//! The unsuccessful ends of a command.

use std::fmt::Display;
use std::io;

use clap::error::ErrorKind;
use refit_instance::{Kind, Refusal};

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// One line for standard error, exit code 1.
    #[error("refit: {0}")]
    Refused(#[from] Refusal),
    /// Several lines, exit code 1.
    #[error("{}", .0.iter().map(|r| format!("refit: {r}")).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Refusal>),
    /// All errors have been printed already, exit code 1.
    #[error("")]
    Said,
    /// The command line makes no sense, exit code 2.
    #[error("{0}")]
    Usage(clap::Error),
    /// The reader of the output is gone: `refit ls | head` ends this way, which is no failure.
    #[error("")]
    Unread,
}

impl Failure {
    /// Creates a refusal from its three parts.
    pub(crate) fn new(
        operation: impl Into<String>,
        obstacle: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Failure::Refused(Refusal::new(Kind::Failed, operation, obstacle, remedy))
    }

    /// Prints the failure and returns the exit code for it.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Failure::Unread => return 0,
            Failure::Said => {}
            Failure::Several(refusals) => {
                refusals.iter().for_each(|refusal| say!("refit: {refusal}"));
            }
            refused => say!("{refused}"),
        }
        if matches!(self, Failure::Usage(_)) { 2 } else { 1 }
    }

    /// A command line that makes no sense. The usage of the command is added where it is shown.
    pub(crate) fn usage(kind: ErrorKind, text: impl Display) -> Self {
        Failure::Usage(clap::Error::raw(kind, text))
    }
}

impl From<io::Error> for Failure {
    /// Converts errors of standard output only; other errors are reported with the operation that
    /// failed.
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Unread;
        }
        Failure::new("print", e.to_string(), "make room for the output")
    }
}
