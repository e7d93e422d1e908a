//! Hears of those who wait for pages, and asks for these.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::userfault::Message;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::dsm::{Access, Store};
use crate::page::PAGE_SIZE;

/// How many pages are asked for at once, the one that is needed being the first (Katz 2014, §5.7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// So many.
    Fixed(u16),
    /// More where those after are needed next, fewer where they are not.
    Adaptive,
}

/// A page that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    pub(crate) page: u64,
    /// How many from this one on are to come.
    pub(crate) count: u16,
    pub(crate) access: Access,
    /// It is there, but only to be read.
    pub(crate) is_here: bool,
}

/// The pager of one process.
pub(crate) struct Pager {
    store: Arc<Store>,
    wakeup: OwnedFd,
}

impl Pager {
    /// Serves with the pages of `store`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(store: Arc<Store>) -> io::Result<Arc<Self>> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { store, wakeup }))
    }

    /// Has each page that somebody waits for fetched, until [`end`](Self::end).
    ///
    /// # Errors
    /// Nothing more is heard.
    pub(crate) fn serve(&self, window: Window, fetch: impl Fn(PageRequest)) -> io::Result<()> {
        let mut ahead = Ahead::new(window);
        let mut messages = Vec::new();
        let linger = AdaptiveSpin::default();
        let userfault = self.store.userfault();
        loop {
            let heard = linger.wait_for(|| !matches!(userfault.read(&mut messages), Ok(0)));
            if !heard {
                let wanted = PollFlags::IN;
                let (told, rung) = (userfault.as_fd(), self.wakeup.as_fd());
                let mut all = [
                    PollFd::from_borrowed_fd(told, wanted),
                    PollFd::from_borrowed_fd(rung, wanted),
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
                    let (is_here, count) = (access.protected, ahead.count(page));
                    let access = if access.write { Access::Write } else { Access::Read };
                    fetch(PageRequest { page, count, access, is_here });
                }
            }
        }
    }

    /// Has it end.
    pub(crate) fn end(&self) {
        // It is rung already, if not.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }
}

/// Pages that are asked for at once, at most.
const LIMIT: u16 = 64;
/// As many, where that is for us to find: one that comes in vain has to go back to who has it, and has cost more than it would have saved.
const MOST: u16 = 8;
/// From so many in order on more than one are asked for: who goes through less is at the end as soon as that is known.
const SURE: u32 = 3;

/// How many are asked for.
struct Ahead {
    window: Window,
    streams: Streams,
}

impl Ahead {
    fn new(window: Window) -> Self {
        Self { window, streams: Streams::default() }
    }

    /// How many pages from this one on are asked for.
    fn count(&mut self, page: u64) -> u16 {
        if let Window::Fixed(count) = self.window {
            return count.clamp(1, LIMIT);
        }
        let run = self.streams.take(page);
        let before = run.map_or(0, |run| run.pages);
        let count = run.filter(|_| before >= SURE).map_or(1, |run| (run.count * 2).min(MOST));
        self.streams.put(page, count, before);
        count
    }
}

/// Pages that one came to in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The one that comes next.
    next: u64,
    /// How many came before it at once.
    pub(crate) count: u16,
    /// How many in all.
    pages: u32,
}

/// Where those are expected who go through memory in order.
pub(crate) struct Streams {
    /// The latest last.
    all: VecDeque<Run>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { all: VecDeque::with_capacity(Self::MOST) }
    }
}

impl Streams {
    /// How many go through memory at once, at most.
    const MOST: usize = 8;

    /// What came before this page, if it was expected.
    pub(crate) fn take(&mut self, page: u64) -> Option<Run> {
        let at = self.all.iter().position(|run| run.next == page)?;
        self.all.remove(at)
    }

    /// So many come at once from this page on, after so many `before`.
    pub(crate) fn put(&mut self, page: u64, count: u16, before: u32) {
        if self.all.len() == Self::MOST {
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
    fn more_is_asked_for_where_memory_is_gone_through_in_order() {
        let mut ahead = Ahead::new(Window::Adaptive);
        let asked = |ahead: &mut Ahead, page: u64| ahead.count(page * PAGE_SIZE);
        assert_eq!([0, 1, 2, 3, 5].map(|page| asked(&mut ahead, page)), [1, 1, 1, 2, 4]);
        // Another one, elsewhere, does not disturb it.
        assert_eq!([1000, 9, 1001].map(|page| asked(&mut ahead, page)), [1, 8, 1]);
        assert_eq!([17, 25, 34].map(|page| asked(&mut ahead, page)), [8, 8, 1]);
        assert_eq!(Ahead::new(Window::Fixed(64)).count(0), 64);
    }
}
