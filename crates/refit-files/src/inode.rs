//! One file, directory, link … of the host, as the kernel knows it through the mount.

use crate::capability::Capability;
use crate::data::Data;
use crate::directory::Stream;
use crate::host::HostFile;
use crate::space::Failing;
use crate::times::Times;
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Stat};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What identifies an inode on the host.
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

/// Where an inode was seen last: a directory and a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) name: OsString,
}

#[derive(Debug)]
pub(crate) struct Inode {
    /// The number that the kernel calls it by, which is the inode number that programs see.
    pub(crate) node: u64,
    pub(crate) key: HostKey,
    /// Holds on to the inode, so that its number is not used again while the kernel knows it.
    pub(crate) host: Arc<HostFile>,
    pub(crate) kind: FileType,
    /// `st_mode` as it was seen last: the cheap test whether a write must clear set-user-id bits.
    pub(crate) mode: AtomicU32,
    /// How many times the kernel got to know it and did not forget it. Changed only under the table's lock.
    pub(crate) lookups: AtomicU64,
    /// How many times it is open.
    pub(crate) opens: AtomicU32,
    /// How many of these may write. While there is none, the kernel has no unwritten data of it.
    pub(crate) writers: AtomicU32,
    /// How many of these have the kernel collect what they write, the end of the file included.
    pub(crate) collecting: AtomicU32,
    /// What the kernel shows of it is not right: it was written past the kernel's cache although the kernel collects
    /// writes, which keeps the old time; or something that the kernel had collected could not be stored.
    pub(crate) stale_in_kernel: AtomicBool,
    /// No name leads to it any more: what is in its cache need not reach the host.
    pub(crate) gone: AtomicBool,
    /// A write has to remove it.
    pub(crate) capability: Capability,
    /// The host knows that it was read since it was written last.
    pub(crate) access_noted: AtomicBool,
    pub(crate) place: Mutex<Place>,
    /// Reading and writing hold this shared; what changes the host's file underneath the cache holds it alone.
    pub(crate) data: RwLock<Option<Data>>,
    pub(crate) times: Mutex<Times>,
    pub(crate) stream: Mutex<Option<Stream>>,
    /// How many of `lookups` the kernel has yet to give back before it shows the file as it is: it
    /// was changed beside the mount, and the kernel keeps the size and the times of a file whose
    /// writes it collects for as long as it knows the file. Changed only under the table's lock.
    pub(crate) outdated_lookups: AtomicU64,
    /// Changes beside the mount of which the kernel is being told: until then it may answer from
    /// what it holds.
    pub(crate) telling_kernel: AtomicU32,
    /// It stands in the queue for write-back.
    pub(crate) queued: AtomicBool,
    /// Whether its data could be stored.
    pub(crate) failing: Failing,
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

    /// A descriptor of it; see [`HostFile::fd`].
    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        self.host.fd()
    }

    /// Makes a change to the host's inode that is none by others; see [`HostFile::changing`].
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

    /// It is called `name` in `parent` now.
    pub(crate) fn moved(&self, parent: u64, name: &OsStr) {
        let mut place = self.place.lock();
        place.parent = parent;
        if place.name != name {
            place.name = name.to_owned();
        }
    }
}
