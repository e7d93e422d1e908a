//! Whether what a cache accepts now can be stored later.
//!
//! A write that a cache accepts reaches the host's file system later, when the program may have gone on or ended. So
//! nothing is accepted that might not find room: while the host has less free space than caches could hold unstored,
//! and while a file cannot be stored, writes go to the host before they are answered, and the program gets the host's
//! answer. (ext4 does the same when its delayed allocations come near the free space: `ext4_nonda_switch`.)

use crate::inode::Inode;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::atomic::{
    AtomicI32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// The least that counts as what the kernel may hold of a mount: it lets a FUSE mount have a hundredth of the dirty
/// pages that it permits, and those are a fifth of the memory.
const LEAST_RESERVE: u64 = 64 << 20;
/// The share of the memory that counts as what the kernel may hold.
const RESERVE_SHARE: u64 = 256;
/// How long the figures of a file system are believed.
const FRESH: Duration = Duration::from_millis(10);

/// The room that a mount needs on the host.
#[derive(Debug)]
pub(crate) struct Space {
    /// Bytes that caches may hold unstored.
    reserve: u64,
    /// Files that could not be stored when it was tried last.
    failing: AtomicU64,
    /// When a file lost its last name.
    pub(crate) removed: Mutex<Option<Instant>>,
    /// Files whose objects are being ended.
    ending: AtomicU64,
    /// What was found out last, by device. Protects nothing else; held for a `statfs` at most.
    devices: Mutex<Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    device: u64,
    since: Instant,
    short: bool,
}

/// See [`Space::ending`].
pub(crate) struct Ending<'a>(&'a Space);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, SeqCst);
    }
}

/// Why a file could not be stored when it was tried last.
#[derive(Debug, Default)]
pub(crate) struct Failing(AtomicI32);

impl Space {
    /// For a mount whose own caches hold up to `held` bytes that are not stored.
    pub(crate) fn new(memory: u64, held: u64) -> Self {
        let reserve = LEAST_RESERVE.max(memory / RESERVE_SHARE).saturating_add(held);
        Self {
            reserve,
            failing: AtomicU64::new(0),
            removed: Mutex::default(),
            ending: AtomicU64::new(0),
            devices: Mutex::default(),
        }
    }

    /// Whether what is written to a file now may find no room later.
    pub(crate) fn short(&self, inode: &Inode) -> bool {
        if self.failing.load(Relaxed) > 0 {
            return true;
        }
        let device = inode.key.device;
        let mut devices = self.devices.lock();
        if let Some(known) = devices.iter().find(|known| known.device == device)
            && known.since.elapsed() < FRESH
        {
            return known.short;
        }
        // A file system that does not say has room.
        let free = rustix::fs::fstatvfs(&*inode.fd())
            .map_or(u64::MAX, |figures| figures.f_bavail.saturating_mul(figures.f_frsize));
        let short = free < self.reserve;
        devices.retain(|known| known.device != device);
        devices.push(Known { device, since: Instant::now(), short });
        short
    }

    /// A file is closed as long as this is held.
    pub(crate) fn ending(&self) -> Ending<'_> {
        self.ending.fetch_add(1, SeqCst);
        Ending(self)
    }

    /// Whether any file is being closed.
    pub(crate) fn any_ends(&self) -> bool {
        // Pairs with `ending` and the end of it: whoever has looked into the table before, and not
        // found a file there that is ending, finds it here until its descriptor is closed.
        self.ending.load(SeqCst) > 0
    }

    /// A file could not be stored.
    pub(crate) fn failed(&self, inode: &Inode, errno: Errno) {
        if inode.failing.0.swap(errno.raw_os_error(), Relaxed) == 0 {
            self.failing.fetch_add(1, Relaxed);
        }
    }

    /// A file is stored, or need not be any more.
    pub(crate) fn stored(&self, inode: &Inode) {
        if inode.failing.0.load(Relaxed) != 0 && inode.failing.0.swap(0, Relaxed) != 0 {
            self.failing.fetch_sub(1, Relaxed);
        }
    }
}
