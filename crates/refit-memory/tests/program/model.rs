//! Random calls of a cache, checked against tables of the contents of each place, with swaps
//! between any two calls.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use refit_memory::program::{
    AnonymousCacheInterface, Before, BudgetStats, GROUP, LendError, Place,
};
use refit_memory::store::PageStore;
use refit_memory::{CacheError, FileRepresentative, PAGE_SIZE};
use refit_objects::Interface;

use crate::common::{
    Contents, IMPLEMENTATIONS, PAGE_SIZE_U64, Subject, contents_of, page_of, store, swap,
};

const PAGES: u64 = 5 * GROUP;
/// The number of stores: those of [`store`], and one that accepts only pages of zeros.
const STORES: usize = 4;
const FULL: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Lend(u64, usize),
    /// Some pages of one of the lent runs have arrived; the others have failed.
    Landed(usize, usize),
    Found(usize),
    Adopt(Range<u64>),
    Recall(usize),
    TakeBack(usize),
    Keep(usize),
    Stay(usize),
    Forget(Range<u64>),
    Doom(Range<u64>),
    Settle(usize, bool),
    SplitOff(Range<u64>, usize),
    Write(u64),
    Allow(u64),
    Swap(usize),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    let length = prop_oneof![4 => 1..4_u64, 2 => 1..GROUP * 2, 1 => Just(PAGES)];
    (0..PAGES, length).prop_map(|(start, length)| start..start + length)
}

fn op() -> impl Strategy<Value = Op> {
    let some = || prop_oneof![1..4_usize, Just(64)];
    prop_oneof![
        8 => (0..PAGES, 1..=GROUP as usize).prop_map(|(page, most)| Op::Lend(page, most)),
        8 => (0..8_usize, prop_oneof![3 => Just(16_usize), 1 => 0..4_usize])
            .prop_map(|(which, done)| Op::Landed(which, done)),
        1 => (0..8_usize).prop_map(Op::Found),
        2 => range().prop_map(Op::Adopt),
        4 => (0..12_usize).prop_map(Op::Recall),
        4 => some().prop_map(Op::TakeBack),
        1 => some().prop_map(Op::Keep),
        2 => some().prop_map(Op::Stay),
        1 => range().prop_map(Op::Forget),
        3 => range().prop_map(Op::Doom),
        2 => (some(), any::<bool>()).prop_map(|(most, there)| Op::Settle(most, there)),
        1 => (range(), 0..3_usize).prop_map(|(range, to)| Op::SplitOff(range, to)),
        4 => (0..PAGES).prop_map(Op::Write),
        1 => (0..60_u64).prop_map(Op::Allow),
        3 => (0..3_usize).prop_map(Op::Swap),
    ]
}

/// The expected contents of each place.
struct Model {
    full: bool,
    limit: u64,
    here: BTreeMap<u64, Place>,
    behind: BTreeMap<u64, Contents>,
    /// The contents of pages that are in the program, doomed or leaving.
    program: BTreeMap<u64, Contents>,
    /// The runs that are landing, with the contents that were lent.
    lent: Vec<(u64, Vec<Contents>)>,
    version: Contents,
    evictions: u64,
    faults: u64,
    around: u64,
}

impl Model {
    fn new(limit: u64, full: bool) -> Self {
        Self {
            full,
            limit,
            here: BTreeMap::new(),
            behind: BTreeMap::new(),
            program: BTreeMap::new(),
            lent: Vec::new(),
            version: 0,
            evictions: 0,
            faults: 0,
            around: 0,
        }
    }

    /// Returns new contents; sometimes zeros, which take no space in the store.
    fn fresh(&mut self) -> Contents {
        self.version += 1;
        if self.version.is_multiple_of(5) { 0 } else { self.version }
    }

    fn all_that_are(&self, place: Place, most: usize) -> Vec<u64> {
        let all = self.here.iter().filter(|(_, is)| **is == place).map(|(&page, _)| page);
        all.take(most).collect()
    }

    fn on_their_way(&self, range: &Range<u64>) -> bool {
        let moving = |place: &Place| matches!(place, Place::Landing(_) | Place::Leaving);
        self.here.range(range.clone()).any(|(_, place)| moving(place))
    }

    fn last_frames(&self) -> u64 {
        BudgetStats { limit: self.limit, ..BudgetStats::default() }.reserve() / 4
    }

    fn lend(&mut self, subject: &Subject, page: u64, most: usize) {
        let free = self.limit.saturating_sub(self.here.len() as u64);
        let end = (page / GROUP + 1) * GROUP;
        let out = |page: &u64| !self.here.contains_key(page);
        let run = (page..end).take(most).take_while(out).count().min(free as usize);
        let (before, count) = match self.here.get(&page) {
            Some(Place::Landing(_) | Place::Leaving) => (None, Err(LendError::Moving)),
            Some(Place::In) => (Some(Before::In), Ok(1)),
            Some(Place::Doomed) => (Some(Before::Doomed), Ok(1)),
            // A cache that can spare pages leaves the last frames to others, as `sequential` does.
            None if run == 0 || (subject.cache.spare() > 0 && free < self.last_frames()) => {
                (None, Err(LendError::NoFrame))
            }
            None => (Some(Before::Out), Ok(run)),
        };
        let mut into = vec![0xee; most * PAGE_SIZE];
        assert_eq!(subject.cache.lend(page, &mut into), count);
        let (Some(before), Ok(count)) = (before, count) else { return };
        let lent: Vec<_> = into.chunks(PAGE_SIZE).take(count).map(contents_of).collect();
        for (page, lent) in (page..).zip(&lent) {
            assert_eq!(self.behind.get(&page).unwrap_or(&0), lent, "page {page}");
            self.here.insert(page, Place::Landing(before));
        }
        self.faults += 1;
        self.around += lent.len() as u64 - 1;
        self.lent.push((page, lent));
    }

    fn landed(&mut self, subject: &Subject, which: usize, done: usize) {
        if self.lent.is_empty() {
            return;
        }
        let (page, lent) = self.lent.swap_remove(which % self.lent.len());
        let done = done.min(lent.len());
        if done > 0 {
            subject.cache.landed(page, done, true);
        }
        if done < lent.len() {
            subject.cache.landed(page + done as u64, lent.len() - done, false);
        }
        for (at, lent) in lent.into_iter().enumerate() {
            let page = page + at as u64;
            let Some(&Place::Landing(before)) = self.here.get(&page) else { continue };
            if at < done {
                self.behind.remove(&page);
                self.program.insert(page, lent);
                self.here.insert(page, Place::In);
                continue;
            }
            match before {
                Before::Out => self.here.remove(&page),
                Before::In => self.here.insert(page, Place::In),
                Before::Doomed => self.here.insert(page, Place::Doomed),
            };
        }
    }

    fn found(&mut self, subject: &Subject, which: usize) {
        let alone = |(_, lent): &(u64, Vec<_>)| lent.len() == 1;
        let Some(at) = self.lent.iter().skip(which).position(alone) else { return };
        let (page, _) = self.lent.swap_remove(at + which);
        subject.cache.found(page);
        self.behind.remove(&page);
        let place = match self.here[&page] {
            Place::Landing(Before::Doomed) => Place::Doomed,
            _ => Place::In,
        };
        self.here.insert(page, place);
        if !self.program.contains_key(&page) {
            let fresh = self.fresh();
            self.program.insert(page, fresh);
        }
    }

    fn adopt(&mut self, subject: &Subject, range: &Range<u64>) {
        let pages: Vec<u64> = range.clone().collect();
        let mut done = 0;
        for &page in &pages {
            if !self.here.contains_key(&page) {
                if self.here.len() as u64 >= self.limit {
                    break;
                }
                self.here.insert(page, Place::In);
                let fresh = self.fresh();
                self.program.insert(page, fresh);
            }
            done += 1;
        }
        assert_eq!(subject.cache.adopt(&pages), done);
    }

    fn recall(&mut self, subject: &Subject, most: usize) {
        let pages = subject.cache.recall(most);
        assert_eq!(pages.len(), self.all_that_are(Place::In, most).len());
        assert!(pages.is_sorted());
        for page in pages {
            assert_eq!(self.here.insert(page, Place::Leaving), Some(Place::In));
        }
    }

    fn take_back(&mut self, subject: &Subject, most: usize) {
        let pages = self.all_that_are(Place::Leaving, most);
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page_of(self.program[page])).collect();
        match subject.cache.take_back(&pages, &bytes) {
            Ok(()) => self.evict(&pages),
            Err(error) => {
                assert!(self.full && error == CacheError::Host(libc::ENOSPC), "{error}");
                let leaving = subject.cache.stats().resident;
                assert_eq!(leaving, self.here.len() as u64, "they are leaving still");
                self.keep(subject, most);
            }
        }
    }

    fn keep(&mut self, subject: &Subject, most: usize) {
        let pages = self.all_that_are(Place::Leaving, most);
        for page in &pages {
            subject.behind.keep(*page, &page_of(self.program[page]));
        }
        subject.cache.left(&pages);
        self.evict(&pages);
    }

    fn evict(&mut self, pages: &[u64]) {
        for page in pages {
            self.here.remove(page);
            let held = self.program.remove(page).expect("it was in the program");
            self.behind.insert(*page, held);
        }
        self.evictions += pages.len() as u64;
    }

    /// Forgets a range. Pages that were in transit do not belong to the program any more either,
    /// whatever their outcome.
    fn forget(&mut self, subject: &Subject, range: &Range<u64>) {
        let leaving = self.all_that_are(Place::Leaving, usize::MAX);
        let leaving: Vec<u64> = leaving.into_iter().filter(|page| range.contains(page)).collect();
        subject.cache.forget(range.start, range.end);
        for page in range.clone() {
            self.here.remove(&page);
            self.behind.remove(&page);
            self.program.remove(&page);
        }
        let touched = |(page, lent): &(u64, Vec<_>)| {
            (*page..page + lent.len() as u64).any(|page| range.contains(&page))
        };
        while let Some(which) = self.lent.iter().position(touched) {
            self.landed(subject, which, usize::MAX);
        }
        let bytes = vec![7; leaving.len() * PAGE_SIZE];
        subject.cache.take_back(&leaving, &bytes).expect("there is nothing to write");
        subject.cache.left(&leaving);
        subject.cache.stay(&leaving);
    }

    fn doom(&mut self, subject: &Subject, range: &Range<u64>) {
        if self.on_their_way(range) {
            return;
        }
        subject.cache.doom(range.start, range.end);
        for page in range.clone() {
            self.behind.remove(&page);
            if let Some(place) = self.here.get_mut(&page) {
                *place = Place::Doomed;
            }
        }
    }

    fn settle(&mut self, subject: &Subject, most: usize, there: bool) {
        // Only doomed pages matter here.
        let mut pages = self.all_that_are(Place::Doomed, most);
        subject.cache.settle(&[pages.as_slice(), &[PAGES * 3]].concat(), there);
        for page in pages.drain(..) {
            if there {
                self.here.insert(page, Place::In);
            } else {
                self.here.remove(&page);
                self.program.remove(&page);
            }
        }
    }

    /// Splits off a range as a region of its own, checks that its contents are unchanged, and ends
    /// it.
    fn split_off(&mut self, subject: &Subject, range: &Range<u64>, to: usize) {
        if self.on_their_way(range) {
            return;
        }
        let apart = subject.apart(IMPLEMENTATIONS[to], subject.behind.split_off(range.clone()));
        let pages = subject.cache.split_off(range.start, range.end);
        let taken: BTreeMap<u64, Place> = pages.iter().map(|one| (one.page, one.place)).collect();
        assert_eq!(taken.len(), pages.len(), "each of them once");
        apart.cache.join(pages);
        let mut theirs = Self::new(self.limit, self.full);
        let inside = |pages: &mut BTreeMap<u64, _>| {
            let mut part = pages.split_off(&range.start);
            pages.append(&mut part.split_off(&range.end));
            part
        };
        (theirs.behind, theirs.program) = (inside(&mut self.behind), inside(&mut self.program));
        let mut here = self.here.split_off(&range.start);
        self.here.append(&mut here.split_off(&range.end));
        theirs.here = here;
        assert_eq!(taken, theirs.here);
        theirs.check_tables(&apart);
        self.check_tables(subject);
        theirs.take_back_all(&apart);
        apart.end();
    }

    /// Evicts every page, and checks that each has its contents when it comes back.
    fn take_back_all(&mut self, subject: &Subject) {
        for which in (0..self.lent.len()).rev() {
            self.landed(subject, which, usize::MAX);
        }
        self.settle(subject, usize::MAX, false);
        self.recall(subject, PAGES as usize * 2);
        self.take_back(subject, usize::MAX);
        self.check_tables(subject);
        let copy = subject.behind.fork();
        let mut bytes = vec![0xee; PAGE_SIZE];
        for page in 0..2 * PAGES {
            assert_eq!(copy.read(page * PAGE_SIZE_U64, &mut bytes), Ok(PAGE_SIZE));
            assert_eq!(contents_of(&bytes), *self.behind.get(&page).unwrap_or(&0), "page {page}");
        }
    }

    fn run(&mut self, subject: &Subject, op: &Op) {
        match op {
            &Op::Lend(page, most) => self.lend(subject, page, most),
            &Op::Landed(which, done) => self.landed(subject, which, done),
            &Op::Found(which) => self.found(subject, which),
            Op::Adopt(range) => self.adopt(subject, range),
            &Op::Recall(most) => self.recall(subject, most),
            &Op::TakeBack(most) => self.take_back(subject, most),
            &Op::Keep(most) => self.keep(subject, most),
            &Op::Stay(most) => {
                let pages = self.all_that_are(Place::Leaving, most);
                subject.cache.stay(&pages);
                self.here.extend(pages.into_iter().map(|page| (page, Place::In)));
            }
            Op::Forget(range) => self.forget(subject, range),
            Op::Doom(range) => self.doom(subject, range),
            &Op::Settle(most, there) => self.settle(subject, most, there),
            Op::SplitOff(range, to) => self.split_off(subject, range, *to),
            Op::Write(page) => {
                if self.here.get(page) == Some(&Place::In) {
                    let fresh = self.fresh();
                    self.program.insert(*page, fresh);
                }
            }
            &Op::Allow(limit) => {
                self.limit = limit;
                subject.budget.allow(limit);
            }
            &Op::Swap(to) => {
                swap(AnonymousCacheInterface::id(subject.cache), IMPLEMENTATIONS[to]);
            }
        }
        self.check_tables(subject);
        let stats = subject.cache.stats();
        let done = (stats.faults, stats.around, stats.evictions);
        assert_eq!(done, (self.faults, self.around, self.evictions));
        assert_eq!(subject.budget.stats().taken, self.here.len() as u64);
    }

    fn check_tables(&self, subject: &Subject) {
        assert_eq!(subject.cache.stats().resident, self.here.len() as u64);
        assert_eq!(subject.cache.doomed(), self.all_that_are(Place::Doomed, usize::MAX));
        assert!(subject.behind.numbers().iter().eq(self.behind.keys()));
    }
}

fn play(implementation: usize, which: usize, ops: &[Op]) {
    let store = if which == FULL { PageStore::new(0, None) } else { store(which) };
    let limit = 30;
    let subject = Subject::new(IMPLEMENTATIONS[implementation], limit, store);
    let mut model = Model::new(limit, which == FULL);
    for op in ops {
        model.run(&subject, op);
    }
    model.take_back_all(&subject);
    subject.end_all();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_is_where_the_model_has_it(
        implementation in 0..3_usize,
        store in 0..STORES,
        ops in proptest::collection::vec(op(), 1..150),
    ) {
        play(implementation, store, &ops);
    }
}

/// Returns a sequence of operations that contains each call, and in which pages are in every place
/// at each swap.
fn story() -> Vec<Op> {
    vec![
        Op::Lend(3, 16),
        Op::Lend(20, 4),
        Op::Landed(0, 16),
        Op::Lend(40, 3),
        Op::Landed(1, 1),
        Op::Adopt(60..66),
        Op::Write(5),
        Op::Write(62),
        Op::Recall(6),
        Op::Lend(70, 1),
        Op::Stay(1),
        Op::TakeBack(3),
        Op::Doom(64..66),
        Op::Lend(64, 4),
        Op::Found(1),
        Op::Lend(65, 4),
        Op::Landed(2, 0),
        Op::Settle(1, false),
        Op::Keep(1),
        Op::Lend(3, 4),
        Op::Landed(1, 4),
        Op::Recall(4),
        Op::SplitOff(0..3, 2),
        Op::Settle(64, true),
        Op::Forget(10..64),
        Op::Recall(64),
        Op::TakeBack(64),
        Op::Lend(4, 1),
        Op::Lend(5, 1),
        Op::Found(0),
        Op::Found(0),
        Op::Found(0),
    ]
}

#[test]
fn a_swap_changes_nothing_between_any_two_calls() {
    for from in 0..IMPLEMENTATIONS.len() {
        for to in 0..IMPLEMENTATIONS.len() {
            for at in 0..=story().len() {
                let mut ops = story();
                ops.insert(at, Op::Swap(to));
                play(from, at % STORES, &ops);
            }
        }
    }
}
