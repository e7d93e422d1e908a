//! Unlocks the robust mutexes that a thread holds when it ends, in groups whose pages move: threads
//! that wait for one must learn that its owner has died.
//!
//! The kernel does this at the thread's end (`exit_robust_list` in `kernel/futex/core.c`). It waits
//! for no page then, and abandons the whole list at the first page that is at another node. So
//! refit does the same earlier, while the thread is stopped at its exit; the mutexes that the
//! kernel then finds belong to the thread no more. Refit changes a word while its page is held
//! here, so no other thread changes it in between.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use refit_sys::foreign::Memory;
use refit_sys::{process, thread};

use crate::dsm::PageHomeHandle;
use crate::origin::address_space::AddressSpace;
use crate::page::PAGE_SIZE;

/// A thread waits for the mutex (`FUTEX_WAITERS`).
const WAITERS: u32 = 0x8000_0000;
/// The owner of the mutex has died (`FUTEX_OWNER_DIED`).
const OWNER_DIED: u32 = 0x4000_0000;
/// The bits that hold the owner (`FUTEX_TID_MASK`).
const OWNER: u32 = 0x3fff_ffff;
/// The greatest length of a list (`ROBUST_LIST_LIMIT`): it may be a ring, by mistake.
const MAX_LENGTH: usize = 2048;

/// An entry of the list.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    /// Whether its mutex passes priority on: waiters are woken differently.
    inherits: bool,
}

impl Entry {
    /// Splits a word of the list: the lowest bit is no part of the address.
    fn of(word: u64) -> Self {
        Self { address: word & !1, inherits: word & 1 != 0 }
    }
}

impl AddressSpace {
    /// Passes on the mutexes of a thread that is stopped at its exit, and has its memory still.
    ///
    /// # Errors
    /// The list cannot be read on, as by the kernel; a page of it is lost.
    pub(crate) fn pass_mutexes_on(&self, ending: u32) -> io::Result<()> {
        let Some(page_home) = &self.page_home else { return Ok(()) };
        let Some(head) = thread::robust_list(ending)? else { return Ok(()) };
        let owner = process::number_within(ending)?;
        let word = |place: u64| self.word(page_home, head + 8 * place);
        let (mut entry, offset, pending) = (Entry::of(word(0)?), word(1)?, Entry::of(word(2)?));
        for _ in 0..MAX_LENGTH {
            if entry.address == head {
                break;
            }
            // Read before the mutex is passed on: its next owner may change the entry.
            let next = Entry::of(self.word(page_home, entry.address)?);
            if entry.address != pending.address {
                self.mark_dead(page_home, entry, offset, owner, false)?;
            }
            entry = next;
        }
        if pending.address == 0 {
            Ok(())
        } else {
            self.mark_dead(page_home, pending, offset, owner, true)
        }
    }

    /// Marks the owner of a mutex as dead, or a thread that was about to take it, or had just
    /// released it.
    fn mark_dead(
        &self,
        page_home: &PageHomeHandle,
        entry: Entry,
        offset: u64,
        owner: u32,
        pending: bool,
    ) -> io::Result<()> {
        let at = entry.address.wrapping_add(offset);
        let Some(page) = self.page(at)?.filter(|_| at.is_multiple_of(4)) else { return Ok(()) };
        let frames = Arc::clone(&self.frames);
        let wakes = page_home.gather(page, move || {
            let mut value = [0; 4];
            frames.read_exact_at(&mut value, at)?;
            let value = u32::from_ne_bytes(value);
            if value & OWNER != owner {
                return Ok(pending && value == 0);
            }
            frames.write_all_at(&(value & WAITERS | OWNER_DIED).to_ne_bytes(), at)?;
            io::Result::Ok(value & WAITERS != 0)
        })??;
        if wakes && !entry.inherits {
            let wake = libc::FUTEX_WAKE.cast_unsigned().into();
            self.call(libc::SYS_futex, [at, wake, 1, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Fetches the pages of words of the program. Returns whether any of them can be at another
    /// node. They may leave again at once.
    pub(crate) fn fetch_pages(&self, words: [u64; 2]) -> bool {
        let Some(page_home) = &self.page_home else { return false };
        let pages = words.into_iter().filter_map(|word| self.page(word).ok().flatten());
        // The loss of a page has the program killed.
        pages.filter(|page| page_home.gather(page.clone(), || ()).is_ok()).count() > 0
    }

    /// Returns the word of 8 bytes at an address.
    fn word(&self, page_home: &PageHomeHandle, at: u64) -> io::Result<u64> {
        let Some(page) = self.page(at)?.filter(|_| at.is_multiple_of(8)) else {
            return Ok(Memory::of(self.agent_task)?.word(at)?);
        };
        let frames = Arc::clone(&self.frames);
        page_home.gather(page, move || {
            let mut value = [0; 8];
            frames.read_exact_at(&mut value, at)?;
            Ok(u64::from_ne_bytes(value))
        })?
    }

    /// Returns the page of an address, if it is of frames. Other pages are always here, and left to
    /// the kernel.
    fn page(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        let start = at / PAGE_SIZE * PAGE_SIZE;
        let page = start..start.saturating_add(PAGE_SIZE);
        Ok((!self.frames_in(&page)?.is_empty()).then_some(page))
    }
}
