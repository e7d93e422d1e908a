//! The store for evicted pages of anonymous memory: pages of zeros take no space, others are
//! compressed in memory or written to a swap file.
//!
//! ```text
//! put ──► zeros? ──► room among the compressed, and it shrinks? ──► the swap file, in runs
//! ```
//!
//! Without a file, pages that do not shrink stay in memory uncompressed.
//!
//! A page that was put is a [`StoredPage`]: its holder can read it, and its space is freed when the
//! last holder drops it. So the space of a page is given to no other page while the page can be
//! read. Pages that are read from the swap file are verified by a checksum: if the contents differ,
//! the read fails, and returns no page.
//!
//! # Errors
//! [`StoreError`]. After a failed put none of its pages is stored, and pages that were put before
//! stay.

mod error;
mod file;
mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::PAGE_SIZE;
pub use error::StoreError;
pub use file::SwapFile;
use slots::Slot;

/// A page is kept compressed if that saves a quarter of it.
const SHRUNK: usize = PAGE_SIZE / 4 * 3;

/// A swap store, which several address spaces can share.
#[derive(Debug)]
pub struct PageStore {
    most_compressed: AtomicU64,
    compressed: AtomicU64,
    pages: [AtomicU64; 3],
    /// Number of pages for which there was no other place ([`keep`](Self::keep)).
    kept: AtomicU64,
    file: Option<SwapFile>,
}

/// The contents of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of pages of zeros.
    pub zeros: u64,
    /// Number of compressed pages.
    pub compressed: u64,
    /// The bytes that those take.
    pub compressed_bytes: u64,
    /// Number of pages in the swap file.
    pub in_file: u64,
}

#[derive(Debug)]
enum Place {
    Zeros,
    /// A whole page if it does not shrink.
    Compressed(Box<[u8]>),
    /// A whole page that the store did not accept.
    Kept(Box<[u8]>),
    File(Slot),
}

/// A page in a store.
#[derive(Debug)]
pub struct StoredPage {
    store: Arc<PageStore>,
    place: Place,
}

impl PageStore {
    /// Creates a store of at most `most_compressed` bytes of compressed pages and, beyond those, a
    /// swap file.
    pub fn new(most_compressed: u64, file: Option<SwapFile>) -> Arc<Self> {
        Arc::new(Self {
            most_compressed: AtomicU64::new(most_compressed),
            compressed: AtomicU64::new(0),
            pages: Default::default(),
            kept: AtomicU64::new(0),
            file,
        })
    }

    /// Puts consecutive pages, in as few writes as possible: all, or none.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Host`].
    ///
    /// # Panics
    /// If `pages` is not a whole number of pages.
    pub fn put(self: &Arc<Self>, pages: &[u8]) -> Result<Vec<StoredPage>, StoreError> {
        let (pages, rest) = pages.as_chunks::<PAGE_SIZE>();
        assert!(rest.is_empty(), "whole pages");
        let mut places: Vec<Option<Place>> = pages.iter().map(|page| self.small(page)).collect();
        let left: Vec<_> = (0..pages.len()).filter(|&at| places[at].is_none()).collect();
        let written = match &self.file {
            _ if left.is_empty() => Ok(Vec::new()),
            Some(file) => file.write(&left.iter().map(|&at| &pages[at]).collect::<Vec<_>>()),
            None => Err(StoreError::Full { bytes: self.most_compressed.load(Relaxed) }),
        };
        let slots = match written {
            Ok(slots) => slots,
            Err(error) => {
                // Compressed pages are freed as any page is.
                places.into_iter().flatten().for_each(|place| drop(self.stored(place)));
                return Err(error);
            }
        };
        for (at, slot) in left.into_iter().zip(slots) {
            places[at] = Some(Place::File(slot));
        }
        Ok(places.into_iter().flatten().map(|place| self.stored(place)).collect())
    }

    /// Keeps a page in memory uncompressed, beyond any limit: for a caller that has no other place
    /// for it.
    pub fn keep(self: &Arc<Self>, page: &[u8; PAGE_SIZE]) -> StoredPage {
        self.compressed.fetch_add(PAGE_SIZE as u64, Relaxed);
        self.kept.fetch_add(1, Relaxed);
        self.stored(Place::Kept(page.as_slice().into()))
    }

    /// Returns whether pages are kept.
    pub fn keeps_any(&self) -> bool {
        self.kept.load(Relaxed) > 0
    }

    /// Sets the limit of bytes of compressed pages; existing ones stay.
    pub fn allow(&self, most_compressed: u64) {
        self.most_compressed.store(most_compressed, Relaxed);
    }

    /// Returns the current contents.
    pub fn stats(&self) -> StoreStats {
        let [zeros, compressed, in_file] = self.pages.each_ref().map(|count| count.load(Relaxed));
        let compressed_bytes = self.compressed.load(Relaxed);
        StoreStats { zeros, compressed, compressed_bytes, in_file }
    }

    /// Returns a place for a page that needs none in the file.
    fn small(&self, page: &[u8; PAGE_SIZE]) -> Option<Place> {
        if page.iter().all(|&byte| byte == 0) {
            return Some(Place::Zeros);
        }
        // Cheap to check; a wrong answer costs a useless compression, or a write.
        let most = self.most_compressed.load(Relaxed);
        if self.compressed.load(Relaxed) >= most {
            return None;
        }
        let mut bytes = lz4_flex::compress(page);
        if bytes.len() > SHRUNK {
            if self.file.is_some() {
                return None;
            }
            bytes = page.to_vec();
        }
        let size = bytes.len() as u64;
        let more = |used: u64| Some(used + size).filter(|&all| all <= most);
        let fits = self.compressed.fetch_update(Relaxed, Relaxed, more).is_ok();
        fits.then(|| Place::Compressed(bytes.into()))
    }

    fn stored(self: &Arc<Self>, place: Place) -> StoredPage {
        self.pages[place.kind()].fetch_add(1, Relaxed);
        StoredPage { store: Arc::clone(self), place }
    }
}

impl Place {
    fn kind(&self) -> usize {
        match self {
            Self::Zeros => 0,
            Self::Compressed(_) | Self::Kept(_) => 1,
            Self::File(_) => 2,
        }
    }
}

impl StoredPage {
    /// Returns whether the store did not accept it.
    pub fn is_kept(&self) -> bool {
        matches!(self.place, Place::Kept(_))
    }

    /// Reads pages that were put, in order, in as few reads as possible.
    ///
    /// # Errors
    /// [`StoreError::Host`], [`StoreError::Changed`]; `into` holds what was read until then.
    ///
    /// # Panics
    /// If `into` does not have the size of that many pages.
    pub fn read(pages: &[Arc<Self>], into: &mut [u8]) -> Result<(), StoreError> {
        assert_eq!(pages.len() * PAGE_SIZE, into.len(), "as many pages");
        let mut from = 0;
        while from < pages.len() {
            let run = &pages[from..from + pages[from].run(&pages[from + 1..])];
            let place = &mut into[from * PAGE_SIZE..(from + run.len()) * PAGE_SIZE];
            run[0].read_run(run, place)?;
            from += run.len();
        }
        Ok(())
    }

    /// Returns the number of pages that one read brings: this one, and those of `next` that follow
    /// it in the file.
    fn run(&self, next: &[Arc<Self>]) -> usize {
        let Place::File(slot) = &self.place else { return 1 };
        let follows = |(n, one): &(usize, &Arc<Self>)| {
            let place = match &one.place {
                Place::File(other) => other.number == slot.number + 1 + *n as u32,
                _ => false,
            };
            place && Arc::ptr_eq(&one.store, &self.store)
        };
        1 + next.iter().enumerate().take_while(follows).count()
    }

    fn read_run(&self, run: &[Arc<Self>], into: &mut [u8]) -> Result<(), StoreError> {
        match (&self.place, &self.store.file) {
            (Place::File(first), Some(file)) => {
                let sums = run.iter().map(|one| match &one.place {
                    Place::File(slot) => slot.sum,
                    _ => 0,
                });
                file.read(first.number, sums, into)
            }
            (Place::Kept(bytes) | Place::Compressed(bytes), _) if bytes.len() == PAGE_SIZE => {
                into.copy_from_slice(bytes);
                Ok(())
            }
            (Place::Compressed(bytes), _) => {
                // Memory changes only by a defect of this program.
                let size = lz4_flex::decompress_into(bytes, into);
                assert_eq!(size.ok(), Some(PAGE_SIZE), "a page that was compressed here");
                Ok(())
            }
            _ => {
                into.fill(0);
                Ok(())
            }
        }
    }
}

impl Drop for StoredPage {
    fn drop(&mut self) {
        self.store.pages[self.place.kind()].fetch_sub(1, Relaxed);
        match &self.place {
            Place::Zeros => {}
            Place::Compressed(bytes) => {
                self.store.compressed.fetch_sub(bytes.len() as u64, Relaxed);
            }
            Place::Kept(bytes) => {
                self.store.compressed.fetch_sub(bytes.len() as u64, Relaxed);
                self.store.kept.fetch_sub(1, Relaxed);
            }
            Place::File(slot) => {
                if let Some(file) = &self.store.file {
                    file.free(slot.number);
                }
            }
        }
    }
}
