//! The lock on a served directory, which permits one server at a time in this process and on the
//! host.
//!
//! Two servers of one directory, or of a directory and one inside of it, would each answer from
//! caches that the other does not know. A server therefore holds an exclusive lock (`flock`) on its
//! directory and a shared one on each directory above it, which a server of one of those would hold
//! exclusively. The kernel releases the locks when the process ends.
//!
//! A server whose mount has ended continues until all data is stored, and holds its locks until
//! then; the next server of the directory waits for it. A server whose mount still exists is named
//! in the error instead.
//!
//! There is no lock on a directory above that this user may not read, nor on a file system that
//! does not support such locks.

use crate::mount_table;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{debug, info};

/// The time for which a mount waits for a server that is finishing. That server may have much data
/// to store.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which a lock is tried. The kernel notifies of a released lock only a thread that
/// waits for that one lock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The locks of a server. Dropping them admits the next server.
#[derive(Debug)]
pub(crate) struct SourceLock {
    held: Vec<OwnedFd>,
}

/// A server that serves the directory, or one above or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process, if it is visible to this one.
    pub pid: Option<u32>,
    /// The directory that it serves.
    pub source: PathBuf,
    /// Its mount point; `None` if it has been unmounted.
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
            None => write!(f, " has locked {}, and is still writing back", self.source.display()),
        }
    }
}

impl SourceLock {
    /// Continues the locks of another server, whose descriptors `held` shares.
    pub(crate) fn continued(held: Vec<OwnedFd>) -> Self {
        Self { held }
    }

    /// Returns the descriptors that hold the locks, the source's own first.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.held.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Locks `source`, which is an absolute path without symbolic links. Waits for a server that
    /// has been unmounted and is still storing data.
    pub(crate) fn new(source: &Path) -> Result<Self, Holder> {
        let began = Instant::now();
        let mut waiting = false;
        loop {
            let conflict = match lock(source) {
                Ok(held) => {
                    debug!(?source, waited = ?began.elapsed(), "locks the source");
                    return Ok(Self { held });
                }
                Err(conflict) => conflict,
            };
            let holder = conflict.holder(source);
            if holder.mountpoint.is_some() || began.elapsed() > FINISH_TIMEOUT {
                info!(?source, %holder, "the source is served already");
                return Err(holder);
            }
            if !std::mem::replace(&mut waiting, true) {
                info!(?source, %holder, "waits for the source's last server to store its data");
            }
            // Polled, since a wait in `flock` could not be ended: the holder may mount again in the
            // meantime, which is an error to report at once. `FINISH_TIMEOUT` bounds it.
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A directory that another server has locked.
#[derive(Debug)]
struct Conflict {
    directory: PathBuf,
    /// The device and the inode number, if they are known.
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
    /// Returns the server that holds the lock, preferably one whose mount still exists.
    fn holder(&self, source: &Path) -> Holder {
        let pids = self.inode.map(pids).unwrap_or_default();
        let mounts = |process: &str, pid: Option<u32>| {
            let mounts = mount_table::refit_mounts(&format!("/proc/{process}/mountinfo"));
            mounts
                .into_iter()
                .find(|(served, _)| self.concerns(source, served))
                .map(|(source, mountpoint)| Holder { pid, source, mountpoint: Some(mountpoint) })
        };
        let by_pid = pids.iter().find_map(|&pid| mounts(&pid.to_string(), Some(pid)));
        // The process that has locked it may have ended, and another one continue its mount.
        by_pid.or_else(|| mounts("self", None)).unwrap_or_else(|| Holder {
            pid: pids.first().copied(),
            source: self.directory.clone(),
            mountpoint: None,
        })
    }

    /// Returns whether the server of `served` holds the conflicting lock: on this very directory,
    /// or as the server of a directory below `source`.
    fn concerns(&self, source: &Path, served: &Path) -> bool {
        let same = || {
            let served = rustix::fs::stat(served).ok();
            served.is_some_and(|served| Some((served.st_dev, served.st_ino)) == self.inode)
        };
        (self.directory == source && served.starts_with(source)) || same()
    }
}

/// Returns the processes that hold a lock on a directory, from `/proc/locks`, whose lines have the
/// form `1: FLOCK ADVISORY READ 123 00:2a:456 0 EOF`.
fn pids((device, number): (u64, u64)) -> Vec<u32> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let exactly = format!("{major:02x}:{minor:02x}:{number}");
    // Some file systems show programs another device number than the kernel's own.
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
