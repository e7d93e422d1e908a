//! The header of an image: its version, the connection to the kernel, and what was negotiated.

use super::layout::{self, DESCRIPTION, HEADER};
use super::{Image, ImageError};
use refit_sys::word_table;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The first word of every image: `refitimg`.
const MAGIC: u64 = u64::from_le_bytes(*b"refitimg");
/// The version of the layout that this version of refit writes. It reads this one only; a version
/// that changes the layout reads the one before, too.
pub(crate) const VERSION: u64 = 1;

/// The words of the header.
const MAGIC_WORD: usize = 0;
const VERSION_WORD: usize = 1;
const RECORD_WORDS: usize = 2;
const RECORDS: usize = 3;
const SLOT_WORDS: usize = 4;
const SLOTS: usize = 5;
const USED: usize = 6;
const NEXT_FOREIGN: usize = 7;
const DEVICE: usize = 8;
const FRAMES: usize = 9;
const FRAME_DESCRIPTORS: usize = 10;
const MOUNT_ID: usize = 11;
const MOUNT_ID_UNIQUE: usize = 12;
const FILE_SYSTEM: usize = 13;
const DESCRIPTION_LENGTH: usize = 14;
const LOCKS: usize = 16;
const MAX_LOCKS: usize = 127;
const INIT: usize = 160;
const REPLY: usize = 256;
/// The maximum length of a message of the negotiation, in bytes.
const MAX_MESSAGE: usize = 512;
/// The threads whose open was refused.
const REFUSED: usize = 512;
/// The maximum number of these threads.
pub(crate) const MAX_REFUSED: usize = 256;

/// Size of half of the description.
const DESCRIPTION_HALF: usize = DESCRIPTION / 2;

/// Returns the half in which the description is, and its length, which its word says.
fn halves(word: u64) -> (usize, usize) {
    let length = (word & u64::from(u32::MAX)) as usize;
    ((word >> 32 & 1) as usize, length.min(DESCRIPTION_HALF * 8))
}

/// The identity of a mount in the kernel's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountIdentity {
    pub(crate) id: u64,
    /// Whether the ID is never reused.
    pub(crate) unique: bool,
    /// The device number of the file system.
    pub(crate) file_system: (u32, u32),
}

/// The messages by which the kernel and the server have agreed on the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Negotiation {
    /// The kernel's `FUSE_INIT`.
    pub(crate) request: Vec<u8>,
    /// The server's reply.
    pub(crate) reply: Vec<u8>,
}

impl Image {
    fn get(&self, word: usize) -> u64 {
        self.words()[word].load(Acquire)
    }

    fn put(&self, word: usize, value: u64) {
        self.words()[word].store(value, Release);
    }

    pub(super) fn begin_header(&self, records: u64) {
        self.put(VERSION_WORD, VERSION);
        self.put(RECORD_WORDS, layout::RECORD_WORDS as u64);
        self.put(RECORDS, records);
        self.put(SLOT_WORDS, layout::SLOT_WORDS as u64);
        self.put(SLOTS, layout::SLOTS as u64);
        for word in [DEVICE, FRAMES, FRAME_DESCRIPTORS] {
            self.put_descriptor(word, None);
        }
        self.put(MAGIC_WORD, MAGIC);
    }

    pub(super) fn check_header(&self) -> Result<(), ImageError> {
        if self.words().len() < HEADER || self.get(MAGIC_WORD) != MAGIC {
            return Err(ImageError::Damaged("it does not begin like one"));
        }
        let found = self.get(VERSION_WORD);
        if found != VERSION {
            return Err(ImageError::Version { found, oldest: VERSION, newest: VERSION });
        }
        let layout = [RECORD_WORDS, SLOT_WORDS, SLOTS].map(|word| self.get(word));
        if layout != [layout::RECORD_WORDS, layout::SLOT_WORDS, layout::SLOTS].map(|n| n as u64) {
            return Err(ImageError::Damaged("its layout is not that of its version"));
        }
        if self.get(RECORDS) != self.capacity() as u64 || self.get(USED) > self.get(RECORDS) {
            return Err(ImageError::Damaged("it has another length than its header says"));
        }
        Ok(())
    }

    /// Returns the number of records that have ever been used, which come first.
    pub(crate) fn records_used(&self) -> u32 {
        self.get(USED) as u32
    }

    pub(super) fn set_records_used(&self, used: u64) {
        self.put(USED, used);
    }

    /// Returns the number of the next inode that gets one of the mount's own numbers.
    pub(crate) fn next_foreign(&self) -> u64 {
        self.get(NEXT_FOREIGN)
    }

    pub(crate) fn set_next_foreign(&self, number: u64) {
        self.put(NEXT_FOREIGN, number);
    }

    fn put_descriptor(&self, word: usize, number: Option<RawFd>) {
        self.put(word, number.map_or(u64::MAX, |number| number as u64));
    }

    fn descriptor(&self, word: usize) -> Option<RawFd> {
        RawFd::try_from(self.get(word)).ok()
    }

    /// Returns the connection to the kernel.
    pub(crate) fn device(&self) -> Option<RawFd> {
        self.descriptor(DEVICE)
    }

    pub(crate) fn set_device(&self, device: RawFd) {
        self.put_descriptor(DEVICE, Some(device));
    }

    /// Returns the memfds of the page frames and of their descriptors.
    pub(crate) fn frames(&self) -> Option<[RawFd; 2]> {
        Some([self.descriptor(FRAMES)?, self.descriptor(FRAME_DESCRIPTORS)?])
    }

    pub(crate) fn set_frames(&self, [frames, descriptors]: [RawFd; 2]) {
        self.put_descriptor(FRAME_DESCRIPTORS, Some(descriptors));
        self.put_descriptor(FRAMES, Some(frames));
    }

    /// Returns the descriptors that hold the locks of the source.
    pub(crate) fn locks(&self) -> Vec<RawFd> {
        let count = (self.get(LOCKS) as usize).min(MAX_LOCKS);
        (1..=count).filter_map(|lock| self.descriptor(LOCKS + lock)).collect()
    }

    /// Records the descriptors that hold the locks of the source, the source's own first. Locks
    /// beyond the 127th directory above it are not kept.
    pub(crate) fn set_locks(&self, locks: &[RawFd]) {
        let locks = &locks[..locks.len().min(MAX_LOCKS)];
        for (word, lock) in (LOCKS + 1..).zip(locks) {
            self.put_descriptor(word, Some(*lock));
        }
        self.put(LOCKS, locks.len() as u64);
    }

    /// Returns the identity of the mount; `None` before it was attached.
    pub(crate) fn mount(&self) -> Option<MountIdentity> {
        let file_system = self.get(FILE_SYSTEM);
        let id = self.get(MOUNT_ID);
        let unique = self.get(MOUNT_ID_UNIQUE) != 0;
        let file_system = ((file_system >> 32) as u32, file_system as u32);
        (id != 0).then_some(MountIdentity { id, unique, file_system })
    }

    pub(crate) fn set_mount(&self, mount: MountIdentity) {
        let (major, minor) = mount.file_system;
        self.put(FILE_SYSTEM, u64::from(major) << 32 | u64::from(minor));
        self.put(MOUNT_ID_UNIQUE, mount.unique.into());
        self.put(MOUNT_ID, mount.id);
    }

    /// Returns the messages of the negotiation; `None` before it.
    pub(crate) fn negotiation(&self) -> Option<Negotiation> {
        let request = self.bytes(INIT, MAX_MESSAGE);
        let reply = self.bytes(REPLY, MAX_MESSAGE);
        (!request.is_empty() && !reply.is_empty()).then_some(Negotiation { request, reply })
    }

    /// Records the messages of the negotiation. Returns whether there is room for them.
    pub(crate) fn set_negotiation(&self, negotiation: &Negotiation) -> bool {
        self.set_bytes(INIT, MAX_MESSAGE, &negotiation.request)
            && self.set_bytes(REPLY, MAX_MESSAGE, &negotiation.reply)
    }

    /// Returns a thread whose open was refused; 0 if there is none in this place.
    pub(crate) fn refused(&self, place: usize) -> u32 {
        self.get(REFUSED + place) as u32
    }

    pub(crate) fn set_refused(&self, place: usize, thread: u32) {
        self.put(REFUSED + place, thread.into());
    }

    /// Returns the options of the mount, in the words of its owner.
    pub(crate) fn description(&self) -> Vec<u8> {
        let (half, length) = halves(self.get(DESCRIPTION_LENGTH));
        self.read_bytes(HEADER + half * DESCRIPTION_HALF, length)
    }

    /// Records the options of the mount. Returns whether there is room for them. One of the old and
    /// the new options is there at every instant: they are in one half of the part each, and the
    /// word with the length says in which one.
    pub(crate) fn set_description(&self, description: &[u8]) -> bool {
        if description.len() > DESCRIPTION_HALF * 8 {
            return false;
        }
        let half = match self.get(DESCRIPTION_LENGTH) {
            0 => 0,
            word => 1 - halves(word).0,
        };
        self.write_bytes(HEADER + half * DESCRIPTION_HALF, description);
        self.put(DESCRIPTION_LENGTH, (half as u64) << 32 | description.len() as u64);
        true
    }

    /// Returns the bytes of a message, whose length precedes them.
    fn bytes(&self, word: usize, at_most: usize) -> Vec<u8> {
        self.read_bytes(word + 1, (self.get(word) as usize).min(at_most))
    }

    fn set_bytes(&self, word: usize, at_most: usize, bytes: &[u8]) -> bool {
        if bytes.len() > at_most {
            return false;
        }
        self.write_bytes(word + 1, bytes);
        self.put(word, bytes.len() as u64);
        true
    }

    fn read_bytes(&self, word: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        word_table::read_bytes(&self.words()[word..], &mut bytes);
        bytes
    }

    fn write_bytes(&self, word: usize, bytes: &[u8]) {
        word_table::write_bytes(&self.words()[word..], bytes);
    }
}
