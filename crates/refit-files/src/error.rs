//! The errors of mounting.

use crate::source_lock::Holder;
use refit_objects::CreateError;
use std::io;
use std::path::PathBuf;

/// Why [`mount`](crate::mount()) failed. It leaves nothing behind then.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The source directory does not exist.
    #[error("cannot serve {}: there is no such directory", .0.display())]
    SourceMissing(PathBuf),
    /// The source is not a directory.
    #[error("cannot serve {}: it is not a directory", .0.display())]
    SourceNotDirectory(PathBuf),
    /// The source may not be read.
    #[error("cannot serve {}: {error}; it must be readable and searchable by this user", source_directory.display())]
    SourceUnreadable {
        /// The directory to serve.
        source_directory: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The mount point does not exist.
    #[error("cannot mount at {path}: there is no such directory; create it with `mkdir -p {path}`", path = .0.display())]
    MountpointMissing(PathBuf),
    /// The mount point is not a directory.
    #[error("cannot mount at {}: it is not a directory", .0.display())]
    MountpointNotDirectory(PathBuf),
    /// A FUSE file system is already mounted at the mount point.
    #[error("cannot mount at {path}: a FUSE file system is mounted there; unmount it first with `umount {path}`", path = .0.display())]
    AlreadyMounted(PathBuf),
    /// A FUSE file system whose server has died is mounted at the mount point.
    #[error("cannot mount at {path}: a FUSE file system whose server is gone is mounted there; remove it with `umount -l {path}`", path = .0.display())]
    DeadMount(PathBuf),
    /// The mount point lies within the source, so that the server would wait for itself.
    #[error("cannot mount at {}: it lies within the source {}, so the server would have to serve itself; choose a mount point outside", mountpoint.display(), source_directory.display())]
    MountpointInSource {
        /// The mount point.
        mountpoint: PathBuf,
        /// The directory to serve.
        source_directory: PathBuf,
    },
    /// Another server serves the source, or a directory above or below it.
    #[error("cannot serve {}: {holder}; unmount that first, because neither server would see the writes of the other", source_directory.display())]
    Served {
        /// The directory to serve.
        source_directory: PathBuf,
        /// The process that serves it.
        holder: Holder,
    },
    /// The kernel does not provide FUSE.
    #[error(
        "cannot mount: /dev/fuse is missing; load it with `modprobe fuse`, or give the container the device /dev/fuse"
    )]
    NoFuse,
    /// The user may not open the kernel's FUSE device.
    #[error(
        "cannot mount: this user may not open /dev/fuse; run as root, or permit it with `chmod 666 /dev/fuse`, as distributions do"
    )]
    FuseNotPermitted,
    /// The user may not mount.
    #[error("cannot mount at {}: not permitted ({reason}); run as root, or install fusermount3 (Debian: `apt install fuse3`) and own the mount point", mountpoint.display())]
    NotPermitted {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason given by the system.
        reason: String,
    },
    /// The memory for page frames is too small.
    #[error("cannot mount with {given} bytes of page frames: at least {least} bytes are needed")]
    TooFewFrames {
        /// The requested memory, in bytes.
        given: u64,
        /// The minimum, in bytes.
        least: u64,
    },
    /// The number of threads is zero or too large.
    #[error("cannot mount with {given} threads: 1 to {most} can serve a mount")]
    Workers {
        /// The requested number.
        given: usize,
        /// The maximum.
        most: usize,
    },
    /// The requested memory for page frames exceeds the memory of the machine.
    #[error(
        "cannot mount with {given} bytes of page frames: the machine has {machine} bytes of memory; ask for fewer"
    )]
    TooManyFrames {
        /// The requested memory, in bytes.
        given: u64,
        /// The memory of the machine, in bytes.
        machine: u64,
    },
    /// The memory for page frames could not be allocated.
    #[error(
        "cannot mount: {bytes} bytes of page frames could not be allocated: {error}; ask for fewer"
    )]
    NoMemory {
        /// The requested memory, in bytes.
        bytes: u64,
        /// The error of the system.
        error: io::Error,
    },
    /// Processors cannot be kept awake.
    #[error("cannot mount with processors kept awake: {device}: {error}; mount without `--awake`, or as root", device = refit_sys::cpu_latency::DEVICE)]
    Awake {
        /// The error of opening the device.
        error: io::Error,
    },
    /// Files cannot be passed through.
    #[error("cannot mount with `--cache passthrough`: {reason}; mount with another cache mode")]
    NoPassthrough {
        /// The reason.
        reason: String,
    },
    /// The kernel checks permissions in mounts of users other than root.
    #[error(
        "cannot mount with `--private`: this user is not root; mount without it, which lets only this user use the mount, too"
    )]
    NotPrivate,
    /// Users whom access control lists may keep out could use the mount.
    #[error(
        "cannot mount with `--no-xattrs`: other users could use the mount, and access control lists are extended attributes; add `--private`, or, as a user other than root, leave out `--allow-other`"
    )]
    AclsUnchecked,
    /// The building blocks do not fit together as requested.
    #[error("cannot mount: {0}")]
    Composition(String),
    /// The file caches cannot be created as requested.
    #[error("cannot mount: {0}")]
    NoCache(CreateError),
    /// Another error of the system.
    #[error("cannot mount at {}: {error}", mountpoint.display())]
    System {
        /// The mount point.
        mountpoint: PathBuf,
        /// The error.
        error: io::Error,
    },
}
