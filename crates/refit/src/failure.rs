//! How a command ends when it does not end well.

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
    /// Everything has been said already, exit code 1.
    #[error("")]
    Said,
    /// The command line makes no sense, exit code 2.
    #[error("{0}")]
    Usage(clap::Error),
    /// Nobody reads our output any more: that is how `refit ls | head` ends, and no failure.
    #[error("")]
    Unread,
}

impl Failure {
    /// A refusal in its three parts.
    pub(crate) fn new(
        asked: impl Into<String>,
        obstacle: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Failure::Refused(Refusal::new(Kind::Failed, asked, obstacle, remedy))
    }

    /// A command line that makes no sense. The usage of the command is added where it is shown.
    pub(crate) fn usage(kind: ErrorKind, text: impl Display) -> Self {
        Failure::Usage(clap::Error::raw(kind, text))
    }
}

impl From<io::Error> for Failure {
    /// For standard output only: other errors are told with what was asked.
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Unread;
        }
        Failure::new("print", e.to_string(), "make room for the output")
    }
}
