//! An inode of the host (a file, directory, link and so on) as the kernel knows it through the
//! mount.
//!
//! # Locks of an inode, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `data` | the file's objects; held shared during a read, a write or a write-back |
//! | `times` | the times that programs see, and which of them the host does not have yet |
//! | `stream` | the position in the host's directory, of a directory only |
//! | `place` | parent and name; nothing is called with it held |

use crate::capability::Capability;
use crate::data::Data;
use crate::directory::Stream;
use crate::host::HostFile;
use crate::times::Times;
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The identity of an inode on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostKey {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

impl HostKey {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}

/// The directory and the name under which an inode was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) name: OsString,
}

#[derive(Debug)]
pub(crate) struct Inode {
    /// The number by which the kernel refers to it, which is the inode number that programs see.
    pub(crate) node: u64,
    pub(crate) key: HostKey,
    /// Keeps the inode in existence, so that its number is not reused while the kernel knows it.
    pub(crate) host: Arc<HostFile>,
    pub(crate) kind: FileType,
    /// `st_mode` as last seen, for a cheap test whether a write must clear set-user-ID bits.
    pub(crate) mode: AtomicU32,
    /// The number of look-ups that the kernel has not forgotten yet. Changed only with the table
    /// locked.
    pub(crate) lookups: AtomicU64,
    /// The number of opens of the inode.
    pub(crate) opens: AtomicU32,
    /// The number of opens that may write. While there are none, the kernel has no unwritten data
    /// of the inode.
    pub(crate) writers: AtomicU32,
    /// For how many of the opens the kernel caches writes, including the size of the file.
    pub(crate) collecting: AtomicU32,
    /// Whether the kernel shows outdated attributes: data was written past the kernel's cache
    /// although the kernel caches writes and keeps the old time, or data that the kernel had cached
    /// could not be stored.
    pub(crate) stale_in_kernel: AtomicBool,
    /// Whether no name leads to the inode any more, so that the data in its cache need not reach
    /// the host.
    pub(crate) gone: AtomicBool,
    /// Whether a write must remove `security.capability`.
    pub(crate) capability: Capability,
    /// Whether the host knows that the file was read since it was last written.
    pub(crate) access_noted: AtomicBool,
    pub(crate) place: Mutex<Place>,
    /// Locked shared by reads and writes, and exclusively by changes of the host's file underneath
    /// the cache.
    pub(crate) data: RwLock<Option<Data>>,
    pub(crate) times: Mutex<Times>,
    pub(crate) stream: Mutex<Option<Stream>>,
    /// The number of `lookups` that the kernel must still forget before it shows the file as it is.
    /// A file that was changed beside the mount has some, because the kernel keeps the size and the
    /// times of a file whose writes it caches for as long as it knows the file. Changed only with
    /// the table locked.
    pub(crate) outdated_lookups: AtomicU64,
    /// The number of changes beside the mount of which the kernel is being notified. Until it has
    /// been, it may answer from its cache.
    pub(crate) telling_kernel: AtomicU32,
    /// Whether it is in the queue for write-back.
    pub(crate) queued: AtomicBool,
    /// Why its data could not be stored, if so.
    pub(crate) failing: Failing,
}

/// Why a file could not be stored at the last attempt.
#[derive(Debug, Default)]
pub(crate) struct Failing(AtomicI32);

impl Failing {
    /// Records that an attempt has failed. Returns whether the one before had not.
    pub(crate) fn failed(&self, errno: Errno) -> bool {
        self.0.swap(errno.raw_os_error(), Relaxed) == 0
    }

    /// Records that the file is stored or need not be any more. Returns whether the last attempt
    /// had failed.
    pub(crate) fn stored(&self) -> bool {
        self.0.load(Relaxed) != 0 && self.0.swap(0, Relaxed) != 0
    }
}

impl Inode {
    pub(crate) fn new(node: u64, host: HostFile, stat: &Stat, place: Place) -> Self {
        host.caches_know(stat);
        Self {
            node,
            key: HostKey::of(stat),
            host: Arc::new(host),
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: AtomicU32::new(stat.st_mode),
            lookups: AtomicU64::new(0),
            opens: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            collecting: AtomicU32::new(0),
            stale_in_kernel: AtomicBool::new(false),
            gone: AtomicBool::new(stat.st_nlink == 0),
            capability: Capability::default(),
            access_noted: AtomicBool::new(false),
            place: Mutex::new(place),
            data: RwLock::new(None),
            times: Mutex::new(Times::default()),
            stream: Mutex::new(None),
            outdated_lookups: AtomicU64::new(0),
            telling_kernel: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            failing: Failing::default(),
        }
    }

    /// Returns a descriptor of the inode; see [`HostFile::fd`].
    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        self.host.fd()
    }

    /// Changes the host's inode without marking it as changed by others; see
    /// [`HostFile::changing`].
    pub(crate) fn change_on_host<T>(&self, change: impl FnOnce(&OwnedFd) -> T) -> T {
        let fd = self.fd();
        if self.kind == FileType::RegularFile {
            self.host.changing(|| change(&fd))
        } else {
            change(&fd)
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Records that the inode is now called `name` in `parent`.
    pub(crate) fn moved(&self, parent: u64, name: &OsStr) {
        let mut place = self.place.lock();
        place.parent = parent;
        if place.name != name {
            place.name = name.to_owned();
        }
    }
}
