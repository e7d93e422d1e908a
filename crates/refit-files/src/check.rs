//! The checks that are made before anything is mounted.

use crate::error::MountError;
use crate::mount::MountOptions;
use refit_sys::memory::PAGE_SIZE_U64;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
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

/// Returns whether the topmost mount at `path` is a FUSE file system.
pub(crate) fn is_fuse_mount(path: &Path) -> bool {
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else { return false };
    // Later lines cover earlier ones.
    let topmost = mounts.split(|&c| c == b'\n').rev().find_map(|line| {
        let fields: Vec<_> = line.split(|&c| c == b' ').collect();
        let kind = fields.iter().position(|field| field == b"-").map(|dash| dash + 1)?;
        (unescape(fields.get(4)?) == path.as_os_str().as_bytes()).then(|| fields.get(kind).copied())
    });
    topmost.flatten().is_some_and(|kind| kind == b"fuse" || kind.starts_with(b"fuse."))
}

/// Returns whether a table of mounts (`/proc/PID/mountinfo`) contains the file system with this
/// device number.
pub(crate) fn has_file_system(table: &[u8], (major, minor): (u32, u32)) -> bool {
    let number = format!("{major}:{minor}");
    let is = |line: &[u8]| line.split(|&c| c == b' ').nth(2) == Some(number.as_bytes());
    table.split(|&c| c == b'\n').any(is)
}

/// Returns the source and the mount point of each mount of refit in a table of mounts.
pub(crate) fn refit_mounts(table: &str) -> Vec<(PathBuf, PathBuf)> {
    let mounts = std::fs::read(table).unwrap_or_default();
    let path = |field: &[u8]| PathBuf::from(OsStr::from_bytes(&unescape(field)));
    let served = |line: &[u8]| {
        let fields: Vec<_> = line.split(|&c| c == b' ').collect();
        let dash = fields.iter().position(|field| field == b"-")?;
        let (kind, source) = (*fields.get(dash + 1)?, *fields.get(dash + 2)?);
        if kind != b"fuse.refit" {
            return None;
        }
        Some((path(source), path(fields.get(4)?)))
    };
    mounts.split(|&c| c == b'\n').filter_map(served).collect()
}

/// Decodes a field of a table of mounts, in which blanks and other special characters are written
/// as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(first);
                rest = after;
            }
        }
    }
    path
}

/// Returns a path as the table of mounts shows it as the source of a mount.
pub(crate) fn display_name(path: &Path) -> String {
    // A comma would end the mount option.
    OsStr::to_string_lossy(path.as_os_str()).replace(',', "_")
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn the_table_of_mounts_is_unescaped() {
        assert_eq!(unescape(b"/a\\040b\\134c\\"), b"/a b\\c\\");
        assert_eq!(unescape(b"/\\01"), b"/\\01");
    }
}
