//! Robust mutexes that a thread holds when it ends are passed on, where pages move: whoever waits for one is to be told that its owner has died.
//!
//! The kernel does that when the thread is no more, waits for no page then, and passes over the whole list at the first that is elsewhere. So it is
//! done before, as the kernel would (`kernel/futex/core.c`, `exit_robust_list`), while the thread stands in its end: what the kernel finds then is not
//! the thread's any more. A word changes while its page is here and goes nowhere, so nobody else changes it in between.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use refit_sys::foreign::Memory;
use refit_sys::{process, thread};

use crate::dsm::PageHomeHandle;
use crate::origin::address_space::{AddressSpace, PAGE};

/// Somebody waits for it (`FUTEX_WAITERS`).
const WAITERS: u32 = 0x8000_0000;
/// Whoever has held it has died (`FUTEX_OWNER_DIED`).
const OWNER_DIED: u32 = 0x4000_0000;
/// Who holds it (`FUTEX_TID_MASK`).
const OWNER: u32 = 0x3fff_ffff;
/// So long is a list at most (`ROBUST_LIST_LIMIT`): it may be a ring, by mistake.
const MOST: usize = 2048;

/// An entry of the list.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    /// Its mutex passes priority on: who waits for it waits otherwise.
    inherits: bool,
}

impl Entry {
    /// As it is told: the lowest bit is no address.
    fn of(told: u64) -> Self {
        Self { address: told & !1, inherits: told & 1 != 0 }
    }
}

impl AddressSpace {
    /// Passes on what a thread holds that stands in its end, and has not left its memory.
    ///
    /// # Errors
    /// The list cannot be read on, as by the kernel; a page of it is lost.
    pub(crate) fn pass_on(&self, ending: u32) -> io::Result<()> {
        let Some(page_home) = &self.page_home else { return Ok(()) };
        let Some(head) = thread::robust_list(ending)? else { return Ok(()) };
        let owner = process::number_within(ending)?;
        let word = |place: u64| self.word(page_home, head + 8 * place);
        let (mut entry, offset, pending) = (Entry::of(word(0)?), word(1)?, Entry::of(word(2)?));
        for _ in 0..MOST {
            if entry.address == head {
                break;
            }
            // Before it is passed on: who has it then may change it.
            let next = Entry::of(self.word(page_home, entry.address)?);
            if entry.address != pending.address {
                self.dies(page_home, entry, offset, owner, false)?;
            }
            entry = next;
        }
        if pending.address == 0 {
            Ok(())
        } else {
            self.dies(page_home, pending, offset, owner, true)
        }
    }

    /// The owner of a mutex dies, or whoever was about to take it, or had just let it go.
    fn dies(
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

    /// Brings the pages of words of the program's here; whether there are any that can be elsewhere. They may be again at once.
    pub(crate) fn bring(&self, words: [u64; 2]) -> bool {
        let Some(page_home) = &self.page_home else { return false };
        let pages = words.into_iter().filter_map(|word| self.page(word).ok().flatten());
        // One that is lost has the program killed.
        pages.filter(|page| page_home.gather(page.clone(), || ()).is_ok()).count() > 0
    }

    /// The word of 8 bytes at an address.
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

    /// The page of an address, if it is of frames; any other is here, and the kernel's affair.
    fn page(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        let start = at / PAGE * PAGE;
        let page = start..start.saturating_add(PAGE);
        Ok((!self.frames_in(&page)?.is_empty()).then_some(page))
    }
}
