//! An inode of the host (a file, directory, link and so on) as the kernel knows it through the
//! mount.
//!
//! # Locks of an inode, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `session` | whether the file is passed through; held shared by changes of the host's file |
//! | `data` | the file's objects; held shared during a read, a write or a write-back |
//! | `times` | the times that programs see, and which of them the host does not have yet |
//! | `stream` | the position in the host's directory, of a directory only |
//! | `place` | parent and name; nothing is called with it held |

use crate::capability::Capability;
use crate::data::Data;
use crate::directory::Stream;
use crate::host::HostFile;
use crate::image::record::{Flag, Record};
use crate::image::recorded::RecordedInode;
use crate::times::Times;
use crate::values::HostKey;
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

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
    /// The state that the next server needs: among others `st_mode` as last seen, the number of
    /// look-ups that the kernel has not forgotten yet, and the open files.
    pub(crate) record: Arc<Record>,
    /// The number of closes that have been counted in the record, but whose reply the kernel may
    /// not have received yet.
    pub(crate) closing: AtomicU32,
    /// Whether a write must remove `security.capability`.
    pub(crate) capability: Capability,
    /// Whether the host knows that the file was read since it was last written.
    pub(crate) access_noted: AtomicBool,
    /// `None` if another server has served the inode, until it is needed; see `Table::place`.
    pub(crate) place: Mutex<Option<Place>>,
    /// Locked exclusively by opens and closes; see `passthrough`.
    pub(crate) session: RwLock<()>,
    /// Locked shared by reads and writes, and exclusively by changes of the host's file underneath
    /// the cache.
    pub(crate) data: RwLock<Option<Data>>,
    pub(crate) times: Mutex<Times>,
    pub(crate) stream: Mutex<Option<Stream>>,
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
    /// Creates an inode and begins its record, which must be a free one.
    pub(crate) fn new(
        node: u64,
        host: HostFile,
        stat: &Stat,
        place: Place,
        record: Record,
    ) -> Self {
        let (record, key) = (Arc::new(record), HostKey::of(stat));
        host.caches_know(stat);
        host.keep_in(&record);
        record.begin(node, key, stat.st_mode, stat.st_nlink == 0);
        let times = Times::new(Arc::clone(&record));
        Self::with(node, key, host, Some(place), record, times)
    }

    /// Creates an inode that another server has served, and continues its record in `record`. Its
    /// place is found when it is needed.
    pub(crate) fn continued(inode: &RecordedInode, fd: Arc<OwnedFd>, record: Record) -> Self {
        let record = Arc::new(record);
        let host = HostFile::continued(fd, inode);
        inode.continue_in(&record);
        host.keep_in(&record);
        let times = Times::continued(Arc::clone(&record), inode);
        Self::with(inode.node(), inode.key(), host, None, record, times)
    }

    fn with(
        node: u64,
        key: HostKey,
        host: HostFile,
        place: Option<Place>,
        record: Arc<Record>,
        times: Times,
    ) -> Self {
        Self {
            node,
            key,
            host: Arc::new(host),
            kind: FileType::from_raw_mode(record.mode()),
            record,
            closing: AtomicU32::new(0),
            capability: Capability::default(),
            access_noted: AtomicBool::new(false),
            place: Mutex::new(place),
            session: RwLock::new(()),
            data: RwLock::new(None),
            times: Mutex::new(times),
            stream: Mutex::new(None),
            telling_kernel: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            failing: Failing::default(),
        }
    }

    /// Returns whether a program has the file open. A file counts as open until the kernel has
    /// received the reply to its close. Pairs with the releases in `Table::closed` and
    /// `Server::released`.
    pub(crate) fn is_open(&self) -> bool {
        self.record.uses().opens() > 0 || self.closing.load(Acquire) > 0
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

    /// Returns whether the kernel accesses the file's data on the host.
    pub(crate) fn is_passed_through(&self) -> bool {
        self.record.backing().is_some()
    }

    /// Returns whether the file has the set-user-ID or the set-group-ID bit.
    pub(crate) fn has_set_id(&self) -> bool {
        self.record.mode() & (libc::S_ISUID | libc::S_ISGID) != 0
    }

    /// Returns whether no name leads to the inode any more, so that the data in its cache need not
    /// reach the host.
    pub(crate) fn is_gone(&self) -> bool {
        self.record.has(Flag::Gone)
    }

    /// Records whether no name leads to the inode any more.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.record.set(Flag::Gone, gone);
    }

    /// Records that the kernel shows outdated attributes: data was written past the kernel's cache
    /// although the kernel caches writes and keeps the old time, or data that the kernel had cached
    /// could not be stored.
    pub(crate) fn set_stale_in_kernel(&self) {
        if !self.record.has(Flag::StaleInKernel) {
            self.record.set(Flag::StaleInKernel, true);
        }
    }

    /// Records that the inode is now called `name` in `parent`.
    pub(crate) fn moved(&self, parent: u64, name: &OsStr) {
        let mut place = self.place.lock();
        match &mut *place {
            Some(place) if place.name == name => place.parent = parent,
            place => *place = Some(Place { parent, name: name.to_owned() }),
        }
    }
}
