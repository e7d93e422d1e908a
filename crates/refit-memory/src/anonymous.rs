//! The representative behind a cache of anonymous memory: no file, but pages in a store (Hui 2000,
//! §3.2: FR of computational storage).
//!
//! A page that was never written back is not stored, and reads as zeros. A page that is written
//! back replaces the stored one; a reader that has already found the old one can still read all of
//! it (`store/mod.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use refit_objects::{Choices, Name, State, TransferError};
use refit_sys::memory::PAGE_SIZE_U64;

use crate::PAGE_SIZE;
use crate::disk::DiskWork;
use crate::fr::{FileRepresentative, FileRepresentativeInterface, FileRepresentativeRef};
use crate::store::{PageStore, StoreError, StoredPage};

/// The name of the implementation.
const SWAPPED: &str = "swapped";

/// The pages of anonymous memory that are not in their program, by number; its representative is
/// made from them.
#[derive(Clone, Debug)]
pub struct AnonymousPages(Arc<Shared>);

impl AnonymousPages {
    /// Creates `bytes` of memory, all zeros, whose pages go to `store`.
    pub fn new(store: Arc<PageStore>, bytes: u64) -> Self {
        Self(Arc::new(Shared {
            store,
            contents: Mutex::new(Contents { pages: BTreeMap::new(), size: bytes }),
        }))
    }

    /// Returns a copy of these pages, which changes independently from now on. No contents are
    /// copied.
    #[must_use]
    pub fn fork(&self) -> Self {
        let contents = self.0.contents();
        let copy = Contents { pages: contents.pages.clone(), size: contents.size };
        Self(Arc::new(Shared { store: Arc::clone(&self.0.store), contents: Mutex::new(copy) }))
    }

    /// Removes the pages of a range and returns them, with their numbers. They read as zeros here
    /// afterwards.
    #[must_use]
    pub fn split_off(&self, pages: Range<u64>) -> Self {
        let mut contents = self.0.contents();
        let mut apart = contents.pages.split_off(&pages.start);
        let mut behind = apart.split_off(&pages.end);
        contents.pages.append(&mut behind);
        let taken = Contents { pages: apart, size: contents.size };
        drop(contents);
        Self(Arc::new(Shared { store: Arc::clone(&self.0.store), contents: Mutex::new(taken) }))
    }

    /// Keeps a page in memory uncompressed, beyond any limit of the store, because there is nowhere
    /// else to put it.
    pub fn keep(&self, page: u64, bytes: &[u8; PAGE_SIZE]) {
        let kept = Arc::new(self.0.store.keep(bytes));
        drop(self.0.contents().pages.insert(page, kept));
    }

    /// Returns the pages that are kept, with their numbers.
    pub fn kept(&self) -> Vec<(u64, Arc<StoredPage>)> {
        let contents = self.0.contents();
        let kept = contents.pages.iter().filter(|(_, page)| page.is_kept());
        kept.map(|(&number, page)| (number, Arc::clone(page))).collect()
    }

    /// Returns the number of pages that are stored; all others are zeros that were never written.
    pub fn len(&self) -> usize {
        self.0.contents().pages.len()
    }

    /// Returns the numbers of the stored pages, in order.
    pub fn numbers(&self) -> Vec<u64> {
        self.0.contents().pages.keys().copied().collect()
    }

    /// Returns whether no page is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Creates the representative of these pages.
    pub fn representative(&self, name: impl Into<Name>) -> FileRepresentativeRef {
        let (memory, rep) = (self.clone(), FileRepresentativeInterface::rep);
        let choices = Choices::new().with(SWAPPED, rep, move || memory.clone());
        choices.create(name, SWAPPED).expect("it is the one choice")
    }
}

/// Creates the representative of `bytes` of anonymous memory, whose pages go to `store`.
pub fn create_anonymous(
    name: impl Into<Name>,
    store: Arc<PageStore>,
    bytes: u64,
) -> FileRepresentativeRef {
    AnonymousPages::new(store, bytes).representative(name)
}

#[derive(Debug)]
struct Shared {
    store: Arc<PageStore>,
    contents: Mutex<Contents>,
}

#[derive(Debug)]
struct Contents {
    /// Stored pages by number. All others are zeros.
    pages: BTreeMap<u64, Arc<StoredPage>>,
    size: u64,
}

impl Shared {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        // Each change is one operation on the map, so a panic cannot leave it half-changed.
        self.contents.lock()
    }

    /// Reads consecutive pages from the store.
    fn load(&self, first: u64, into: &mut [u8]) -> Result<(), StoreError> {
        let (pages, _) = into.as_chunks::<PAGE_SIZE>();
        let wanted = first..first + pages.len() as u64;
        let found: Vec<(u64, Arc<StoredPage>)> = {
            let contents = self.contents();
            let there = contents.pages.range(wanted);
            there.map(|(&number, page)| (number, Arc::clone(page))).collect()
        };
        if found.len() < pages.len() {
            into.fill(0);
        }
        for run in found.chunk_by(|one, next| one.0 + 1 == next.0) {
            let from = (run[0].0 - first) as usize * PAGE_SIZE;
            let run: Vec<_> = run.iter().map(|(_, page)| Arc::clone(page)).collect();
            StoredPage::read(&run, &mut into[from..from + run.len() * PAGE_SIZE])?;
        }
        Ok(())
    }

    fn save(&self, first: u64, pages: &[u8], end: u64) -> Result<(), StoreError> {
        let stored = self.store.put(pages)?;
        let mut replaced = Vec::with_capacity(stored.len());
        let mut contents = self.contents();
        for (number, page) in (first..).zip(stored) {
            replaced.extend(contents.pages.insert(number, Arc::new(page)));
        }
        contents.size = contents.size.max(end);
        drop(contents);
        // Outside of the lock, since the store has its own.
        drop(replaced);
        Ok(())
    }
}

impl FileRepresentative for AnonymousPages {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        let left = self.0.contents().size.saturating_sub(offset);
        let length = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(0);
        }
        let (first, before) = (offset / PAGE_SIZE_U64, (offset % PAGE_SIZE_U64) as usize);
        let whole = (before + length).next_multiple_of(PAGE_SIZE);
        if before == 0 && whole == length {
            self.0.load(first, &mut buf[..length]).map_err(errno)?;
            return Ok(length);
        }
        let mut pages = vec![0; whole];
        self.0.load(first, &mut pages).map_err(errno)?;
        buf[..length].copy_from_slice(&pages[before..before + length]);
        Ok(length)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        let (first, before) = (offset / PAGE_SIZE_U64, (offset % PAGE_SIZE_U64) as usize);
        let (whole, end) =
            ((before + data.len()).next_multiple_of(PAGE_SIZE), offset + data.len() as u64);
        if before == 0 && whole == data.len() {
            return self.0.save(first, data, end).map_err(errno);
        }
        let mut pages = vec![0; whole];
        self.0.load(first, &mut pages).map_err(errno)?;
        pages[before..before + data.len()].copy_from_slice(data);
        self.0.save(first, &pages, end).map_err(errno)
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        let (last, rest) = (size / PAGE_SIZE_U64, (size % PAGE_SIZE_U64) as usize);
        if rest > 0 && size < self.0.contents().size {
            // The part of the last page beyond the new size reads as zeros if the memory grows
            // again.
            let mut page = vec![0; PAGE_SIZE];
            self.0.load(last, &mut page).map_err(errno)?;
            page[rest..].fill(0);
            self.0.save(last, &page, size).map_err(errno)?;
        }
        let mut contents = self.0.contents();
        let cut = contents.pages.split_off(&size.div_ceil(PAGE_SIZE_U64));
        contents.size = size;
        drop(contents);
        drop(cut);
        Ok(())
    }

    fn size(&self) -> Result<u64, i32> {
        Ok(self.0.contents().size)
    }

    fn sync(&self, _data_only: bool) -> Result<(), i32> {
        // The memory ends with its program, so nothing has to persist.
        Ok(())
    }

    fn punch(&self, start: u64, end: u64) -> Result<(), i32> {
        let whole = start.div_ceil(PAGE_SIZE_U64)..end / PAGE_SIZE_U64;
        for at in [start, end] {
            // The discarded part of a page that is only partly discarded.
            let (page, from) =
                (at / PAGE_SIZE_U64 * PAGE_SIZE_U64, start.max(at / PAGE_SIZE_U64 * PAGE_SIZE_U64));
            let to = end.min(page.saturating_add(PAGE_SIZE_U64));
            if at % PAGE_SIZE_U64 != 0 && from < to {
                self.write(from, &vec![0; (to - from) as usize])?;
            }
        }
        let mut discarded = Vec::new();
        let mut contents = self.0.contents();
        if !contents.pages.is_empty() && !whole.is_empty() {
            let there: Vec<u64> = contents.pages.range(whole).map(|(&page, _)| page).collect();
            discarded.extend(there.iter().filter_map(|page| contents.pages.remove(page)));
        }
        drop(contents);
        // Outside of the lock, since the store has its own.
        drop(discarded);
        Ok(())
    }

    fn sync_work(&self, _data_only: bool) -> Result<DiskWork, i32> {
        Ok(DiskWork::none())
    }

    fn fetch_work(&self, _offset: u64, _len: u64) -> Result<DiskWork, i32> {
        Ok(DiskWork::none())
    }
}

fn errno(error: StoreError) -> i32 {
    match error {
        StoreError::Full { .. } => libc::ENOSPC,
        StoreError::Host { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        StoreError::Changed { .. } => libc::EIO,
    }
}

// The store's pages are all the state, and the next implementation shares them.
impl State<()> for AnonymousPages {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}
