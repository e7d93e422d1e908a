//! Records which holder has which page of a group, and decides on transfers without making them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use refit_messages::InstanceId;

use crate::page::PAGE_SIZE;

/// The access of a holder to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Read it, as other holders may.
    Read,
    /// Write to it, while no other holder has it.
    Write,
}

impl Access {
    /// Returns the access that a thread needs which writes to a page, or only reads it.
    pub(crate) fn of(write: bool) -> Self {
        if write { Self::Write } else { Self::Read }
    }
}

/// The steps by which a holder gets a page, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The holder that has the content; `None` if the requester has it.
    pub(crate) from: Option<InstanceId>,
    /// Whether that holder keeps the page for reading.
    pub(crate) keeps: bool,
    /// Other holders that must drop the page.
    pub(crate) lose: Vec<InstanceId>,
}

/// The holders of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PageHolder {
    /// One, which may write to it.
    Writer(InstanceId),
    /// Some, which may read it.
    Readers(BTreeSet<InstanceId>),
}

/// The holders of all pages. A page that is not listed is the origin's.
#[derive(Debug)]
pub(crate) struct Directory {
    origin: InstanceId,
    pages: BTreeMap<u64, PageHolder>,
}

impl Directory {
    pub(crate) fn new(origin: InstanceId) -> Self {
        Self { origin, pages: BTreeMap::new() }
    }

    /// Gives a page to a holder. Returns what to do for that; it counts as done from now on.
    pub(crate) fn fetch(&mut self, by: InstanceId, page: u64, access: Access) -> Plan {
        let holder = self.pages.remove(&page).unwrap_or(PageHolder::Writer(self.origin));
        let (plan, holder) = match (holder, access) {
            (PageHolder::Writer(owner), _) if owner == by => {
                (Plan::nothing(), PageHolder::Writer(owner))
            }
            (PageHolder::Writer(owner), Access::Read) => {
                (Plan::from(owner, true), PageHolder::Readers(BTreeSet::from([owner, by])))
            }
            (PageHolder::Writer(owner), Access::Write) => {
                (Plan::from(owner, false), PageHolder::Writer(by))
            }
            (PageHolder::Readers(mut some), Access::Read) => {
                let plan = if some.insert(by) {
                    Plan::from(self.best(&some, by), true)
                } else {
                    Plan::nothing()
                };
                (plan, PageHolder::Readers(some))
            }
            (PageHolder::Readers(mut some), Access::Write) => {
                let mut plan = Plan::nothing();
                if !some.remove(&by) {
                    let from = self.best(&some, by);
                    some.remove(&from);
                    plan = Plan::from(from, false);
                }
                plan.lose = some.into_iter().collect();
                (plan, PageHolder::Writer(by))
            }
        };
        // Pages of the origin are not listed.
        if holder != PageHolder::Writer(self.origin) {
            self.pages.insert(page, holder);
        }
        plan
    }

    /// Returns which of some holders to ask: the origin, which is here, if it is one of them.
    fn best(&self, some: &BTreeSet<InstanceId>, but: InstanceId) -> InstanceId {
        let others = || some.iter().copied().filter(|&one| one != but);
        others().find(|&one| one == self.origin).or_else(|| others().next()).unwrap_or(self.origin)
    }

    /// Returns whether the origin can give a page to a holder that lacks it without asking others.
    pub(crate) fn at_hand(&self, by: InstanceId, page: u64, access: Access) -> bool {
        match self.pages.get(&page) {
            None => by != self.origin,
            Some(PageHolder::Writer(_)) => false,
            Some(PageHolder::Readers(some)) => {
                access == Access::Read && some.contains(&self.origin) && !some.contains(&by)
            }
        }
    }

    /// Returns the holder that may write to a page, if there is one.
    pub(crate) fn writer(&self, page: u64) -> Option<InstanceId> {
        match self.pages.get(&page) {
            None => Some(self.origin),
            Some(PageHolder::Writer(one)) => Some(*one),
            Some(PageHolder::Readers(_)) => None,
        }
    }

    /// Returns whether a page has never left the origin, or is back.
    pub(crate) fn at_home(&self, page: u64) -> bool {
        !self.pages.contains_key(&page)
    }

    /// Returns the pages of a range that are not only the origin's.
    pub(crate) fn away(&self, range: &Range<u64>) -> Vec<u64> {
        self.pages.range(range.clone()).map(|(&page, _)| page).collect()
    }

    /// Discards the pages of a range. Returns which holder has to drop what.
    pub(crate) fn discard(&mut self, range: &Range<u64>) -> BTreeMap<InstanceId, Vec<Range<u64>>> {
        let mut drop: BTreeMap<InstanceId, Vec<Range<u64>>> = BTreeMap::new();
        for (page, holder) in self.pages.extract_if(range.clone(), |_, _| true) {
            let holders = match holder {
                PageHolder::Writer(one) => BTreeSet::from([one]),
                PageHolder::Readers(some) => some,
            };
            for holder in holders {
                let ranges = drop.entry(holder).or_default();
                match ranges.last_mut() {
                    Some(last) if last.end == page => last.end += PAGE_SIZE,
                    _ => ranges.push(page..page + PAGE_SIZE),
                }
            }
        }
        drop
    }

    /// Forgets a lost holder. Returns the number of pages that nobody has any more.
    pub(crate) fn forget_holder(&mut self, holder: InstanceId) -> usize {
        let mut lost = 0;
        self.pages.retain(|_, page_holder| match page_holder {
            PageHolder::Writer(one) if *one == holder => {
                lost += 1;
                false
            }
            PageHolder::Writer(_) => true,
            PageHolder::Readers(some) => {
                some.remove(&holder);
                lost += usize::from(some.is_empty());
                !some.is_empty()
            }
        });
        lost
    }
}

impl Plan {
    fn nothing() -> Self {
        Self { from: None, keeps: false, lose: Vec::new() }
    }

    fn from(holder: InstanceId, keeps: bool) -> Self {
        Self { from: Some(holder), keeps, lose: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    const ORIGIN: InstanceId = InstanceId(0);
    const ALL: [InstanceId; 3] = [ORIGIN, InstanceId(1), InstanceId(2)];

    /// The one page in a store: its value, and whether the page may be written to.
    type Page = Option<(u8, bool)>;

    /// The state of all parts at one moment: stores, grants and requests on their way, and the last
    /// value written.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Model {
        stores: [Page; 3],
        grants: [VecDeque<Page>; 3],
        fetches: VecDeque<(usize, bool)>,
        wants: [Option<bool>; 3],
        /// As `PageHolder`, to be compared in a set.
        holder: Option<(bool, Vec<u16>)>,
        last: u8,
        writes: u8,
    }

    fn directory(holder: &Option<(bool, Vec<u16>)>) -> Directory {
        let mut directory = Directory::new(ORIGIN);
        if let Some((alone, holders)) = holder {
            let holder = if *alone {
                PageHolder::Writer(InstanceId(holders[0]))
            } else {
                PageHolder::Readers(holders.iter().map(|&one| InstanceId(one)).collect())
            };
            directory.pages.insert(0, holder);
        }
        directory
    }

    fn holder(directory: &Directory) -> Option<(bool, Vec<u16>)> {
        directory.pages.get(&0).map(|holder| match holder {
            PageHolder::Writer(one) => (true, vec![one.0]),
            PageHolder::Readers(some) => (false, some.iter().map(|one| one.0).collect()),
        })
    }

    impl Model {
        fn new() -> Self {
            let (grants, fetches, wants) = Default::default();
            let stores = [Some((0, true)), None, None];
            Self { stores, grants, fetches, wants, holder: None, last: 0, writes: 0 }
        }

        /// Takes the page from a holder, behind all that was granted to it before.
        fn take(&mut self, from: InstanceId, keeps: bool) -> u8 {
            let at = usize::from(from.0);
            while let Some(granted) = self.grants[at].pop_front() {
                self.granted(at, granted);
            }
            let (value, _) = self.stores[at].expect("the holder that is asked has it");
            self.stores[at] = keeps.then_some((value, false));
            value
        }

        fn granted(&mut self, at: usize, granted: Page) {
            self.stores[at] = match (granted, self.stores[at]) {
                // The right to write to the page that is there.
                (Some((u8::MAX, writes)), Some((value, might))) => Some((value, writes || might)),
                (granted, _) => granted,
            };
            self.wants[at] = None;
        }

        /// Returns all states that can come next.
        fn next(&self) -> Vec<Self> {
            let mut all = Vec::new();
            for at in 0..3 {
                for write in [false, true] {
                    let mut next = self.clone();
                    match self.stores[at] {
                        Some((value, _)) if !write => {
                            assert_eq!(value, self.last, "what was written last is read: {self:?}");
                        }
                        Some((_, true)) if self.writes < 3 => {
                            next.writes += 1;
                            next.last = next.writes;
                            next.stores[at] = Some((next.last, true));
                            all.push(next);
                        }
                        Some((_, true)) => {}
                        _ if self.wants[at].is_none() => {
                            next.wants[at] = Some(write);
                            next.fetches.push_back((at, write));
                            all.push(next);
                        }
                        _ => {}
                    }
                }
                if !self.grants[at].is_empty() {
                    let mut next = self.clone();
                    let granted = next.grants[at].pop_front().expect("it is there");
                    next.granted(at, granted);
                    all.push(next);
                }
            }
            all.extend((0..self.fetches.len()).filter_map(|which| self.served(which)));
            all
        }

        /// Serves a request, in any order: one that waits for the end of a lease is overtaken.
        fn served(&self, which: usize) -> Option<Self> {
            let mut next = self.clone();
            let (at, write) = next.fetches.remove(which)?;
            let mut directory = directory(&next.holder);
            let access = Access::of(write);
            let plan = directory.fetch(ALL[at], 0, access);
            let value = plan.from.map(|from| next.take(from, plan.keeps));
            for lose in plan.lose {
                next.take(lose, false);
            }
            next.grants[at].push_back(Some((value.unwrap_or(u8::MAX), write)));
            next.holder = holder(&directory);
            Some(next)
        }
    }

    #[test]
    fn in_every_interleaving_of_three_holders_what_is_read_was_written_last() {
        let mut seen = HashSet::new();
        let mut left = vec![Model::new()];
        while let Some(state) = left.pop() {
            let writers = state.stores.iter().flatten().filter(|(_, writes)| *writes).count();
            let holders = state.stores.iter().flatten().count();
            assert!(writers == 0 || holders == 1, "one writes, or all read: {state:?}");
            if seen.insert(state.clone()) {
                left.extend(state.next());
            }
        }
        assert!(seen.len() > 1000, "{} states", seen.len());
    }

    #[test]
    fn discarded_pages_are_dropped_by_range_and_are_the_origins_again() {
        let mut directory = Directory::new(ORIGIN);
        for page in [0, 1, 2, 5] {
            directory.fetch(ALL[1], page * PAGE_SIZE, Access::Write);
        }
        directory.fetch(ALL[2], 5 * PAGE_SIZE, Access::Read);
        let dropped = directory.discard(&(0..u64::MAX));
        assert_eq!(dropped[&ALL[1]], [0..3 * PAGE_SIZE, 5 * PAGE_SIZE..6 * PAGE_SIZE]);
        assert_eq!(dropped[&ALL[2]], vec![5 * PAGE_SIZE..6 * PAGE_SIZE; 1]);
        assert!(directory.at_home(0) && directory.away(&(0..u64::MAX)).is_empty());
    }

    #[test]
    fn the_origin_answers_by_itself_where_it_has_what_is_asked_for() {
        let (origin, another) = (ALL[2], InstanceId(3));
        let mut directory = Directory::new(origin);
        assert!(!directory.at_hand(origin, 0, Access::Read) && directory.writer(0) == Some(origin));
        assert_eq!(directory.fetch(ALL[1], 0, Access::Write), Plan::from(origin, false));
        assert_eq!(directory.fetch(ALL[1], 0, Access::Write), Plan::nothing());
        assert_eq!(directory.writer(0), Some(ALL[1]));
        directory.fetch(ALL[0], 0, Access::Read);
        // Two others can read it, and the origin cannot.
        assert!(!directory.at_hand(another, 0, Access::Read) && directory.writer(0).is_none());
        directory.fetch(origin, 0, Access::Read);
        assert!(directory.at_hand(another, 0, Access::Read));
        assert!(!directory.at_hand(another, 0, Access::Write));
        assert_eq!(directory.fetch(another, 0, Access::Read), Plan::from(origin, true));
        assert!(!directory.at_hand(another, 0, Access::Read), "it has the page");
        assert_eq!(directory.fetch(origin, 0, Access::Write).lose, [ALL[0], ALL[1], another]);
        assert!(directory.at_home(0) && directory.away(&(0..PAGE_SIZE)).is_empty());
    }

    #[test]
    fn a_page_that_some_could_read_is_lost_with_the_last_of_them() {
        let mut directory = Directory::new(ORIGIN);
        directory.fetch(ALL[1], 0, Access::Write);
        directory.fetch(ALL[2], 0, Access::Read);
        assert_eq!(directory.forget_holder(ALL[1]), 0);
        assert_eq!(directory.forget_holder(ALL[2]), 1);
    }

    #[test]
    fn pages_that_only_a_lost_holder_had_are_lost() {
        let mut directory = Directory::new(ORIGIN);
        directory.fetch(ALL[1], 0, Access::Write);
        assert!(!directory.at_hand(ALL[2], 0, Access::Read), "its writer has to be asked");
        directory.fetch(ALL[1], PAGE_SIZE, Access::Read);
        assert_eq!(directory.forget_holder(ALL[1]), 1);
        assert!(!directory.at_hand(ORIGIN, PAGE_SIZE, Access::Read));
        assert!(directory.at_hand(ALL[2], PAGE_SIZE, Access::Read));
    }
}
