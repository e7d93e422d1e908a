//! The errors of reading a trace.

use std::io;
use std::path::{Path, PathBuf};

use crate::block::VERSION;

/// Why a trace cannot be read. Each message is one line that contains the request, the obstacle,
/// and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No file was named.
    #[error("open a trace: no file is named; name one, or all parts of one")]
    Nothing,
    /// The file does not exist.
    #[error("read {}: there is no such file; name a trace that `refit record` wrote", .0.display())]
    NotThere(PathBuf),
    /// The file cannot be opened or read.
    #[error("read {}: {source}; name a trace that `refit record` wrote and that you may read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("read {}: it is not a regular file; name a trace, or copy it into a file first", .0.display())]
    NoFile(PathBuf),
    /// The file is empty.
    #[error("read {}: the file is empty: the recorder ended before it wrote the first block; record again", .0.display())]
    Empty(PathBuf),
    /// The file is not a trace.
    #[error("read {}: it is not a trace of refit; name a file that `refit record` wrote", .0.display())]
    NoTrace(PathBuf),
    /// The trace has a version that this code would misinterpret.
    #[error("read {}: the trace has version {version}, this refit reads up to {VERSION}; use the refit that wrote it, \
             or a later one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        version: u32,
    },
    /// The file begins like a trace but ends within its head.
    #[error("read {}: the file ends within its head, at byte {at}: it was cut off or is still being begun; copy it \
             again, or record again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The position at which the valid part ends.
        at: u64,
    },
    /// The files are not parts of one trace.
    #[error("read {}: it is not a part of the same trace as {}; name the parts of one trace only", other.display(), first.display())]
    Mixed {
        /// The first file.
        first: PathBuf,
        /// The file that does not belong to it.
        other: PathBuf,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds the path.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotThere(path.to_owned()),
            _ => Error::Io { path: path.to_owned(), source },
        }
    }
}
