//! The errors of creating and mapping sessions.

use std::io;

use super::layout::{self, Geometry};

/// Why a session cannot be created or mapped.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no memory, or the path cannot be opened.
    #[error("cannot map the session {path}: {source}")]
    Map {
        /// The path.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The file is not a session, or one of another version.
    #[error("{path} is not a session of version {}: {what}", layout::VERSION)]
    Foreign {
        /// The path.
        path: String,
        /// The reason.
        what: &'static str,
    },
    /// The sizes are unreasonable.
    #[error("a session cannot have {0:?}: records and definitions are powers of two")]
    Geometry(Geometry),
}
