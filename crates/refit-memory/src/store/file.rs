//! The swap file: an unnamed file, which the kernel deletes when its last descriptor is closed.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::StoreError;
use super::slots::{Slot, Slots};
use crate::PAGE_SIZE;
use parking_lot::{Mutex, MutexGuard};

/// A file for pages that are out.
#[derive(Debug)]
pub struct SwapFile {
    file: fs::File,
    slots: Mutex<Slots>,
}

impl SwapFile {
    /// Creates an unnamed file of at most `bytes` bytes in a directory. It takes disk space only
    /// for its contents.
    ///
    /// # Errors
    /// The directory does not exist, or its file system has no unnamed files.
    pub fn create(directory: &Path, bytes: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(directory)?;
        Ok(Self::new(file, bytes))
    }

    /// Wraps an existing file.
    pub fn new(file: fs::File, bytes: u64) -> Self {
        let pages = u32::try_from(bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX);
        Self { file, slots: Mutex::new(Slots::new(pages)) }
    }

    /// Writes pages, in one piece if possible: all, or none.
    pub(super) fn write(&self, pages: &[&[u8; PAGE_SIZE]]) -> Result<Vec<Slot>, StoreError> {
        let count = u32::try_from(pages.len()).unwrap_or(u32::MAX);
        let taken = {
            let mut slots = self.slots();
            let bytes = offset(slots.most());
            slots.take(count).ok_or(StoreError::Full { bytes })?
        };
        let mut from = 0;
        for run in taken.chunk_by(|one, next| one + 1 == *next) {
            let bytes: Vec<u8> =
                pages[from..from + run.len()].iter().copied().flatten().copied().collect();
            if let Err(source) = self.file.write_all_at(&bytes, offset(run[0])) {
                taken.iter().for_each(|&number| self.free(number));
                return Err(StoreError::Host { what: "write to", source });
            }
            from += run.len();
        }
        let slot = |(number, page): (u32, &&[u8; PAGE_SIZE])| Slot { number, sum: sum(page) };
        Ok(taken.into_iter().zip(pages).map(slot).collect())
    }

    /// Reads consecutive pages from `first` on, and verifies their checksums.
    pub(super) fn read(
        &self,
        first: u32,
        sums: impl Iterator<Item = u32>,
        into: &mut [u8],
    ) -> Result<(), StoreError> {
        let read = self.file.read_exact_at(into, offset(first));
        read.map_err(|source| StoreError::Host { what: "read from", source })?;
        let (pages, _) = into.as_chunks::<PAGE_SIZE>();
        for ((number, page), expected) in (first..).zip(pages).zip(sums) {
            if sum(page) != expected {
                return Err(StoreError::Changed { at: offset(number) });
            }
        }
        Ok(())
    }

    pub(super) fn free(&self, number: u32) {
        self.slots().give(number);
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock()
    }
}

fn offset(number: u32) -> u64 {
    u64::from(number) * PAGE_SIZE as u64
}

fn sum(page: &[u8; PAGE_SIZE]) -> u32 {
    crc32fast::hash(page)
}
