//! In which order pages of anonymous memory go out. Nobody sees how pages that are in are used, only which come back soon after
//! they had left; so a page has its order from its coming.

use std::collections::{HashMap, VecDeque};

/// Says which page goes next.
pub(crate) trait Order: Default + Send + 'static {
    /// A page has come; whether it has come back soon after it had left.
    fn come(&mut self, page: u64) -> bool;
    /// As `come`, of a page of which is known whether it was wanted.
    fn resume(&mut self, page: u64, wanted: bool);
    /// A page is not here any more. `left`: it went out, and may come back.
    fn gone(&mut self, page: u64, left: bool);
    /// The page that goes next, which is not among those that can go from then on.
    fn next(&mut self) -> Option<u64>;
    /// All pages that can go, the first to go first, and whether each was wanted.
    fn all(&self) -> Vec<(u64, bool)>;
}

/// A queue out of whose middle pages can be taken.
#[derive(Debug, Default)]
struct Queue {
    pages: VecDeque<(u64, u64)>,
    /// The stamp with which each page stands in the queue. Others of it are left over.
    stamps: HashMap<u64, u64>,
    stamp: u64,
}

impl Queue {
    fn len(&self) -> usize {
        self.stamps.len()
    }

    fn push(&mut self, page: u64) {
        self.stamp += 1;
        self.stamps.insert(page, self.stamp);
        self.pages.push_back((page, self.stamp));
        if self.pages.len() > 2 * self.stamps.len() + 64 {
            let stamps = &self.stamps;
            self.pages.retain(|(page, stamp)| stamps.get(page) == Some(stamp));
        }
    }

    fn remove(&mut self, page: u64) -> bool {
        self.stamps.remove(&page).is_some()
    }

    fn oldest(&mut self) -> Option<u64> {
        while let Some((page, stamp)) = self.pages.pop_front() {
            if self.stamps.get(&page) == Some(&stamp) {
                self.stamps.remove(&page);
                return Some(page);
            }
        }
        None
    }

    fn newest(&mut self) -> Option<u64> {
        while let Some((page, stamp)) = self.pages.pop_back() {
            if self.stamps.get(&page) == Some(&stamp) {
                self.stamps.remove(&page);
                return Some(page);
            }
        }
        None
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = u64> {
        let here = |(page, stamp): &&(u64, u64)| self.stamps.get(page) == Some(stamp);
        self.pages.iter().filter(here).map(|(page, _)| *page)
    }
}

/// Two queues (2Q; Johnson and Shasha 1994): pages that came once, and pages that came back soon after they had left. The first
/// give way as long as they are more than a quarter.
#[derive(Debug, Default)]
pub(crate) struct TwoQueues {
    once: Queue,
    wanted: Queue,
    /// Those that left last, as many as half of those that are here.
    left: Queue,
}

impl Order for TwoQueues {
    fn come(&mut self, page: u64) -> bool {
        let wanted = self.left.remove(page);
        self.resume(page, wanted);
        wanted
    }

    fn resume(&mut self, page: u64, wanted: bool) {
        if wanted { self.wanted.push(page) } else { self.once.push(page) }
    }

    fn gone(&mut self, page: u64, left: bool) {
        self.once.remove(page);
        self.wanted.remove(page);
        if !left {
            self.left.remove(page);
            return;
        }
        self.left.push(page);
        while self.left.len() > (self.once.len() + self.wanted.len()) / 2 + 64 {
            self.left.oldest();
        }
    }

    fn next(&mut self) -> Option<u64> {
        let enough = (self.once.len() + self.wanted.len()) / 4;
        let first = if self.once.len() > enough { self.once.oldest() } else { None };
        first.or_else(|| self.wanted.oldest()).or_else(|| self.once.oldest())
    }

    fn all(&self) -> Vec<(u64, bool)> {
        let once = self.once.all().map(|page| (page, false));
        once.chain(self.wanted.all().map(|page| (page, true))).collect()
    }
}

/// Those that came last go first, but for the last few, which are being used: for memory that is gone through once, or again and again
/// (Soules 2003, §6.3).
#[derive(Debug, Default)]
pub(crate) struct Newest {
    window: Queue,
    rest: Queue,
}

/// Pages around the place where a sequential reader is, which it may still use.
const IN_USE: usize = 2 * super::fcm::GROUP as usize;

impl Order for Newest {
    fn come(&mut self, page: u64) -> bool {
        self.resume(page, false);
        false
    }

    fn resume(&mut self, page: u64, _wanted: bool) {
        self.window.push(page);
        if self.window.len() > IN_USE
            && let Some(page) = self.window.oldest()
        {
            self.rest.push(page);
        }
    }

    fn gone(&mut self, page: u64, _left: bool) {
        self.window.remove(page);
        self.rest.remove(page);
    }

    fn next(&mut self) -> Option<u64> {
        self.rest.newest().or_else(|| self.window.oldest())
    }

    fn all(&self) -> Vec<(u64, bool)> {
        self.rest.all().chain(self.window.all()).map(|page| (page, false)).collect()
    }
}
