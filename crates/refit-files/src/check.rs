//! The checks that are made before anything is mounted.

use crate::error::MountError;
use crate::kernel_mount::allows_others;
use crate::mount_table::is_fuse_mount;
use crate::options::{MountOptions, Users};
use refit_sys::memory::PAGE_SIZE_U64;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The minimum number of page frames of a mount.
pub(crate) const MIN_FRAMES: u64 = 64;
/// The maximum number of threads that serve a mount.
const MAX_WORKERS: usize = 1024;

/// Options of a mount that have passed the checks.
#[derive(Debug)]
pub(crate) struct ValidOptions {
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) stat: Stat,
}

pub(crate) fn check(options: &MountOptions) -> Result<ValidOptions, MountError> {
    if options.frames_bytes < MIN_FRAMES * PAGE_SIZE_U64 {
        let (given, least) = (options.frames_bytes, MIN_FRAMES * PAGE_SIZE_U64);
        return Err(MountError::TooFewFrames { given, least });
    }
    if let Some(given) = options.workers.filter(|workers| !(1..=MAX_WORKERS).contains(workers)) {
        return Err(MountError::Workers { given, most: MAX_WORKERS });
    }
    if options.users == Users::RootUnchecked && !rustix::process::geteuid().is_root() {
        return Err(MountError::NotPrivate);
    }
    if !options.xattrs && allows_others(options.users) {
        return Err(MountError::AclsUnchecked);
    }
    let machine = crate::modes::memory();
    if options.frames_bytes > machine {
        return Err(MountError::TooManyFrames { given: options.frames_bytes, machine });
    }
    let source = source(&options.source)?;
    let mountpoint = mountpoint(&options.mountpoint)?;
    if mountpoint.starts_with(&source) {
        return Err(MountError::MountpointInSource { mountpoint, source_directory: source });
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    let needed = Access::READ_OK | Access::WRITE_OK;
    if rustix::fs::accessat(CWD, "/dev/fuse", needed, AtFlags::EACCESS) == Err(Errno::ACCESS) {
        return Err(MountError::FuseNotPermitted);
    }
    let unreadable = |errno: Errno| unreadable_source(&source, errno.into());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&source, flags, Mode::empty()).map_err(unreadable)?;
    let stat = rustix::fs::fstat(&root).map_err(unreadable)?;
    Ok(ValidOptions { source, mountpoint, root, stat })
}

fn source(path: &Path) -> Result<PathBuf, MountError> {
    let source = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::SourceMissing(path.to_owned()),
        io::ErrorKind::NotADirectory => MountError::SourceNotDirectory(path.to_owned()),
        _ => unreadable_source(path, error),
    })?;
    if !source.is_dir() {
        return Err(MountError::SourceNotDirectory(path.to_owned()));
    }
    let needed = Access::READ_OK | Access::EXEC_OK;
    match rustix::fs::accessat(CWD, &source, needed, AtFlags::EACCESS) {
        Ok(()) => Ok(source),
        Err(errno) => Err(unreadable_source(path, errno.into())),
    }
}

fn unreadable_source(path: &Path, error: io::Error) -> MountError {
    MountError::SourceUnreadable { source_directory: path.to_owned(), error }
}

fn mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    let found = path.canonicalize().and_then(|found| found.metadata().map(|data| (found, data)));
    let (mountpoint, metadata) = found.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => MountError::MountpointMissing(path.to_owned()),
        Some(libc::ENOTDIR) => MountError::MountpointNotDirectory(path.to_owned()),
        Some(libc::ENOTCONN) => MountError::DeadMount(path.to_owned()),
        _ => MountError::System { mountpoint: path.to_owned(), error },
    })?;
    if !metadata.is_dir() {
        return Err(MountError::MountpointNotDirectory(path.to_owned()));
    }
    if is_fuse_mount(&mountpoint) {
        return Err(MountError::AlreadyMounted(path.to_owned()));
    }
    Ok(mountpoint)
}
