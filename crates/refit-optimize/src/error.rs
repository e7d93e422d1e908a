//! Why a program is not optimised.

use refit_probe::watch;
use refit_splice::Why;
use refit_splice::process::Refusal;
use refit_splice::remains::KeptReason;

use crate::prove::NoProof;
use crate::stored::NoProfile;

/// Why a program was not optimised. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is small.
    #[error(
        "the code of {file} takes {bytes} bytes, which fit into the caches: there is nothing to gain"
    )]
    Small {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
    },
    /// The program did nothing.
    #[error("{file} ran no function that can be copied in that time")]
    Idle {
        /// The file.
        file: String,
    },
    /// The program has been optimised already.
    #[error("it is optimised already; undo that first")]
    Already,
    /// Copies have been taken out, but are still in use.
    #[error("copies of an earlier optimisation stay in it: {because}")]
    Left {
        /// The reason.
        because: KeptReason,
    },
    /// No function's calls are a measure of progress.
    #[error("no function was called evenly enough to measure progress by; name one")]
    NoProgress,
    /// Return addresses cannot be changed.
    #[error("it runs with shadow stacks, whose return addresses cannot be taken back")]
    ShadowStack,
    /// The file has the unwinder.
    #[error("{file} has the unwinder of exceptions in itself, whose code must not run in copies")]
    Unwinder {
        /// The file.
        file: String,
    },
    /// The file is not mapped.
    #[error("the program runs no file {wanted}")]
    NoFile {
        /// The name that was asked for.
        wanted: String,
    },
    /// No stored profile can be used.
    #[error(transparent)]
    NoProfile(#[from] NoProfile),
    /// Nothing could be measured.
    #[error(transparent)]
    NoProof(#[from] NoProof),
    /// The program cannot be watched.
    #[error(transparent)]
    Watch(#[from] watch::Error),
}

impl From<Why> for Error {
    fn from(why: Why) -> Self {
        Self::Watch(why.into())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Watch(refusal.into())
    }
}
