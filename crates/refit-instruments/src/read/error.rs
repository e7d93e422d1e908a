//! Why a trace cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use crate::block::VERSION;

/// Why a trace cannot be read: what was asked, what stood in the way, what to do; one line each.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No file was named.
    #[error("open a trace: no file is named; name one, or all parts of one")]
    Nothing,
    /// There is no such file.
    #[error("read {}: there is no such file; name a trace that `refit record` wrote", .0.display())]
    NotThere(PathBuf),
    /// The file cannot be opened or read.
    #[error("read {}: {source}; name a trace that `refit record` wrote and that you may read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory, a pipe, a device.
    #[error("read {}: it is no regular file; name a trace, or copy it into a file first", .0.display())]
    NoFile(PathBuf),
    /// No bytes at all.
    #[error("read {}: the file is empty: whoever wrote it ended before the first block; record again", .0.display())]
    Empty(PathBuf),
    /// Other bytes than those of a trace.
    #[error("read {}: this is no trace of refit; name a file that `refit record` wrote", .0.display())]
    NoTrace(PathBuf),
    /// Of a version that this code would misunderstand.
    #[error("read {}: the trace has version {version}, this refit reads up to {VERSION}; use the refit that wrote it, \
             or a later one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: u32,
    },
    /// It begins like a trace and ends before it says what it is.
    #[error("read {}: the file ends within its head, at byte {at}: it was cut off or is still being begun; copy it \
             again, or record again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where it ends to make sense.
        at: u64,
    },
    /// Files that are not parts of one trace.
    #[error("read {}: it is no part of the same trace as {}; name the parts of one trace only", other.display(), first.display())]
    Mixed {
        /// The first file.
        first: PathBuf,
        /// What does not belong to it.
        other: PathBuf,
    },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotThere(path.to_owned()),
            _ => Error::Io { path: path.to_owned(), source },
        }
    }
}
