//! The lock on a directory that is served: one server at a time, within one process and among all of the host.
//!
//! Two servers of one directory, or of one inside of the other, would each answer from caches that the other does not
//! know of. So a server has an exclusive lock (`flock`) on its directory and a shared one on each directory above: a
//! server of a directory above has that one exclusively. The kernel drops them with the process.
//!
//! A server whose mount has gone goes on until all is stored, and keeps its locks for that long: whoever wants to serve
//! the directory next waits. A server whose mount is there is named instead.
//!
//! A directory above that this user may not read has no lock, nor has a file system that does not know such locks.

use crate::check;
use crate::error::MountError;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server that finishes is waited for. It may have much to store.
const FINISHING: Duration = Duration::from_secs(120);
/// Between two looks: the kernel tells of a lock that becomes free only to one who waits for that single lock.
const LOOK: Duration = Duration::from_millis(5);

/// The locks of a server; dropping them lets the next one in.
#[derive(Debug)]
pub(crate) struct SourceLock {
    _held: Vec<OwnedFd>,
}

/// A server that has the directory, or one above or below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process, if this process can see it.
    pub pid: Option<u32>,
    /// The directory that it serves.
    pub source: PathBuf,
    /// Where; `None` if it has been unmounted.
    pub mountpoint: Option<PathBuf>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("another process")?,
        }
        match &self.mountpoint {
            Some(at) => write!(f, " serves {} at {}", self.source.display(), at.display()),
            None => write!(f, " has {} locked, and still stores it", self.source.display()),
        }
    }
}

impl SourceLock {
    /// Locks `source`, an absolute path without links. Waits for a server that has been unmounted and still stores.
    pub(crate) fn new(source: &Path) -> Result<Self, MountError> {
        let began = Instant::now();
        loop {
            let conflict = match lock(source) {
                Ok(held) => return Ok(Self { _held: held }),
                Err(conflict) => conflict,
            };
            let holder = conflict.holder(source);
            if holder.mountpoint.is_some() || began.elapsed() > FINISHING {
                return Err(MountError::Served { source_directory: source.to_owned(), holder });
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A directory that another server has locked.
#[derive(Debug)]
struct Conflict {
    directory: PathBuf,
    /// Device and inode number, if they can be had.
    inode: Option<(u64, u64)>,
}

fn lock(source: &Path) -> Result<Vec<OwnedFd>, Conflict> {
    let mut held = Vec::new();
    for directory in source.ancestors() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else { continue };
        let how = if directory == source {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        if rustix::fs::flock(&opened, how) == Err(Errno::WOULDBLOCK) {
            let inode = rustix::fs::fstat(&opened).ok().map(|stat| (stat.st_dev, stat.st_ino));
            return Err(Conflict { directory: directory.to_owned(), inode });
        }
        held.push(opened);
    }
    Ok(held)
}

impl Conflict {
    /// The process that holds the lock: one whose mount is there, if there is one.
    fn holder(&self, source: &Path) -> Holder {
        let pids = self.inode.map(pids).unwrap_or_default();
        let mounts = |pid: u32| {
            let mounts = check::refit_mounts(&format!("/proc/{pid}/mountinfo"));
            mounts.into_iter().find(|(served, _)| self.concerns(source, served)).map(
                |(source, mountpoint)| Holder {
                    pid: Some(pid),
                    source,
                    mountpoint: Some(mountpoint),
                },
            )
        };
        pids.iter().find_map(|&pid| mounts(pid)).unwrap_or_else(|| Holder {
            pid: pids.first().copied(),
            source: self.directory.clone(),
            mountpoint: None,
        })
    }

    /// Whether a server of `served` has the lock in the way: on this very directory, or below the one to be served.
    fn concerns(&self, source: &Path, served: &Path) -> bool {
        let same = || {
            let served = rustix::fs::stat(served).ok();
            served.is_some_and(|served| Some((served.st_dev, served.st_ino)) == self.inode)
        };
        (self.directory == source && served.starts_with(source)) || same()
    }
}

/// Processes that have a lock on a directory, as the kernel lists them: `1: FLOCK ADVISORY READ 123 00:2a:456 0 EOF`.
fn pids((device, number): (u64, u64)) -> Vec<u32> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let exactly = format!("{major:02x}:{minor:02x}:{number}");
    // Some file systems show programs another device than the kernel's own.
    let inode = format!(":{number}");
    let of = |fits: &dyn Fn(&str) -> bool| -> Vec<u32> {
        let fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = fields.filter(|fields| fields.get(1) == Some(&"FLOCK"));
        let ours = ours.filter(|fields| fields.get(5).is_some_and(|place| fits(place)));
        ours.filter_map(|fields| fields.get(4)?.parse().ok()).collect()
    };
    let found = of(&|place| place == exactly);
    if found.is_empty() { of(&|place| place.ends_with(&inode)) } else { found }
}
