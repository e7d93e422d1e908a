//! The way in which the kernel accesses the data of an open file, and the file handle that says so.

use fuser::{FileHandle, FopenFlags};
use std::num::NonZeroU32;

/// The number by which a connection knows a file of the host; see `passthrough`.
pub(crate) type Backing = NonZeroU32;

/// The way in which the kernel accesses the data of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Through its cache.
    Cached,
    /// By asking the server each time.
    Direct,
    /// On the host.
    Passthrough(Backing),
}

/// The file handle of a file that is accessed through the kernel's cache.
pub(crate) const CACHED: FileHandle = FileHandle(0);
/// The file handle of a file that bypasses the kernel's cache.
pub(crate) const DIRECT: FileHandle = FileHandle(1);
/// The file handle of a file that is passed through.
const PASSTHROUGH: FileHandle = FileHandle(2);

impl OpenMode {
    /// Returns the file handle for the kernel, which says nothing else.
    pub(crate) fn handle(self) -> FileHandle {
        match self {
            Self::Cached => CACHED,
            Self::Direct => DIRECT,
            Self::Passthrough(_) => PASSTHROUGH,
        }
    }

    /// Returns the flags for a file opened with `flags`. If nothing can have been written to a file
    /// here, the kernel reports its close only if it reports every close.
    pub(crate) fn open_flags(self, flags: i32) -> FopenFlags {
        let mode = match self {
            Self::Cached => FopenFlags::FOPEN_KEEP_CACHE,
            Self::Direct => FopenFlags::FOPEN_DIRECT_IO,
            Self::Passthrough(_) => return FopenFlags::FOPEN_NOFLUSH,
        };
        if may_write(flags) { mode } else { mode | FopenFlags::FOPEN_NOFLUSH }
    }
}

/// Returns whether a file opened with `flags` may be written to.
pub(crate) fn may_write(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}
