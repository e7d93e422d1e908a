//! In which order pages of anonymous memory go out. Nobody sees how pages that are in are used, only which come back soon after
//! they had left; so a page has its order from its coming.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Says which page goes next.
pub(crate) trait Order: Default + Send + 'static {
    /// Whether the last frames that are free are left to others: its pages are of little use.
    const YIELDS: bool = false;
    /// A page has come; whether it has come back soon after it had left.
    fn come(&mut self, page: u64) -> bool;
    /// As `come`, of a page of which is known whether it was wanted.
    fn resume(&mut self, page: u64, wanted: bool);
    /// A page that was to go could not: others go before it, or it would be asked again and again.
    fn stayed(&mut self, page: u64);
    /// A page is not here any more. `left`: it went out, and may come back.
    fn gone(&mut self, page: u64, left: bool);
    /// The page that goes next, which is not among those that can go from then on.
    fn next(&mut self) -> Option<u64>;
    /// Where a page stands among those that can go.
    fn rank(&self, page: u64) -> Option<Rank>;
    /// How many pages are of no more use.
    fn spare(&self) -> usize {
        0
    }
}

/// Where a page stands: those of one queue, in the order in which they came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether it came back soon after it had left.
    pub(crate) wanted: bool,
    /// Whether it stands in the last of its queues.
    last: bool,
    stamp: u64,
}

/// A queue out of whose middle pages can be taken.
#[derive(Debug, Default)]
struct Queue {
    pages: VecDeque<(u64, u64)>,
    /// The stamp with which each page stands in the queue. Others of it are left over. They grow from front to back.
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

/// Pages that were to go and could not.
#[derive(Debug, Default)]
struct Stayed {
    pages: Queue,
    turn: u8,
}

impl Stayed {
    /// One of them, every fourth time: they are tried again, and never stand in the way of the others.
    fn due(&mut self) -> Option<u64> {
        self.turn = (self.turn + 1) % 4;
        if self.turn == 0 { self.pages.oldest() } else { None }
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
    stayed: Stayed,
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

/// Those that came last go first, but for the last few, which are being used: for memory that is gone through once, or again and again
/// (Soules 2003, §6.3).
#[derive(Debug, Default)]
pub(crate) struct Newest {
    window: Queue,
    rest: Queue,
    stayed: Stayed,
}

/// Pages around the place where a sequential reader is, which it may still use.
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
