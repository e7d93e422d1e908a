//! Why a directory could not be mounted or unmounted.

use crate::mount::Mount;
use crate::source_lock::Holder;
use crate::unstored::Unstored;
use refit_objects::CreateError;
use std::io;
use std::path::PathBuf;

/// Why [`mount`](crate::mount()) did not mount. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The source is not there.
    #[error("cannot serve {}: there is no such directory", .0.display())]
    SourceMissing(PathBuf),
    /// The source is something else.
    #[error("cannot serve {}: it is not a directory", .0.display())]
    SourceNotDirectory(PathBuf),
    /// The source may not be read.
    #[error("cannot serve {}: {error}; it must be readable and searchable by this user", source_directory.display())]
    SourceUnreadable {
        /// What to serve.
        source_directory: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The mount point is not there.
    #[error("cannot mount at {path}: there is no such directory; create it with `mkdir -p {path}`", path = .0.display())]
    MountpointMissing(PathBuf),
    /// The mount point is something else.
    #[error("cannot mount at {}: it is not a directory", .0.display())]
    MountpointNotDirectory(PathBuf),
    /// A FUSE file system is mounted there.
    #[error("cannot mount at {path}: a FUSE file system is mounted there; unmount it first with `umount {path}`", path = .0.display())]
    AlreadyMounted(PathBuf),
    /// A FUSE file system whose server has died is mounted there.
    #[error("cannot mount at {path}: a FUSE file system whose server is gone is mounted there; remove it with `umount -l {path}`", path = .0.display())]
    DeadMount(PathBuf),
    /// The mount point lies within the source: the server would wait for itself.
    #[error("cannot mount at {}: it lies within the source {}, so the server would have to serve itself; choose a mount point outside", mountpoint.display(), source_directory.display())]
    MountpointInSource {
        /// Where to mount.
        mountpoint: PathBuf,
        /// What to serve.
        source_directory: PathBuf,
    },
    /// Another server has the source, or a directory above or below it.
    #[error("cannot serve {}: {holder}; unmount that first: two servers would not know of each other's writes", source_directory.display())]
    Served {
        /// What to serve.
        source_directory: PathBuf,
        /// The process that serves it.
        holder: Holder,
    },
    /// The kernel offers no FUSE.
    #[error(
        "cannot mount: /dev/fuse is missing; load it with `modprobe fuse`, or give the container the device /dev/fuse"
    )]
    NoFuse,
    /// This user may not open the kernel's FUSE device.
    #[error(
        "cannot mount: this user may not open /dev/fuse; run as root, or permit it with `chmod 666 /dev/fuse`, as distributions do"
    )]
    FuseNotPermitted,
    /// The user may not mount.
    #[error("cannot mount at {}: not permitted ({reason}); run as root, or install fusermount3 (Debian: `apt install fuse3`) and own the mount point", mountpoint.display())]
    NotPermitted {
        /// Where to mount.
        mountpoint: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Too little memory for page frames.
    #[error("cannot mount with {given} bytes of page frames: at least {least} bytes are needed")]
    TooFewFrames {
        /// What was asked for, bytes.
        given: u64,
        /// The least that works, bytes.
        least: u64,
    },
    /// No threads, or too many.
    #[error("cannot mount with {given} threads: 1 to {most} can serve a mount")]
    Workers {
        /// What was asked for.
        given: usize,
        /// The most that can serve.
        most: usize,
    },
    /// More memory for page frames than there is.
    #[error(
        "cannot mount with {given} bytes of page frames: the machine has {machine} bytes of memory; ask for fewer"
    )]
    TooManyFrames {
        /// What was asked for, bytes.
        given: u64,
        /// What the machine has, bytes.
        machine: u64,
    },
    /// The memory for page frames could not be had.
    #[error("cannot mount: {bytes} bytes of page frames could not be had: {error}; ask for fewer")]
    NoMemory {
        /// What was asked for, bytes.
        bytes: u64,
        /// What the system said.
        error: io::Error,
    },
    /// The building blocks do not fit together as asked.
    #[error("cannot mount: {0}")]
    Composition(String),
    /// File caches cannot be made as asked.
    #[error("cannot mount: {0}")]
    NoCache(CreateError),
    /// Something else.
    #[error("cannot mount at {}: {error}", mountpoint.display())]
    System {
        /// Where to mount.
        mountpoint: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Why [`Mount::unmount`] did not unmount, or not cleanly.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// A program has a file open or its working directory there. The mount goes on.
    #[error("cannot unmount {}: it is in use; end what uses it (`fuser -vm` lists it) and try again", .mount.mountpoint().display())]
    Busy {
        /// It goes on serving.
        mount: Box<Mount>,
    },
    /// It is unmounted here, and in a mount namespace that was made meanwhile it is not. It goes on
    /// there.
    #[error("cannot end {}: it is unmounted here, but mounted for process {process}, which has a mount namespace of its own; end that process, or `nsenter -t {process} -m umount {}`, and try again", .mount.mountpoint().display(), .mount.mountpoint().display())]
    Elsewhere {
        /// It goes on serving.
        mount: Box<Mount>,
        /// A process that sees it.
        process: u32,
    },
    /// Data could not be stored, and would be lost. The mount goes on.
    #[error("cannot unmount {}: {files} could not be stored in {}; make room there and try again, or give it up with `refit umount --discard`", .mount.mountpoint().display(), .mount.source().display())]
    NotStored {
        /// It goes on serving.
        mount: Box<Mount>,
        /// What could not be stored.
        files: Unstored,
    },
    /// It is unmounted, but data did not get to the host.
    #[error("unmounted {}: {files} could not be stored in {} and is lost", mountpoint.display(), source_directory.display())]
    Lost {
        /// Where it was mounted.
        mountpoint: PathBuf,
        /// What was served.
        source_directory: PathBuf,
        /// What could not be stored.
        files: Unstored,
    },
    /// Something else. The mount goes on.
    #[error("cannot unmount {}: {error}", .mount.mountpoint().display())]
    System {
        /// It goes on serving.
        mount: Box<Mount>,
        /// What the system said.
        error: io::Error,
    },
}
