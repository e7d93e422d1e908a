//! Whether data that a cache accepts now can be stored later.
//!
//! A write that a cache accepts reaches the host's file system later, when the program may have
//! continued or ended. No data is therefore accepted that might not find room. While the host has
//! less free space than the caches could hold unstored, and while a file cannot be stored, writes
//! go to the host before they are answered, and the program receives the host's result. (ext4 does
//! the same when its delayed allocations come near the free space: `ext4_nonda_switch`.)
//!
//! Its two locks, `removed` and `devices`, are never held together.

use crate::inode::Inode;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// The minimum of what the kernel may hold of a mount. The kernel permits a FUSE mount one
/// hundredth of all dirty pages, which are limited to a fifth of the memory.
const MIN_RESERVE: u64 = 64 << 20;
/// The divisor of the memory that gives what the kernel may hold of a mount.
const RESERVE_DIVISOR: u64 = 256;
/// The time for which the free space of a file system is cached.
const CACHE_TIME: Duration = Duration::from_millis(10);

/// The space that a mount needs on the host.
#[derive(Debug)]
pub(crate) struct Space {
    /// The number of bytes that caches may hold unstored.
    reserve: u64,
    /// The number of files whose last attempt to be stored failed.
    failing: AtomicU64,
    /// When a file last lost its last name.
    pub(crate) removed: Mutex<Option<Instant>>,
    /// The number of files whose objects are being destroyed.
    ending: AtomicU64,
    /// The last known state of each device. The lock protects nothing else and is held for at most
    /// a `statfs`.
    devices: Mutex<Vec<CachedSpace>>,
}

#[derive(Debug)]
struct CachedSpace {
    device: u64,
    since: Instant,
    short: bool,
}

/// The guard of [`Space::ending`].
pub(crate) struct Ending<'a>(&'a Space);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, SeqCst);
    }
}

impl Space {
    /// Creates the state for a mount on a machine with `memory` bytes whose own caches hold up to
    /// `held` bytes that are not stored.
    pub(crate) fn new(memory: u64, held: u64) -> Self {
        let reserve = MIN_RESERVE.max(memory / RESERVE_DIVISOR).saturating_add(held);
        Self {
            reserve,
            failing: AtomicU64::new(0),
            removed: Mutex::default(),
            ending: AtomicU64::new(0),
            devices: Mutex::default(),
        }
    }

    /// Returns whether data written to a file now might not find room later.
    pub(crate) fn short(&self, inode: &Inode) -> bool {
        if self.failing.load(Relaxed) > 0 {
            return true;
        }
        let device = inode.key.device;
        let mut devices = self.devices.lock();
        if let Some(known) = devices.iter().find(|known| known.device == device)
            && known.since.elapsed() < CACHE_TIME
        {
            return known.short;
        }
        // A file system that does not report its free space is taken to have enough.
        let free = rustix::fs::fstatvfs(&*inode.fd())
            .map_or(u64::MAX, |figures| figures.f_bavail.saturating_mul(figures.f_frsize));
        let short = free < self.reserve;
        devices.retain(|known| known.device != device);
        devices.push(CachedSpace { device, since: Instant::now(), short });
        short
    }

    /// Counts a file as being closed for as long as the guard exists.
    pub(crate) fn ending(&self) -> Ending<'_> {
        self.ending.fetch_add(1, SeqCst);
        Ending(self)
    }

    /// Returns whether any file is being closed.
    pub(crate) fn any_ends(&self) -> bool {
        // Pairs with `ending` and its end: a thread that has looked into the table before, and has
        // not found a closing file there, sees it here until its descriptor is closed.
        self.ending.load(SeqCst) > 0
    }

    /// Records that a file could not be stored.
    pub(crate) fn failed(&self, inode: &Inode, errno: Errno) {
        if inode.failing.failed(errno) {
            self.failing.fetch_add(1, Relaxed);
        }
    }

    /// Records that a file is stored or need not be any more.
    pub(crate) fn stored(&self, inode: &Inode) {
        if inode.failing.stored() {
            self.failing.fetch_sub(1, Relaxed);
        }
    }
}
