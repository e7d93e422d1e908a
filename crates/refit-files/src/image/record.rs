//! The record of an inode in the image.
//!
//! A record is valid from the time at which its node is stored, which happens last, until the node
//! becomes 0 again. While it is valid its descriptor is open: the descriptor is recorded before the
//! one that it replaces is closed, and removed before it is closed itself.
//!
//! The counts of look-ups and of opens are changed by one thread at a time, with the inode's shard
//! of the table locked, and through [`Record::count`], which records in the request's slot what it
//! is about to do.

use super::Image;
use super::layout::RECORD_WORDS as WORDS;
use crate::values::{Access, HostKey, Time};
use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The words of a record.
pub(super) const NODE: usize = 0;
pub(super) const DESCRIPTOR: usize = 1;
pub(super) const DEVICE: usize = 2;
pub(super) const NUMBER: usize = 3;
pub(super) const MODE: usize = 4;
pub(super) const FLAGS: usize = 5;
pub(super) const LOOKUPS: usize = 6;
pub(super) const OUTDATED: usize = 7;
pub(super) const USES: usize = 8;
pub(super) const CACHE: usize = 9;
pub(super) const SIZE: usize = 10;
pub(super) const MODIFIED: usize = 11;
pub(super) const CHANGED: usize = 13;
pub(super) const CHANGED_HOST: usize = 15;
pub(super) const VERSION: usize = 17;

/// The shift of the host's file that the inode is passed through to, in the word of the flags.
pub(super) const BACKING_SHIFT: u32 = 32;

/// The flags of a record, each a bit of the lower half of their word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Flag {
    /// The kernel shows outdated attributes; see [`Inode`](crate::inode::Inode).
    StaleInKernel = 1,
    /// No name leads to the inode any more.
    Gone = 2,
    /// The modification time waits for the data.
    Modified = 4,
    /// The change time shown is not the host's.
    Changed = 8,
    /// The change time shown replaces one of the host.
    ChangedHost = 16,
    /// The version is known.
    Version = 32,
    /// The version is being replaced.
    VersionChanging = 64,
    /// A change by others was found.
    ByOthers = 128,
    /// The kernel has cached pages of the file while it was passed through.
    PagesInKernel = 256,
    /// The kernel has opened the file through its cache.
    Opened = 512,
}

/// The open files of an inode: how many there are, how many may write, and for how many of these
/// the kernel caches writes. They share a word, so that they change together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses(u64);

const USE_BITS: u32 = 21;
const USE_MASK: u64 = (1 << USE_BITS) - 1;

impl Uses {
    /// Returns the use that one open makes.
    pub(crate) fn one(writes: bool, collects: bool) -> Self {
        Self(1 | u64::from(writes) << USE_BITS | u64::from(collects) << (2 * USE_BITS))
    }

    pub(crate) fn opens(self) -> u64 {
        self.0 & USE_MASK
    }

    pub(crate) fn writers(self) -> u64 {
        self.0 >> USE_BITS & USE_MASK
    }

    /// Returns for how many opens the kernel caches writes, including the size of the file.
    pub(crate) fn collecting(self) -> u64 {
        self.0 >> (2 * USE_BITS) & USE_MASK
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// A change of a count of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// One more look-up, or one less that the request made itself and takes back.
    Lookups(i64),
    /// One more open file.
    Opened(Uses),
    /// One open file less.
    Closed(Uses),
}

impl Count {
    pub(super) fn apply(self, before: u64) -> u64 {
        match self {
            Count::Lookups(by) => before.saturating_add_signed(by),
            Count::Opened(uses) => before.wrapping_add(uses.word()),
            Count::Closed(uses) => before.wrapping_sub(uses.word()),
        }
    }
}

/// A count that was being changed when the server ended: the record and the value to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// The look-ups of a record.
    Lookups { record: u32, before: u64 },
    /// The open files of a record.
    Uses { record: u32, before: u64 },
}

impl Unfinished {
    pub(crate) fn record(self) -> u32 {
        let (Self::Lookups { record, .. } | Self::Uses { record, .. }) = self;
        record
    }
}

/// The record of one inode. Dropping it frees the record.
#[derive(Debug)]
pub(crate) struct Record {
    image: Arc<Image>,
    index: u32,
}

/// The version of a file as recorded: the change time, the modification time, the size.
pub(crate) type RecordedVersion = (Time, Time, i64);

impl Record {
    /// Returns the record with this index of an image whose records were copied.
    pub(crate) fn copied(image: &Arc<Image>, index: u32) -> Self {
        Self { image: Arc::clone(image), index }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    fn words(&self) -> &[AtomicU64; WORDS] {
        self.image.record_words(self.index)
    }

    fn get(&self, word: usize) -> u64 {
        self.words()[word].load(Relaxed)
    }

    pub(super) fn put(&self, word: usize, value: u64) {
        self.words()[word].store(value, Relaxed);
    }

    /// Makes this the record of an inode.
    pub(crate) fn begin(&self, node: u64, key: HostKey, mode: u32, gone: bool) {
        self.put(DEVICE, key.device);
        self.put(NUMBER, key.number);
        self.put(MODE, mode.into());
        self.put(FLAGS, if gone { Flag::Gone as u64 } else { 0 });
        for word in [LOOKUPS, OUTDATED, USES, CACHE, SIZE] {
            self.put(word, 0);
        }
        self.words()[NODE].store(node, Release);
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.get(FLAGS) & flag as u64 != 0
    }

    pub(crate) fn set(&self, flag: Flag, on: bool) {
        let flags = &self.words()[FLAGS];
        if on {
            flags.fetch_or(flag as u64, Release);
        } else {
            flags.fetch_and(!(flag as u64), Release);
        }
    }

    /// Clears a flag and returns whether it was set.
    pub(crate) fn take(&self, flag: Flag) -> bool {
        self.has(flag) && self.words()[FLAGS].fetch_and(!(flag as u64), Relaxed) & flag as u64 != 0
    }

    /// Returns the number by which the connection knows the host's file, if the inode is passed
    /// through; see `passthrough`.
    pub(crate) fn backing(&self) -> Option<NonZeroU32> {
        NonZeroU32::new((self.get(FLAGS) >> BACKING_SHIFT) as u32)
    }

    /// Records whether the inode is passed through. Called with its session locked exclusively.
    pub(crate) fn set_backing(&self, backing: Option<NonZeroU32>) {
        let flags = &self.words()[FLAGS];
        match backing {
            Some(number) => flags.fetch_or(u64::from(number.get()) << BACKING_SHIFT, Release),
            None => flags.fetch_and(u64::from(u32::MAX), Release),
        };
    }

    pub(crate) fn mode(&self) -> u32 {
        self.get(MODE) as u32
    }

    pub(crate) fn set_mode(&self, mode: u32) {
        self.put(MODE, mode.into());
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.get(LOOKUPS)
    }

    pub(crate) fn outdated_lookups(&self) -> u64 {
        self.get(OUTDATED)
    }

    pub(crate) fn set_outdated_lookups(&self, count: u64) {
        self.put(OUTDATED, count);
    }

    /// Returns the open files. Pairs with the release in [`count`](Self::count).
    pub(crate) fn uses(&self) -> Uses {
        Uses(self.words()[USES].load(Acquire))
    }

    /// Returns the word that a count changes.
    pub(super) fn counted(&self, count: Count) -> &AtomicU64 {
        &self.words()[counted_word(count)]
    }

    /// Sets the look-ups of an inode that nobody else can reach yet, or that has been forgotten.
    pub(crate) fn set_lookups(&self, lookups: u64) {
        self.put(LOOKUPS, lookups);
    }

    /// Records the cache of the file, by the word in the descriptors of its page frames, and the
    /// size of the file.
    pub(crate) fn set_cache(&self, cache: u64, size: u64) {
        self.put(SIZE, size);
        self.words()[CACHE].store(cache, Release);
    }

    /// Records the size of the file including what is not on the host yet.
    pub(crate) fn set_size(&self, size: u64) {
        self.put(SIZE, size);
    }

    /// Records that the file extends to `end` at least.
    pub(crate) fn grow(&self, end: u64) {
        self.words()[SIZE].fetch_max(end, Relaxed);
    }

    pub(crate) fn set_descriptor(&self, descriptor: RawFd, access: Option<Access>) {
        let access = match access {
            None => 0,
            Some(Access::Read) => 1,
            Some(Access::Write) => 2,
        };
        self.words()[DESCRIPTOR].store(descriptor as u64 | access << 32, Release);
    }

    /// Records that the inode has no descriptor of its own any more.
    pub(crate) fn clear_descriptor(&self) {
        self.words()[DESCRIPTOR].store(u64::MAX, Release);
    }

    /// Records the times that differ from the host's: the modification time that waits for the
    /// data, and the change time shown with the one of the host that it replaces.
    pub(crate) fn set_times(&self, modified: Option<Time>, changed: Option<(Time, Option<Time>)>) {
        let host = changed.and_then(|(_, host)| host);
        let times = [
            (MODIFIED, Flag::Modified, modified),
            (CHANGED, Flag::Changed, changed.map(|(shown, _)| shown)),
            (CHANGED_HOST, Flag::ChangedHost, host),
        ];
        for (word, flag, time) in times {
            if let Some(time) = time {
                self.put_time(word, time);
            }
            if self.has(flag) != time.is_some() {
                self.set(flag, time.is_some());
            }
        }
    }

    fn put_time(&self, word: usize, (seconds, nanoseconds): Time) {
        self.put(word, seconds.cast_unsigned());
        self.put(word + 1, nanoseconds.cast_unsigned());
    }

    /// Records that the version is being replaced.
    pub(crate) fn version_changes(&self) {
        self.set(Flag::VersionChanging, true);
    }

    /// Records the version of the file that the caches know.
    pub(crate) fn set_version(&self, version: Option<RecordedVersion>, by_others: bool) {
        if let Some((changed, modified, size)) = version {
            self.put_time(VERSION, changed);
            self.put_time(VERSION + 2, modified);
            self.put(VERSION + 4, size.cast_unsigned());
        }
        let flags = [(Flag::Version, version.is_some()), (Flag::ByOthers, by_others)];
        for (flag, on) in flags {
            if self.has(flag) != on {
                self.set(flag, on);
            }
        }
        self.set(Flag::VersionChanging, false);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.words()[NODE].store(0, Release);
        self.clear_descriptor();
        self.image.free_record(self.index);
    }
}

impl Image {
    /// Takes a free record; `None` if the image is full.
    pub(crate) fn take_record(self: &Arc<Self>) -> Option<Record> {
        self.take_index().map(|index| Record { image: Arc::clone(self), index })
    }

    /// Returns the node of the record with this index; `None` if it belongs to no inode.
    pub(crate) fn node_of(&self, record: u32) -> Option<u64> {
        let valid = (record as usize) < self.capacity();
        let node = valid.then(|| self.record_words(record)[NODE].load(Acquire))?;
        (node != 0).then_some(node)
    }
}

fn counted_word(count: Count) -> usize {
    match count {
        Count::Lookups(_) => LOOKUPS,
        Count::Opened(_) | Count::Closed(_) => USES,
    }
}
