//! Filling pages from the file: marked busy, without the lock, several pages with one read.

use crate::cell::{Cell, Guard};
use crate::events;
use crate::fcm::{CacheError, PAGE_SIZE};
use crate::frames::{BUSY, Frame};
use crate::pages::{File, Pages};
use crate::scratch::{BATCH, with_buffer};

impl Cell {
    /// Fills `first`, which is not cached, and the uncached pages that follow it directly, up to
    /// `last` and as far as there are frames. Returns their number. The lock is dropped while the
    /// host reads.
    ///
    /// If the read fails, the pages are dropped again. Threads that waited for them find them
    /// missing and read them themselves: they get an error of their own, or, if the problem has
    /// passed, the data.
    pub(crate) fn fill<'a>(
        &'a self,
        file: &File,
        mut pages: Guard<'a>,
        first: u64,
        last: u64,
    ) -> Result<(Guard<'a>, u64), CacheError> {
        let frames = claim_run(file, &mut pages, first, last);
        let run = &frames.list[..frames.len];
        if run.is_empty() {
            return Err(CacheError::NoFrame);
        }
        pages.faults += run.len() as u64;
        let ticket = pages.take_off(first, first + run.len() as u64 - 1, false);
        // Data of the host beyond this file's size does not belong to the file. Bytes that are
        // written there while the lock is dropped go to other pages, since these are busy.
        let start = first * PAGE_SIZE as u64;
        let known = file.on_host().saturating_sub(start);
        drop(pages);
        let mut landing = Landing { cell: self, file, run, first, ticket, filled: Err(libc::EIO) };
        let _fault = events::FAULT.span([first, run.len() as u64]);
        landing.filled = fill_frames(file, start, known, run);
        let count = run.len() as u64;
        landing.finish().map(|guard| (guard, count))
    }
}

/// The frames of a run of pages.
struct Run {
    list: [Frame; BATCH],
    len: usize,
}

fn claim_run(file: &File, pages: &mut Pages, first: u64, last: u64) -> Run {
    let mut run = Run { list: [Frame::UNSET; BATCH], len: 0 };
    for page in (first..=last).take(BATCH) {
        if pages.get(file, page).is_some() {
            break;
        }
        let Some(frame) = pages.add_busy(file, page) else { break };
        run.list[run.len] = frame;
        run.len += 1;
    }
    run
}

/// Reads into the frames of `run`, which belong to this thread while they are busy. At most `known`
/// bytes come from the file; the rest is zero.
fn fill_frames(file: &File, start: u64, known: u64, run: &[Frame]) -> Result<(), i32> {
    let len = (run.len() * PAGE_SIZE).min(usize::try_from(known).unwrap_or(usize::MAX));
    with_buffer(run.len(), |buffer| {
        let got = if len > 0 { file.parts.fr.read(start, &mut buffer[..len])? } else { 0 };
        buffer[got.min(len)..].fill(0);
        for (&frame, data) in run.iter().zip(buffer.chunks_exact(PAGE_SIZE)) {
            file.pool().copy_in(frame, 0, data);
        }
        Ok(())
    })
}

/// The end of a flight from the host. `drop` lands it as a failure if the file representative
/// panics: busy pages that no thread comes back for would block the file for good.
struct Landing<'a, 'f> {
    cell: &'a Cell,
    file: &'f File,
    run: &'f [Frame],
    first: u64,
    ticket: u64,
    filled: Result<(), i32>,
}

impl<'a> Landing<'a, '_> {
    fn finish(self) -> Result<Guard<'a>, CacheError> {
        let guard = self.land();
        let filled = self.filled;
        std::mem::forget(self);
        filled.map(|()| guard).map_err(CacheError::Host)
    }

    fn land(&self) -> Guard<'a> {
        let mut pages = self.cell.lock();
        pages.land(self.ticket);
        for (page, &frame) in (self.first..).zip(self.run) {
            match self.filled {
                Ok(()) => self.file.pool().clear(frame, BUSY),
                Err(_) => pages.drop_page(self.file, page),
            }
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
