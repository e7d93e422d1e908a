//! Who has which page of a group: the decisions, without the doing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use refit_messages::InstanceId;

use crate::page::PAGE_SIZE;

/// What a holder may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// As others may.
    Read,
    /// And nobody else has it.
    Write,
}

/// What has to be done for a holder to have a page, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Who says what is on it; `None`: whoever wants it knows.
    pub(crate) from: Option<InstanceId>,
    /// Whether that one may read it on.
    pub(crate) keeps: bool,
    /// Who has it no more besides.
    pub(crate) lose: Vec<InstanceId>,
}

/// Who has a page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PageHolder {
    /// One, who may write to it.
    By(InstanceId),
    /// Some, who may read it.
    Among(BTreeSet<InstanceId>),
}

/// Who has which page. Those of which nothing is said are the origin's.
#[derive(Debug)]
pub(crate) struct Directory {
    origin: InstanceId,
    pages: BTreeMap<u64, PageHolder>,
}

impl Directory {
    pub(crate) fn new(origin: InstanceId) -> Self {
        Self { origin, pages: BTreeMap::new() }
    }

    /// A holder is to have a page: what has to be done. It counts as done from now on.
    pub(crate) fn fetch(&mut self, by: InstanceId, page: u64, access: Access) -> Plan {
        let held = self.pages.remove(&page).unwrap_or(PageHolder::By(self.origin));
        let (plan, held) = match (held, access) {
            (PageHolder::By(owner), _) if owner == by => (Plan::nothing(), PageHolder::By(owner)),
            (PageHolder::By(owner), Access::Read) => {
                (Plan::from(owner, true), PageHolder::Among(BTreeSet::from([owner, by])))
            }
            (PageHolder::By(owner), Access::Write) => {
                (Plan::from(owner, false), PageHolder::By(by))
            }
            (PageHolder::Among(mut some), Access::Read) => {
                let plan = if some.insert(by) {
                    Plan::from(self.best(&some, by), true)
                } else {
                    Plan::nothing()
                };
                (plan, PageHolder::Among(some))
            }
            (PageHolder::Among(mut some), Access::Write) => {
                let mut plan = Plan::nothing();
                if !some.remove(&by) {
                    let from = self.best(&some, by);
                    some.remove(&from);
                    plan = Plan::from(from, false);
                }
                plan.lose = some.into_iter().collect();
                (plan, PageHolder::By(by))
            }
        };
        // What is the origin's is not told.
        if held != PageHolder::By(self.origin) {
            self.pages.insert(page, held);
        }
        plan
    }

    /// Who of some is asked: the origin, which is here, if it can be.
    fn best(&self, some: &BTreeSet<InstanceId>, but: InstanceId) -> InstanceId {
        let others = || some.iter().copied().filter(|&one| one != but);
        others().find(|&one| one == self.origin).or_else(|| others().next()).unwrap_or(self.origin)
    }

    /// Whether the origin could give a page to a holder that lacks it without asking anybody else.
    pub(crate) fn at_hand(&self, by: InstanceId, page: u64, access: Access) -> bool {
        match self.pages.get(&page) {
            None => by != self.origin,
            Some(PageHolder::By(_)) => false,
            Some(PageHolder::Among(some)) => {
                access == Access::Read && some.contains(&self.origin) && !some.contains(&by)
            }
        }
    }

    /// Who may write to a page, if anybody.
    pub(crate) fn writer(&self, page: u64) -> Option<InstanceId> {
        match self.pages.get(&page) {
            None => Some(self.origin),
            Some(PageHolder::By(one)) => Some(*one),
            Some(PageHolder::Among(_)) => None,
        }
    }

    /// Whether a page has never gone anywhere, or is back.
    pub(crate) fn at_home(&self, page: u64) -> bool {
        !self.pages.contains_key(&page)
    }

    /// Pages of a range that are not only the origin's.
    pub(crate) fn away(&self, range: &Range<u64>) -> Vec<u64> {
        self.pages.range(range.clone()).map(|(&page, _)| page).collect()
    }

    /// What is in a range is not needed any more: who is to drop what.
    pub(crate) fn discard(&mut self, range: &Range<u64>) -> BTreeMap<InstanceId, Vec<Range<u64>>> {
        let mut drop: BTreeMap<InstanceId, Vec<Range<u64>>> = BTreeMap::new();
        for (page, held) in self.pages.extract_if(range.clone(), |_, _| true) {
            let holders = match held {
                PageHolder::By(one) => BTreeSet::from([one]),
                PageHolder::Among(some) => some,
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

    /// A holder is no more; how many pages nobody has any more.
    pub(crate) fn lost(&mut self, holder: InstanceId) -> usize {
        let mut gone = 0;
        self.pages.retain(|_, held| match held {
            PageHolder::By(one) if *one == holder => {
                gone += 1;
                false
            }
            PageHolder::By(_) => true,
            PageHolder::Among(some) => {
                some.remove(&holder);
                gone += usize::from(some.is_empty());
                !some.is_empty()
            }
        });
        gone
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

    /// What a store has of the one page: which value, and whether it may be written to.
    type Page = Option<(u8, bool)>;

    /// Everything at one moment: stores, grants on their way, requests on their way, and the last value written.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        stores: [Page; 3],
        grants: [VecDeque<Page>; 3],
        fetches: VecDeque<(usize, bool)>,
        wants: [Option<bool>; 3],
        /// As `PageHolder`, to be compared in a set.
        held: Option<(bool, Vec<u16>)>,
        last: u8,
        writes: u8,
    }

    fn directory(held: &Option<(bool, Vec<u16>)>) -> Directory {
        let mut directory = Directory::new(ORIGIN);
        if let Some((alone, holders)) = held {
            let held = if *alone {
                PageHolder::By(InstanceId(holders[0]))
            } else {
                PageHolder::Among(holders.iter().map(|&one| InstanceId(one)).collect())
            };
            directory.pages.insert(0, held);
        }
        directory
    }

    fn held(directory: &Directory) -> Option<(bool, Vec<u16>)> {
        directory.pages.get(&0).map(|held| match held {
            PageHolder::By(one) => (true, vec![one.0]),
            PageHolder::Among(some) => (false, some.iter().map(|one| one.0).collect()),
        })
    }

    impl World {
        fn new() -> Self {
            let (grants, fetches, wants) = Default::default();
            let stores = [Some((0, true)), None, None];
            Self { stores, grants, fetches, wants, held: None, last: 0, writes: 0 }
        }

        /// What the page home takes from a holder comes behind all that was granted to it.
        fn take(&mut self, from: InstanceId, keeps: bool) -> u8 {
            let at = usize::from(from.0);
            while let Some(granted) = self.grants[at].pop_front() {
                self.granted(at, granted);
            }
            let (value, _) = self.stores[at].expect("who is asked for it has it");
            self.stores[at] = keeps.then_some((value, false));
            value
        }

        fn granted(&mut self, at: usize, granted: Page) {
            self.stores[at] = match (granted, self.stores[at]) {
                // The right to write to what is there.
                (Some((u8::MAX, writes)), Some((value, might))) => Some((value, writes || might)),
                (granted, _) => granted,
            };
            self.wants[at] = None;
        }

        /// All that can happen next.
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

        /// The page home does what was asked, in whatever order: what waits for a turn is overtaken.
        fn served(&self, which: usize) -> Option<Self> {
            let mut next = self.clone();
            let (at, write) = next.fetches.remove(which)?;
            let mut directory = directory(&next.held);
            let access = if write { Access::Write } else { Access::Read };
            let plan = directory.fetch(ALL[at], 0, access);
            let value = plan.from.map(|from| next.take(from, plan.keeps));
            for lose in plan.lose {
                next.take(lose, false);
            }
            next.grants[at].push_back(Some((value.unwrap_or(u8::MAX), write)));
            next.held = held(&directory);
            Some(next)
        }
    }

    #[test]
    fn in_every_interleaving_of_three_holders_what_is_read_was_written_last() {
        let mut seen = HashSet::new();
        let mut left = vec![World::new()];
        while let Some(world) = left.pop() {
            let writers = world.stores.iter().flatten().filter(|(_, writes)| *writes).count();
            let holders = world.stores.iter().flatten().count();
            assert!(writers == 0 || holders == 1, "one writes, or all read: {world:?}");
            if seen.insert(world.clone()) {
                left.extend(world.next());
            }
        }
        assert!(seen.len() > 1000, "{} worlds", seen.len());
    }

    #[test]
    fn what_is_discarded_is_told_by_range_and_is_the_origins_again() {
        let mut directory = Directory::new(ORIGIN);
        for page in [0, 1, 2, 5] {
            directory.fetch(ALL[1], page * PAGE_SIZE, Access::Write);
        }
        directory.fetch(ALL[2], 5 * PAGE_SIZE, Access::Read);
        let told = directory.discard(&(0..u64::MAX));
        assert_eq!(told[&ALL[1]], [0..3 * PAGE_SIZE, 5 * PAGE_SIZE..6 * PAGE_SIZE]);
        assert_eq!(told[&ALL[2]], vec![5 * PAGE_SIZE..6 * PAGE_SIZE; 1]);
        assert!(directory.at_home(0) && directory.away(&(0..u64::MAX)).is_empty());
    }

    #[test]
    fn pages_that_only_a_lost_holder_had_are_gone() {
        let mut directory = Directory::new(ORIGIN);
        directory.fetch(ALL[1], 0, Access::Write);
        directory.fetch(ALL[1], PAGE_SIZE, Access::Read);
        assert_eq!(directory.lost(ALL[1]), 1);
        assert!(!directory.at_hand(ORIGIN, PAGE_SIZE, Access::Read));
        assert!(directory.at_hand(ALL[2], PAGE_SIZE, Access::Read));
    }
}
