//! One partition of a file's pages with its lock, and the ways to read and evict under it.
//!
//! The lock is never held while pages are filled from the host or written back to it. The thread
//! marks the pages, registers a *flight*, drops the lock and calls the host; then it takes the lock
//! again and lands the flight. Other threads that need such a page wait on `landed` and then start
//! over, since anything can have happened in the meantime. A waiting thread holds no other
//! partition's lock.

use crate::events;
use crate::fcm::{CacheError, Eviction};
use crate::frames::{BUSY, DIRTY, Frame, WRITING};
use crate::pages::{File, Obstacle, Pages, Span};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The guard of a partition's lock.
pub(crate) type Guard<'a> = MutexGuard<'a, Pages>;

/// One partition: its pages, their lock, and the condition on which threads wait for flights to
/// land.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pages: Mutex<Pages>,
    landed: Condvar,
}

impl Cell {
    /// Creates an empty partition, whose index is divided into `stripes` once it has grown.
    pub(crate) fn with_stripes(stripes: usize) -> Self {
        Cell { pages: Mutex::new(Pages::with_stripes(stripes)), landed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> Guard<'_> {
        // A panic under the lock is a defect of this crate. The state is still consistent enough to
        // continue, which is better than failing every user of the file.
        self.pages.try_lock().unwrap_or_else(|| {
            let _wait = events::LOCK.span([std::ptr::from_ref(self).addr() as u64, 0]);
            self.pages.lock()
        })
    }

    /// Drops the lock until some flight has landed.
    pub(crate) fn wait<'a>(&'a self, mut pages: Guard<'a>) -> Guard<'a> {
        pages.waiting += 1;
        self.landed.wait(&mut pages);
        pages.waiting -= 1;
        pages
    }

    /// Wakes waiting threads. Usually there are none, and then it makes no system call.
    pub(crate) fn wake(&self, pages: &Pages) {
        if pages.waiting > 0 {
            self.landed.notify_all();
        }
    }

    /// Copies the bytes from `start` on, all of this partition, into `buf`; fewer only at the end
    /// of the file. Pages that are not cached are filled, several with one read of the host.
    ///
    /// A page that has been filled is copied before the lock is dropped again, so with a frame or
    /// two to spare a read makes progress, however fast other threads evict.
    pub(crate) fn read<'a>(
        &'a self,
        file: &File,
        mut pages: Guard<'a>,
        start: u64,
        buf: &mut [u8],
    ) -> Result<usize, CacheError> {
        let mut done = 0;
        let mut filled_here = 0..0;
        while done < buf.len() {
            // The size may have changed while the lock was dropped.
            let end = start.saturating_add(buf.len() as u64).min(file.size());
            let at = start.saturating_add(done as u64);
            if at >= end {
                break;
            }
            let rest = Span { start: at, end };
            let page = *rest.pages().start();
            let Some(frame) = pages.demand(file, page) else {
                let (guard, count) = self.fill(file, pages, page, *rest.pages().end())?;
                pages = guard;
                filled_here = page..page + count;
                continue;
            };
            if file.pool().flags(frame) & BUSY != 0 {
                pages = self.wait(pages);
                continue;
            }
            let within = rest.within(page);
            file.pool().copy_out(frame, within.start, &mut buf[done..done + within.len()]);
            // A page that was just filled is not yet used: pages that are read once, in sequence,
            // are evicted before pages that are read again.
            if !filled_here.contains(&page) {
                file.parts.pm.touch(frame);
            }
            done += within.len();
        }
        Ok(done)
    }

    /// Writes `data` to `span`, all of this partition.
    pub(crate) fn write<'a>(
        &'a self,
        file: &File,
        mut pages: Guard<'a>,
        span: Span,
        data: &[u8],
    ) -> Result<(), CacheError> {
        while let Some(obstacle) = pages.obstacle(file, span) {
            pages = self.clear(file, pages, obstacle)?;
        }
        pages.claim(file, span)?;
        pages.store(file, span, data);
        Ok(())
    }

    /// Removes `obstacle`, which keeps a write from proceeding. The lock is dropped for a while, so
    /// the caller has to check everything again.
    pub(crate) fn clear<'a>(
        &'a self,
        file: &File,
        pages: Guard<'a>,
        obstacle: Obstacle,
    ) -> Result<Guard<'a>, CacheError> {
        match obstacle {
            Obstacle::Busy => Ok(self.wait(pages)),
            Obstacle::Unfilled(page) => {
                let (pages, _) = self.fill(file, pages, page, page)?;
                // The page has to stay cached until the write proceeds, which may have to fill one
                // more page.
                if let Some(frame) = pages.get(file, page) {
                    file.parts.pm.touch(frame);
                }
                Ok(pages)
            }
        }
    }

    /// Evicts `page`, which physical memory has seen in `frame`, unless the page is in use or no
    /// longer there.
    pub(crate) fn evict(
        &self,
        file: &File,
        page: u64,
        frame: Frame,
    ) -> Result<Eviction, CacheError> {
        let mut pages = self.lock();
        let flags = file.pool().flags(frame);
        if pages.get(file, page) != Some(frame) || flags & (BUSY | WRITING) != 0 {
            return Ok(Eviction::Busy);
        }
        if flags & DIRTY != 0 {
            // Also writes the dirty pages that follow it, since those are the next to be evicted.
            let (guard, written) = self.write_run(file, pages, page, u64::MAX);
            pages = guard;
            written?;
            // The page may have been used again while it was written, and is no victim then.
            let changed = pages.get(file, page) != Some(frame);
            if changed || file.pool().flags(frame) & (BUSY | WRITING | DIRTY) != 0 {
                return Ok(Eviction::Busy);
            }
        }
        pages.drop_page(file, page);
        Ok(Eviction::Freed)
    }
}

impl AsRef<Cell> for Cell {
    fn as_ref(&self) -> &Cell {
        self
    }
}
