//! The order in which pages of anonymous memory are evicted. Uses of pages that are in the program
//! cannot be observed; only the return of a page soon after its eviction can. So a page gets its
//! position when it arrives.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// An order of eviction.
pub(crate) trait Order: Default + Send + 'static {
    /// Whether this cache leaves the last free frames to others, because its pages are of little
    /// use.
    const YIELDS: bool = false;
    /// Records the arrival of a page. Returns whether it has returned soon after it had left.
    fn come(&mut self, page: u64) -> bool;
    /// As `come`, for a page whose `wanted` is already known.
    fn resume(&mut self, page: u64, wanted: bool);
    /// Records that a page that was about to leave could not. Other pages leave before it, since it
    /// would otherwise be chosen again and again.
    fn stayed(&mut self, page: u64);
    /// Records that a page is not here any more. `left`: it was evicted, and may return.
    fn gone(&mut self, page: u64, left: bool);
    /// Returns the page to evict next, and removes it from those that can be evicted.
    fn next(&mut self) -> Option<u64>;
    /// Returns the position of a page among those that can be evicted.
    fn rank(&self, page: u64) -> Option<Rank>;
    /// Returns the number of pages that are of no more use.
    fn spare(&self) -> usize {
        0
    }
}

/// The position of a page: within a queue, in the order in which pages came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether it returned soon after it had left.
    pub(crate) wanted: bool,
    /// Whether it is in the last of the queues.
    last: bool,
    stamp: u64,
}

/// A queue that allows removal from its middle.
#[derive(Debug, Default)]
struct Queue {
    pages: VecDeque<(u64, u64)>,
    /// The current stamp of each page in the queue; entries with other stamps are stale. Stamps
    /// grow from front to back.
    stamps: FxHashMap<u64, u64>,
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

    fn rank(&self, page: u64, wanted: bool, last: bool) -> Option<Rank> {
        self.stamps.get(&page).map(|&stamp| Rank { wanted, last, stamp })
    }
}

/// Pages that were about to leave and could not.
#[derive(Debug, Default)]
struct RetryQueue {
    pages: Queue,
    turn: u8,
}

impl RetryQueue {
    /// Returns one of them at every fourth call: they are tried again, and never keep the others
    /// from leaving.
    fn due(&mut self) -> Option<u64> {
        self.turn = (self.turn + 1) % 4;
        if self.turn == 0 { self.pages.oldest() } else { None }
    }
}

/// Two queues (2Q; Johnson and Shasha 1994): pages that came once, and pages that returned soon
/// after they had left. Pages that came once leave first as long as they are more than a quarter of
/// all.
#[derive(Debug, Default)]
pub(crate) struct TwoQueues {
    once: Queue,
    wanted: Queue,
    /// The pages that left last: half as many as are here, and 64 more at most.
    left: Queue,
    stayed: RetryQueue,
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

    fn stayed(&mut self, page: u64) {
        self.stayed.pages.push(page);
    }

    fn gone(&mut self, page: u64, left: bool) {
        self.once.remove(page);
        self.wanted.remove(page);
        self.stayed.pages.remove(page);
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
        if let Some(page) = self.stayed.due() {
            return Some(page);
        }
        let enough = (self.once.len() + self.wanted.len()) / 4;
        let first = if self.once.len() > enough { self.once.oldest() } else { None };
        let first = first.or_else(|| self.wanted.oldest()).or_else(|| self.once.oldest());
        first.or_else(|| self.stayed.pages.oldest())
    }

    fn rank(&self, page: u64) -> Option<Rank> {
        let rank = self.once.rank(page, false, false);
        let rank = rank.or_else(|| self.wanted.rank(page, true, false));
        rank.or_else(|| self.stayed.pages.rank(page, true, true))
    }
}

/// The order for memory that is traversed once, or again and again (Soules 2003, §6.3): the pages
/// that came last leave first, except for the very last ones, which are in use.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    window: Queue,
    rest: Queue,
    stayed: RetryQueue,
}

/// Pages around the position of a sequential reader, which it may still use.
const IN_USE: usize = 2 * super::fcm::GROUP as usize;

impl Order for Newest {
    const YIELDS: bool = true;

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

    fn stayed(&mut self, page: u64) {
        self.stayed.pages.push(page);
    }

    fn gone(&mut self, page: u64, _left: bool) {
        self.window.remove(page);
        self.rest.remove(page);
        self.stayed.pages.remove(page);
    }

    fn next(&mut self) -> Option<u64> {
        let due = self.stayed.due();
        let first = due.or_else(|| self.rest.newest()).or_else(|| self.window.oldest());
        first.or_else(|| self.stayed.pages.oldest())
    }

    fn rank(&self, page: u64) -> Option<Rank> {
        let rank = self.stayed.pages.rank(page, false, false);
        let rank = rank.or_else(|| self.rest.rank(page, false, false));
        rank.or_else(|| self.window.rank(page, false, true))
    }

    fn spare(&self) -> usize {
        self.rest.len()
    }
}
