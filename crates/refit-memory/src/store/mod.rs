//! Where pages of anonymous memory go when their frames are taken: to no place at all (pages of zeros), to memory, compressed, or to a
//! swap file.
//!
//! ```text
//! put ──► zeros? ──► room among the compressed, and it shrinks? ──► the swap file, in runs
//! ```
//!
//! Where there is no file, pages that do not shrink stay in memory as they are.
//!
//! A page that was put is a [`Stored`]: whoever has it can read it, and what it takes is free again when the last one drops it. So no
//! reader can meet a place that somebody else has got meanwhile. What comes back from a disk is compared with a checksum: a page
//! that is not what it was is an error, never a page.
//!
//! # Errors
//! [`StoreError`]; a page that cannot be put is in nobody's way, and what was put before stays.

mod file;
mod slots;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::PAGE_SIZE;
pub use file::SwapFile;
use slots::Slot;

/// A page is kept compressed if that saves a quarter of it.
const SHRUNK: usize = PAGE_SIZE / 4 * 3;

/// What stands in the way of a page.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Neither the compressed part nor the swap file has room.
    #[error(
        "the swap store is full ({bytes} bytes); give it more room, or the program more memory"
    )]
    Full {
        /// What it may take.
        bytes: u64,
    },
    /// The host says no.
    #[error("{what} the swap file: {source}; make room on its disk, or see what ails it")]
    Host {
        /// What was tried.
        what: &'static str,
        /// What it says.
        source: io::Error,
    },
    /// The disk has given back something else than it was given.
    #[error("the swap file has changed at byte {at}; its disk is not to be trusted")]
    Changed {
        /// Where.
        at: u64,
    },
}

/// A swap store; several address spaces can share one.
#[derive(Debug)]
pub struct PageStore {
    most_compressed: AtomicU64,
    compressed: AtomicU64,
    pages: [AtomicU64; 3],
    file: Option<SwapFile>,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Pages of zeros.
    pub zeros: u64,
    /// Pages that are compressed.
    pub compressed: u64,
    /// The bytes that those take.
    pub compressed_bytes: u64,
    /// Pages in the swap file.
    pub in_file: u64,
}

#[derive(Debug)]
enum Place {
    Zeros,
    /// A whole page where it does not shrink.
    Compressed(Box<[u8]>),
    File(Slot),
}

/// A page in a store.
#[derive(Debug)]
pub struct Stored {
    store: Arc<PageStore>,
    place: Place,
}

impl PageStore {
    /// A store of so many bytes of compressed pages and, behind them, a swap file.
    pub fn new(most_compressed: u64, file: Option<SwapFile>) -> Arc<Self> {
        Arc::new(Self {
            most_compressed: AtomicU64::new(most_compressed),
            compressed: AtomicU64::new(0),
            pages: Default::default(),
            file,
        })
    }

    /// Puts pages, one after the other, in as few writes as can be. All, or none.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Host`].
    ///
    /// # Panics
    /// `pages` is not a whole number of pages.
    pub fn put(self: &Arc<Self>, pages: &[u8]) -> Result<Vec<Stored>, StoreError> {
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
                // What was compressed is given back as any page is.
                places.into_iter().flatten().for_each(|place| drop(self.stored(place)));
                return Err(error);
            }
        };
        for (at, slot) in left.into_iter().zip(slots) {
            places[at] = Some(Place::File(slot));
        }
        Ok(places.into_iter().flatten().map(|place| self.stored(place)).collect())
    }

    /// Keeps a page in memory as it is, beyond any limit: for who can do nothing else with it.
    pub fn keep(self: &Arc<Self>, page: &[u8; PAGE_SIZE]) -> Stored {
        self.compressed.fetch_add(PAGE_SIZE as u64, Relaxed);
        self.stored(Place::Compressed(page.as_slice().into()))
    }

    /// Allows so many bytes of compressed pages from now on; what is there stays.
    pub fn allow(&self, most_compressed: u64) {
        self.most_compressed.store(most_compressed, Relaxed);
    }

    /// What it holds now.
    pub fn stats(&self) -> StoreStats {
        let [zeros, compressed, in_file] = self.pages.each_ref().map(|count| count.load(Relaxed));
        let compressed_bytes = self.compressed.load(Relaxed);
        StoreStats { zeros, compressed, compressed_bytes, in_file }
    }

    /// A place for a page that takes none in the file.
    fn small(&self, page: &[u8; PAGE_SIZE]) -> Option<Place> {
        if page.iter().all(|&byte| byte == 0) {
            return Some(Place::Zeros);
        }
        // Cheap to ask, and a wrong answer costs a compression in vain, or a write.
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

    fn stored(self: &Arc<Self>, place: Place) -> Stored {
        self.pages[place.kind()].fetch_add(1, Relaxed);
        Stored { store: Arc::clone(self), place }
    }
}

impl Place {
    fn kind(&self) -> usize {
        match self {
            Self::Zeros => 0,
            Self::Compressed(_) => 1,
            Self::File(_) => 2,
        }
    }
}

impl Stored {
    /// Reads pages that were put, one after the other, in as few reads as can be.
    ///
    /// # Errors
    /// [`StoreError::Host`], [`StoreError::Changed`]; what was read until then stands in `into`.
    ///
    /// # Panics
    /// `into` is not as many pages.
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

    /// How many pages one read brings: this one, and those of `next` that follow it in the file.
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
            (Place::Compressed(bytes), _) if bytes.len() == PAGE_SIZE => {
                into.copy_from_slice(bytes);
                Ok(())
            }
            (Place::Compressed(bytes), _) => {
                // In memory nothing changes but by a fault of ours.
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

impl Drop for Stored {
    fn drop(&mut self) {
        self.store.pages[self.place.kind()].fetch_sub(1, Relaxed);
        match &self.place {
            Place::Zeros => {}
            Place::Compressed(bytes) => {
                self.store.compressed.fetch_sub(bytes.len() as u64, Relaxed);
            }
            Place::File(slot) => {
                if let Some(file) = &self.store.file {
                    file.free(slot.number);
                }
            }
        }
    }
}
