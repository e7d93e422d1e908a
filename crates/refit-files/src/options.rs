//! The options of a mount.

use crate::modes::CacheMode;
use refit_objects::composition::Plan;
use std::path::PathBuf;

/// The users who may use a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// The user who mounts; if that is root, everybody.
    Owner,
    /// Everybody. The kernel checks their permissions.
    All,
    /// Root alone, who mounts. The kernel checks no permissions, so that a process of root may do
    /// everything, even without the capabilities for it. The kernel then does not ask for the
    /// status of a directory each time that a name in it has changed.
    RootUnchecked,
}

/// The options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory to serve.
    pub source: PathBuf,
    /// The directory at which it appears. It must exist and lie outside of the source.
    pub mountpoint: PathBuf,
    /// The memory for page frames of all files of the mount, in bytes; at least 64 pages.
    pub frames_bytes: u64,
    /// Whether the kernel caches files as well.
    pub cache: CacheMode,
    /// The number of threads that serve requests; `None` means the number of processors.
    pub workers: Option<usize>,
    /// The building blocks of the mount; see [`composition`](crate::composition()).
    pub composition: Plan,
    /// The users who may use it.
    pub users: Users,
    /// Whether nothing can be changed through the mount.
    pub read_only: bool,
    /// Whether programs can use extended attributes. Without them, the kernel does not ask for the
    /// capabilities of a file before the first write after each open. Only for a mount that no
    /// other user may use, since access control lists are extended attributes.
    pub xattrs: bool,
    /// Whether processors are kept out of idle states while programs use the mount. Needs the right
    /// to open [`DEVICE`](refit_sys::cpu_latency::DEVICE).
    pub awake: bool,
}
