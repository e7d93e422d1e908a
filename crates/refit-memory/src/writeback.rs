//! Writing dirty pages back to the file: several with one write, and without the lock.
//!
//! A run of dirty pages is copied under the lock, marked clean and *writing*, and the copy is
//! written with the lock dropped. So no other thread waits for the host: the pages can be read in
//! the meantime, and a page that is written to again just becomes dirty again. The mark *writing*
//! keeps a second copy from overtaking the first, and the page from being evicted or truncated
//! before its data has arrived. If the write fails, the pages are dirty again, and the caller gets
//! the error.

use std::ops::RangeInclusive;

use crate::cell::{Cell, Guard};
use crate::events;
use crate::fcm::{CacheError, PAGE_SIZE};
use crate::frames::{DIRTY, WRITING};
use crate::pages::{File, Pages};
use crate::scratch::{BATCH, with_buffer};

impl Cell {
    /// Writes the run of dirty pages that begins with `first` and ends with `last` at the latest.
    /// Returns the number of pages. `first` must be dirty and not being written.
    pub(crate) fn write_run<'a>(
        &'a self,
        file: &File,
        mut pages: Guard<'a>,
        first: u64,
        last: u64,
    ) -> (Guard<'a>, Result<u64, CacheError>) {
        let count = run_length(file, &pages, first, last);
        let start = first * PAGE_SIZE as u64;
        with_buffer(count, |buffer| {
            for (page, data) in (first..).zip(buffer.chunks_exact_mut(PAGE_SIZE)) {
                let Some(frame) = pages.demand(file, page) else {
                    unreachable!("dirty page {page} has a frame")
                };
                file.pool().copy_out(frame, 0, data);
                file.pool().set(frame, WRITING);
                pages.mark_clean(file, page, frame);
            }
            let len = (file.size() - start).min(buffer.len() as u64);
            file.grow_on_host(start + len);
            let last = first + count as u64 - 1;
            let ticket = pages.take_off(first, last, true);
            drop(pages);
            let mut landing =
                Landing { cell: self, file, pages: first..=last, ticket, written: Err(libc::EIO) };
            let _write_back = events::WRITE_BACK.span([first, count as u64]);
            landing.written = file.parts.fr.write(start, &buffer[..len as usize]);
            landing.finish(count as u64)
        })
    }

    /// Writes the pages among `range` that are dirty when the call begins, and waits for those that
    /// others are writing. Returns the number that it has written itself.
    pub(crate) fn flush(
        &self,
        file: &File,
        range: &RangeInclusive<u64>,
    ) -> Result<u64, CacheError> {
        let mut written = 0;
        let mut pages = self.lock();
        loop {
            let failures = pages.failures;
            let mut cursor = *range.start();
            // One pass, upwards: pages that become dirty behind the cursor are left for later.
            while let Some(page) = next_dirty(&pages, cursor, *range.end()) {
                if pages.in_flight(&(page..=page)) {
                    pages = self.wait(pages);
                    continue;
                }
                let (guard, result) = self.write_run(file, pages, page, *range.end());
                pages = guard;
                let count = result?;
                written += count;
                cursor = page + count;
            }
            let ticket = pages.last_ticket();
            while pages.being_written(range, ticket) {
                pages = self.wait(pages);
            }
            // Pages that another thread was writing and could not are dirty again, so this thread
            // tries.
            if pages.failures == failures {
                return Ok(written);
            }
        }
    }
}

fn next_dirty(pages: &Pages, cursor: u64, last: u64) -> Option<u64> {
    pages.index.first_dirty(&(cursor..=last))
}

/// Returns the number of pages from `first` on that are dirty and not being written, at most a
/// batch.
fn run_length(file: &File, pages: &Pages, first: u64, last: u64) -> usize {
    let ready = |page| {
        let frame = pages.get(file, page);
        frame.is_some_and(|frame| file.pool().flags(frame) & (DIRTY | WRITING) == DIRTY)
    };
    (first..=last).take(BATCH).take_while(|&page| ready(page)).count()
}

/// The end of a flight to the host. `drop` lands it as a failure if the file representative panics.
struct Landing<'a, 'f> {
    cell: &'a Cell,
    file: &'f File,
    pages: RangeInclusive<u64>,
    ticket: u64,
    written: Result<(), i32>,
}

impl<'a> Landing<'a, '_> {
    fn finish(self, count: u64) -> (Guard<'a>, Result<u64, CacheError>) {
        let guard = self.land();
        let written = self.written;
        std::mem::forget(self);
        (guard, written.map(|()| count).map_err(CacheError::Host))
    }

    fn land(&self) -> Guard<'a> {
        let mut pages = self.cell.lock();
        pages.land(self.ticket);
        pages.failures += u64::from(self.written.is_err());
        for page in self.pages.clone() {
            let Some(frame) = pages.demand(self.file, page) else {
                unreachable!("a page in flight keeps its frame")
            };
            // In this order: at any instant, one of the flags says that the page may not be on the
            // host (`unwritten`).
            if self.written.is_err() {
                pages.mark_dirty(self.file, page, frame);
            }
            self.file.pool().clear(frame, WRITING);
        }
        self.cell.wake(&pages);
        pages
    }
}

impl Drop for Landing<'_, '_> {
    fn drop(&mut self) {
        drop(self.land());
    }
}
