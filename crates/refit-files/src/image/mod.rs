//! The image of a mount: what another server needs to continue it, in a memfd that is up to date at
//! every instant.
//!
//! A server can end at any instant, if it is killed or aborts. The kernel keeps the mount for as
//! long as some process has its connection open, and the processes that use it wait. The kernel
//! does not ask again for what it knows of the server's state (numbers of inodes, look-ups that it
//! has not forgotten, open files), so the next server needs it. The server therefore keeps this
//! state in the image in the first place:
//!
//! | part | contents |
//! |---|---|
//! | header | the version of the layout, the connection, the negotiation with the kernel |
//! | description | the options of the mount, in the words of its owner |
//! | requests | for each request that is being executed, what it has done so far ([`request`]) |
//! | records | the inodes that the kernel knows ([`record`]) |
//!
//! A word is written with one store, and whatever consists of several words says itself when it is
//! valid. Descriptors are recorded by their numbers, which are those of the process that has the
//! image: another process takes them over from that one ([`refit_sys::descriptors`]).
//!
//! The words of an image that was written by another process may have any value: everything that is
//! read from it is checked (`adopt`).

pub(crate) mod header;
pub(crate) mod layout;
pub(crate) mod record;
pub(crate) mod recorded;
pub(crate) mod request;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod tests;

use layout::{FIRST_RECORD, FIRST_SLOT, RECORD_WORDS, SLOT_WORDS};
use parking_lot::Mutex;
use refit_sys::word_table::WordTable;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The maximum number of records. Each inode needs a descriptor, too.
const MAX_RECORDS: u64 = 1 << 22;

/// The image of one mount.
#[derive(Debug)]
pub(crate) struct Image {
    table: WordTable,
    free: Mutex<FreeRecords>,
}

/// The records that belong to no inode.
#[derive(Debug, Default)]
struct FreeRecords {
    freed: Vec<u32>,
    /// Records from this index on have never been used.
    fresh: u32,
}

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The memfd cannot be mapped.
    #[error("the image cannot be mapped: {0}")]
    NotMapped(#[from] io::Error),
    /// The memfd is not an image, or it was damaged.
    #[error("it is not the image of a mount, or it is damaged ({0})")]
    Damaged(&'static str),
    /// The image was written by another version of refit, whose images this one cannot read.
    #[error(
        "the image has version {found}, and this refit reads versions {oldest} to {newest}; use a \
         refit that is as new as the one that serves the mount"
    )]
    Version {
        /// The version of the image.
        found: u64,
        /// The oldest version that can be read.
        oldest: u64,
        /// The newest version that can be read.
        newest: u64,
    },
}

impl Image {
    /// Creates an image with room for the inodes of as many descriptors.
    pub(crate) fn new(descriptors: u64) -> io::Result<Arc<Self>> {
        let records = descriptors.clamp(1, MAX_RECORDS) as usize;
        let table = WordTable::new(c"refit-mount", FIRST_RECORD + records * RECORD_WORDS)?;
        let image = Self { table, free: Mutex::default() };
        image.begin_header(records as u64);
        Ok(Arc::new(image))
    }

    /// Opens the image of another process for reading.
    pub(crate) fn open(memfd: OwnedFd) -> Result<Self, ImageError> {
        let image = Self { table: WordTable::open(memfd)?, free: Mutex::default() };
        image.check_header()?;
        Ok(image)
    }

    fn words(&self) -> &[AtomicU64] {
        self.table.words()
    }

    /// Returns the number of records that the image has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.words().len().saturating_sub(FIRST_RECORD) / RECORD_WORDS
    }

    /// Returns the words of the record with this index.
    pub(crate) fn record_words(&self, index: u32) -> &[AtomicU64; RECORD_WORDS] {
        let (records, _) = self.words()[FIRST_RECORD..].as_chunks();
        &records[index as usize]
    }

    /// Returns the words of the slot with this index.
    pub(crate) fn slot_words(&self, slot: u32) -> &[AtomicU64; SLOT_WORDS] {
        let (slots, _) = self.words()[FIRST_SLOT..FIRST_RECORD].as_chunks();
        &slots[slot as usize]
    }

    /// Takes the index of a free record; `None` if the image is full.
    fn take_index(&self) -> Option<u32> {
        let mut free = self.free.lock();
        free.freed.pop().or_else(|| {
            let fresh = free.fresh;
            let found = (fresh as usize) < self.capacity();
            found.then(|| {
                free.fresh += 1;
                self.set_records_used(u64::from(free.fresh));
                fresh
            })
        })
    }

    /// Makes the records from `used` on the free ones, besides those of `freed`, in an image whose
    /// records were copied from another one.
    pub(crate) fn records_taken(&self, used: u32, freed: Vec<u32>) {
        self.set_records_used(used.into());
        *self.free.lock() = FreeRecords { freed, fresh: used };
    }

    pub(crate) fn free_record(&self, index: u32) {
        self.free.lock().freed.push(index);
    }
}

impl AsFd for Image {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
