//! The pager: receives the faults of threads that wait for pages, and requests the pages.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::userfault::Message;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::dsm::{Access, Store};
use crate::page::PAGE_SIZE;

/// The number of pages that are requested at once, beginning with the one that is needed (Katz
/// 2014, §5.7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// This many.
    Fixed(u16),
    /// More if the following pages are needed next, fewer if they are not.
    Adaptive,
}

/// A page that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    pub(crate) page: u64,
    /// The number of pages to request, from this one on.
    pub(crate) count: u16,
    pub(crate) access: Access,
    /// Whether the page is here for reading.
    pub(crate) is_here: bool,
}

/// The pager of one process.
pub(crate) struct Pager {
    store: Arc<Store>,
    wakeup: OwnedFd,
}

impl Pager {
    /// Returns a pager that serves with the pages of `store`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(store: Arc<Store>) -> io::Result<Arc<Self>> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { store, wakeup }))
    }

    /// Has each page fetched that a thread waits for, until [`end`](Self::end).
    ///
    /// # Errors
    /// Faults are not reported any more.
    pub(crate) fn serve(&self, window: Window, fetch: impl Fn(PageRequest)) -> io::Result<()> {
        let mut window_size = WindowSize::new(window);
        let mut messages = Vec::new();
        let spin = AdaptiveSpin::default();
        let userfault = self.store.userfault();
        loop {
            let received = spin.wait_for(|| !matches!(userfault.read(&mut messages), Ok(0)));
            if !received {
                let wanted = PollFlags::IN;
                let (faults, wakeup) = (userfault.as_fd(), self.wakeup.as_fd());
                let mut all = [
                    PollFd::from_borrowed_fd(faults, wanted),
                    PollFd::from_borrowed_fd(wakeup, wanted),
                ];
                match poll(&mut all, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if !all[1].revents().is_empty() {
                    return Ok(());
                }
            }
            for message in messages.drain(..) {
                if let Message::Pagefault { address, access, .. } = message {
                    let page = address / PAGE_SIZE * PAGE_SIZE;
                    let (is_here, count) = (access.protected, window_size.count(page));
                    let access = Access::of(access.write);
                    fetch(PageRequest { page, count, access, is_here });
                }
            }
        }
    }

    /// Ends the pager.
    pub(crate) fn end(&self) {
        // This fails only if the wakeup is set already.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }
}

/// The largest number of pages that are requested at once.
const LIMIT: u16 = 64;
/// The largest number that an adaptive window requests: a page that comes in vain has to go back to
/// its holder, and has cost more than it would have saved.
const ADAPTIVE_LIMIT: u16 = 8;
/// The number of pages in order from which on more than one is requested: a shorter run is at its
/// end as soon as it is noticed.
const MIN_RUN: u32 = 3;

/// Decides how many pages are requested.
struct WindowSize {
    window: Window,
    streams: Streams,
}

impl WindowSize {
    fn new(window: Window) -> Self {
        Self { window, streams: Streams::default() }
    }

    /// Returns how many pages to request from this one on.
    fn count(&mut self, page: u64) -> u16 {
        if let Window::Fixed(count) = self.window {
            return count.clamp(1, LIMIT);
        }
        let run = self.streams.take(page);
        let before = run.map_or(0, |run| run.pages);
        let count =
            run.filter(|_| before >= MIN_RUN).map_or(1, |run| (run.count * 2).min(ADAPTIVE_LIMIT));
        self.streams.put(page, count, before);
        count
    }
}

/// Pages that were needed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The page that comes next.
    next: u64,
    /// The number of pages of the last request.
    pub(crate) count: u16,
    /// The number of pages of the run.
    pages: u32,
}

/// Where threads are expected that go through memory in order.
pub(crate) struct Streams {
    /// The latest last.
    all: VecDeque<Run>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { all: VecDeque::with_capacity(Self::MAX_RUNS) }
    }
}

impl Streams {
    /// The largest number of runs at once.
    const MAX_RUNS: usize = 8;

    /// Takes the run that continues with this page, if there is one.
    pub(crate) fn take(&mut self, page: u64) -> Option<Run> {
        let at = self.all.iter().position(|run| run.next == page)?;
        self.all.remove(at)
    }

    /// Notes that `count` pages were requested from this page on, after `before` in order.
    pub(crate) fn put(&mut self, page: u64, count: u16, before: u32) {
        if self.all.len() == Self::MAX_RUNS {
            self.all.pop_front();
        }
        let next = page + u64::from(count) * PAGE_SIZE;
        self.all.push_back(Run { next, count, pages: before.saturating_add(count.into()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_requested_where_memory_is_gone_through_in_order() {
        let mut window_size = WindowSize::new(Window::Adaptive);
        let requested =
            |window_size: &mut WindowSize, page: u64| window_size.count(page * PAGE_SIZE);
        assert_eq!([0, 1, 2, 3, 5].map(|page| requested(&mut window_size, page)), [1, 1, 1, 2, 4]);
        // Another run elsewhere does not disturb the first.
        assert_eq!([1000, 9, 1001].map(|page| requested(&mut window_size, page)), [1, 8, 1]);
        assert_eq!([17, 25, 34].map(|page| requested(&mut window_size, page)), [8, 8, 1]);
        assert_eq!(WindowSize::new(Window::Fixed(64)).count(0), 64);
    }

    #[test]
    fn the_oldest_of_too_many_runs_is_forgotten() {
        let mut streams = Streams::default();
        let start = |run: u64| run * 1000 * PAGE_SIZE;
        (0..=Streams::MAX_RUNS as u64).for_each(|run| streams.put(start(run), 1, 0));
        let known = |run: u64| streams.take(start(run) + PAGE_SIZE).is_some();
        let known: Vec<bool> = (0..=Streams::MAX_RUNS as u64).map(known).collect();
        assert_eq!(known, [[false].as_slice(), &[true; Streams::MAX_RUNS]].concat());
    }
}
