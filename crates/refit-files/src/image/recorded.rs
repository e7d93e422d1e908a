//! The record of an inode in the image of another server.

use super::Image;
use super::layout::RECORD_WORDS as WORDS;
use super::record::{
    BACKING_SHIFT, CACHE, CHANGED, CHANGED_HOST, DESCRIPTOR, DEVICE, FLAGS, Flag, LOOKUPS, MODE,
    MODIFIED, NODE, NUMBER, OUTDATED, Record, RecordedVersion, SIZE, USES, Unfinished, VERSION,
};
use crate::values::{Access, HostKey, Time};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The words of a record, as they were at one time.
///
/// While the other server runs, it may change the record meanwhile, so the words need not belong
/// together. Those of a record that has the same words later are those of that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedInode {
    words: [u64; WORDS],
}

impl RecordedInode {
    /// Reads the record with this index; `None` if no inode has it.
    pub(crate) fn read(image: &Image, index: u32) -> Option<Self> {
        let shared = image.record_words(index);
        let node = shared[NODE].load(Acquire);
        (node != 0).then(|| {
            let mut words = std::array::from_fn(|word| shared[word].load(Relaxed));
            words[NODE] = node;
            Self { words }
        })
    }

    /// Restores a count of this inode that was being changed when the server ended.
    pub(crate) fn restore(&mut self, unfinished: Unfinished) {
        match unfinished {
            Unfinished::Lookups { before, .. } => self.words[LOOKUPS] = before,
            Unfinished::Uses { before, .. } => self.words[USES] = before,
        }
    }

    pub(crate) fn node(&self) -> u64 {
        self.words[NODE]
    }

    pub(crate) fn key(&self) -> HostKey {
        HostKey { device: self.words[DEVICE], number: self.words[NUMBER] }
    }

    fn mode(&self) -> u32 {
        self.words[MODE] as u32
    }

    /// Returns the descriptor of the inode; `None` if it had none any more.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        RawFd::try_from(self.words[DESCRIPTOR] & u64::from(u32::MAX)).ok()
    }

    /// Returns the access for which the descriptor is open; `None` for `O_PATH`.
    pub(crate) fn access(&self) -> Option<Access> {
        match self.words[DESCRIPTOR] >> 32 {
            1 => Some(Access::Read),
            2 => Some(Access::Write),
            _ => None,
        }
    }

    /// Returns whether the descriptor is the one that `before` has: that inode is kept in existence
    /// by it, so it is the same one.
    pub(crate) fn has_descriptor_of(&self, before: &Self) -> bool {
        [DESCRIPTOR, DEVICE, NUMBER].iter().all(|&word| self.words[word] == before.words[word])
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.words[LOOKUPS]
    }

    /// Returns the open files.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> super::record::Uses {
        super::record::Uses::from_word(self.words[USES])
    }

    /// Returns the cache of the file, by the word in the descriptors of its page frames; 0 if it
    /// has none.
    pub(crate) fn cache(&self) -> u64 {
        self.words[CACHE]
    }

    pub(crate) fn size(&self) -> u64 {
        self.words[SIZE]
    }

    /// Returns the modification time that waits for the data.
    pub(crate) fn modified(&self) -> Option<Time> {
        self.has(Flag::Modified).then(|| self.time(MODIFIED))
    }

    /// Returns the change time shown, with the one of the host that it replaces.
    pub(crate) fn changed(&self) -> Option<(Time, Option<Time>)> {
        let host = self.has(Flag::ChangedHost).then(|| self.time(CHANGED_HOST));
        self.has(Flag::Changed).then(|| (self.time(CHANGED), host))
    }

    /// Returns the version that the caches knew; `None` if it is not known, or was being replaced.
    pub(crate) fn version(&self) -> Option<RecordedVersion> {
        let known = self.has(Flag::Version) && !self.has(Flag::VersionChanging);
        let size = self.words[VERSION + 4].cast_signed();
        known.then(|| (self.time(VERSION), self.time(VERSION + 2), size))
    }

    /// Returns whether a change by others was found.
    pub(crate) fn by_others(&self) -> bool {
        self.has(Flag::ByOthers)
    }

    fn has(&self, flag: Flag) -> bool {
        self.words[FLAGS] & flag as u64 != 0
    }

    fn time(&self, word: usize) -> Time {
        (self.words[word].cast_signed(), self.words[word + 1].cast_signed())
    }

    /// Makes `record` the continuation of this one, without its descriptor, cache and version.
    pub(crate) fn continue_in(&self, record: &Record) {
        let backing = u64::from(u32::MAX) << BACKING_SHIFT;
        let kept = [Flag::StaleInKernel, Flag::Gone, Flag::PagesInKernel, Flag::Opened];
        let kept = kept.into_iter().fold(backing, |all, flag| all | flag as u64);
        let flags = self.words[FLAGS] & kept;
        record.begin(self.node(), self.key(), self.mode(), self.has(Flag::Gone));
        record.put(FLAGS, flags);
        for word in [LOOKUPS, OUTDATED, USES] {
            record.put(word, self.words[word]);
        }
        record.set_times(self.modified(), self.changed());
    }
}
