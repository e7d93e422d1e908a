//! Address spaces that change at random, over a program that is only a table: no page is lost, and
//! no discarded page returns.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use refit_objects::{Choices, Interface, State, SwapOptions, TransferError, destroy};
use refit_sys::memory::PAGE_SIZE_U64;

use super::budget::create_budget;
use super::factory::{AnonymousCacheFactory, SHARED};
use super::hat::{
    InstallError, Stopped, TakeOutcome, Translation, TranslationInterface, TranslationRef,
};
use super::part::Commons;
use super::region::{DEFAULT, FaultError, NATIVE};
use super::space::{Inherited, ProcessInterface, ProcessRef, Space, Which};
use crate::PAGE_SIZE;
use crate::store::{PageStore, StoreStats};

const BASE: u64 = 0x10_0000;
const PAGES: u64 = 64;
/// A swap takes this long only if the test fails.
const SWAP_TIMEOUT: Duration = Duration::from_secs(60);

/// The memory of a program: by address, a number that stands for the contents of a page.
#[derive(Clone, Default)]
struct Program(Arc<Mutex<Kernel>>);

#[derive(Clone, Default)]
struct Kernel {
    mapped: BTreeMap<u64, u64>,
    there: BTreeMap<u64, u64>,
}

impl Program {
    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.0.lock().expect("nobody panics here")
    }

    fn hat(&self) -> TranslationRef {
        let program = self.clone();
        let choices =
            Choices::new().with("table", TranslationInterface::rep, move || program.clone());
        choices.create("test", "table").expect("it is the one choice")
    }
}

impl Translation for Program {
    fn install(&self, address: u64, pages: &[u8]) -> Result<(), Stopped> {
        let mut kernel = self.kernel();
        for (done, page) in pages.chunks(PAGE_SIZE).enumerate() {
            let at = address + done as u64 * PAGE_SIZE_U64;
            let stopped = |why| Err(Stopped { done, why });
            if !kernel.mapped.contains_key(&at) {
                return stopped(InstallError::Unmapped);
            }
            if kernel.there.contains_key(&at) {
                return stopped(InstallError::Present);
            }
            let holds = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
            kernel.there.insert(at, holds);
        }
        Ok(())
    }

    fn wake(&self, _address: u64) {}

    fn poison(&self, _address: u64) -> bool {
        true
    }

    fn take(&self, pages: &[u64]) -> Vec<TakeOutcome> {
        vec![TakeOutcome::Stays; pages.len()]
    }

    fn fetch(&self, _into: &mut [u8]) -> Option<Vec<bool>> {
        None
    }

    fn own(&self, _pages: &[u64]) {}

    fn clear(&self) {}
}

impl State<()> for Program {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}

/// A program, and the address space that serves it.
struct World {
    program: Program,
    space: Arc<Space>,
    process: ProcessRef,
    next: u64,
}

impl World {
    fn new(commons: Arc<Commons>) -> Self {
        Self::named("test", commons)
    }

    /// As [`new`](Self::new); a test that swaps an object of it needs a name of its own.
    fn named(name: &str, commons: Arc<Commons>) -> Self {
        let program = Program::default();
        let space = Space::new(name, program.hat(), commons);
        Self { process: space.process(), program, space, next: 0 }
    }

    fn fork(&self) -> Self {
        let program = Program(Arc::new(Mutex::new(self.program.kernel().clone())));
        let space = self.space.fork("child", program.hat());
        Self { process: space.process(), program, space, next: self.next }
    }

    fn map(&self, range: &Range<u64>, name: &str) {
        for at in range.clone().step_by(PAGE_SIZE) {
            self.program.kernel().mapped.entry(at).or_insert(0);
        }
        self.space.map(range, name);
    }

    fn unmap(&self, range: &Range<u64>) {
        let mut kernel = self.program.kernel();
        kernel.mapped.retain(|at, _| !range.contains(at));
        kernel.there.retain(|at, _| !range.contains(at));
        drop(kernel);
        self.space.unmap(range);
    }

    /// Moves memory to a fixed address as the kernel does, and reports it.
    fn remap(&self, from: &Range<u64>, to: u64) {
        let now = to..to + (from.end - from.start);
        self.unmap(&now);
        let shift = |pages: &mut BTreeMap<u64, u64>| {
            let moved: Vec<_> = pages.extract_if(from.clone(), |_, _| true).collect();
            pages.extend(moved.into_iter().map(|(at, holds)| (at - from.start + to, holds)));
        };
        let mut kernel = self.program.kernel();
        let Kernel { mapped, there } = &mut *kernel;
        shift(mapped);
        shift(there);
        drop(kernel);
        self.space.remap(from, to);
        self.space.unmap(from);
    }

    fn throw_away(&self, range: &Range<u64>) {
        self.space.remove(range);
        let mut kernel = self.program.kernel();
        kernel.there.retain(|at, _| !range.contains(at));
        kernel.mapped.range_mut(range.clone()).for_each(|(_, holds)| *holds = 0);
    }

    /// Checks that a page has its former contents, and changes them.
    fn touch(&mut self, at: u64) {
        let Some(&holds) = self.program.kernel().mapped.get(&at) else { return };
        if !self.program.kernel().there.contains_key(&at) {
            let mut outcome = self.process.fault(at);
            if outcome == Err(FaultError::Unknown) {
                self.space.grow(at);
                outcome = self.process.fault(at);
            }
            assert_eq!(outcome, Ok(()), "at {at:x}");
        }
        let mut kernel = self.program.kernel();
        assert_eq!(kernel.there[&at], holds, "at {at:x}");
        self.next += 1;
        kernel.there.insert(at, self.next);
        kernel.mapped.insert(at, self.next);
    }

    /// Evicts pages as a pager does.
    fn evict(&self, most: usize) {
        let Some(recalled) = self.space.recall(most) else { return };
        let mut kernel = self.program.kernel();
        let (mut taken, mut stay, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (&page, at) in recalled.pages.iter().zip(&recalled.addresses) {
            let Some(holds) = kernel.there.remove(at) else {
                stay.push(page);
                continue;
            };
            taken.push(page);
            bytes.extend(holds.to_le_bytes());
            bytes.resize(taken.len() * PAGE_SIZE, 0);
        }
        recalled.fcm.stay(&stay);
        recalled.fcm.take_back(&taken, &bytes).expect("there is room");
    }

    /// Swaps the region that begins at a page, which has been touched.
    fn swap_region(&self, page: u64, to: &str) {
        let name = format!("{}/{:x}", self.space.name(), BASE + page * PAGE_SIZE_U64);
        let mut all = refit_objects::objects().into_iter();
        let found = all.find(|one| one.interface == "region" && one.name.ends_with(&name));
        let options = SwapOptions { deadline: SWAP_TIMEOUT, ..SwapOptions::default() };
        let region = found.expect("it has been touched").id;
        let report = refit_objects::swap_named(region, to, 0, &options);
        assert!(report.committed(), "{report:?}");
    }

    fn settle(&self) {
        for doomed in self.space.doomed() {
            let kernel = self.program.kernel();
            let pages = doomed.pages.iter().zip(&doomed.addresses);
            let discarded = pages.filter(|(_, at)| !kernel.there.contains_key(at));
            let discarded: Vec<u64> = discarded.map(|(&page, _)| page).collect();
            drop(kernel);
            doomed.fcm.settle(&discarded, false);
        }
    }

    /// Counts the pages that are in, and checks that as many are counted.
    fn count(&self) {
        let there: Vec<u64> = self.program.kernel().there.keys().copied().collect();
        assert_eq!(self.space.adopt(&there), there.len());
        self.settle();
        let resident: u64 = self.space.regions().iter().map(|one| one.stats.resident).sum();
        assert_eq!(resident, there.len() as u64);
    }

    fn end(mut self) {
        (0..PAGES).for_each(|page| self.touch(BASE + page * PAGE_SIZE_U64));
        self.count();
        self.space.end();
        destroy(ProcessInterface::id(self.process));
        destroy(TranslationInterface::id(self.space.hat()));
    }
}

fn commons() -> Arc<Commons> {
    Arc::new(Commons {
        budget: create_budget("test", 10 * PAGES),
        store: PageStore::new(1 << 20, None),
        caches: AnonymousCacheFactory::new("test", SHARED),
    })
}

fn ended(commons: &Commons) {
    assert_eq!(commons.budget.stats().taken, 0);
    assert_eq!(commons.store.stats(), StoreStats::default());
}

fn part(pages: Range<u64>) -> Range<u64> {
    BASE + pages.start * PAGE_SIZE_U64..BASE + pages.end * PAGE_SIZE_U64
}

fn touch_all(world: &mut World, pages: Range<u64>) {
    pages.for_each(|page| world.touch(BASE + page * PAGE_SIZE_U64));
}

#[test]
fn a_range_that_reaches_over_regions_leaves_each_what_it_has() {
    let commons = commons();
    let mut world = World::new(Arc::clone(&commons));
    world.map(&part(5..15), "");
    world.map(&part(20..30), "");
    touch_all(&mut world, 5..30);
    (0..4).for_each(|_| world.evict(64));
    world.map(&part(5..20), "");
    touch_all(&mut world, 0..40);
    (0..4).for_each(|_| world.evict(64));
    world.map(&part(2..40), "heap");
    touch_all(&mut world, 0..40);
    world.end();
    ended(&commons);
}

#[test]
fn what_is_moved_into_a_hole_hides_nothing_behind_it() {
    let commons = commons();
    let mut world = World::new(Arc::clone(&commons));
    world.map(&part(0..20), "");
    world.map(&part(40..44), "apart");
    touch_all(&mut world, 0..44);
    (0..4).for_each(|_| world.evict(64));
    world.unmap(&part(8..12));
    world.remap(&part(40..44), BASE + 8 * PAGE_SIZE_U64);
    touch_all(&mut world, 0..44);
    world.end();
    ended(&commons);
}

#[test]
fn pages_that_follow_each_other_are_counted_by_their_own_regions() {
    let commons = commons();
    let mut world = World::new(Arc::clone(&commons));
    world.map(&part(0..4), "one");
    world.map(&part(4..8), "two");
    for page in 0..8 {
        world.program.kernel().there.insert(BASE + page * PAGE_SIZE_U64, 100 + page);
        world.program.kernel().mapped.insert(BASE + page * PAGE_SIZE_U64, 100 + page);
    }
    world.count();
    let counted: Vec<u64> =
        world.space.regions().iter().map(|region| region.stats.resident).collect();
    assert_eq!(counted, [4, 4]);
    (0..2).for_each(|_| world.evict(64));
    touch_all(&mut world, 0..8);
    world.end();
    ended(&commons);
}

#[test]
fn pages_are_counted_up_to_the_one_for_which_there_is_no_frame() {
    let commons = commons();
    let world = World::new(Arc::clone(&commons));
    world.map(&part(0..4), "one");
    world.map(&part(4..8), "two");
    let pages: Vec<u64> = part(0..8).step_by(PAGE_SIZE).collect();
    commons.budget.allow(6);
    assert_eq!(world.space.adopt(&pages), 6);
    commons.budget.allow(10 * PAGES);
    let mut kernel = world.program.kernel();
    kernel.there.extend(pages.iter().map(|&at| (at, 0)));
    drop(kernel);
    world.count();
    world.end();
    ended(&commons);
}

#[test]
fn a_child_has_what_it_has_inherited_and_finds_zeros_where_it_was_wiped() {
    let commons = commons();
    let mut world = World::new(Arc::clone(&commons));
    world.map(&part(0..12), "");
    touch_all(&mut world, 0..12);
    (0..4).for_each(|_| world.evict(64));
    let child = world.space.fork("child", world.space.hat());
    assert_eq!(child.out(Which::All).len(), 12);
    let inherited = |pages, wiped| Inherited { range: part(pages), wiped };
    child.inherit(&[inherited(0..4, false), inherited(4..8, true)]);
    assert_eq!(child.ranges(Which::All), [part(0..8)]);
    let out: Vec<u64> = part(0..4).step_by(PAGE_SIZE).collect();
    assert_eq!(child.out(Which::All), out);
    child.end();
    world.end();
    ended(&commons);
}

#[test]
fn a_page_that_was_in_already_is_counted_as_in() {
    let commons = commons();
    let world = World::new(Arc::clone(&commons));
    world.map(&part(0..4), "");
    // The kernel has put the page in without a report, as for a page of zeros that is read.
    world.program.kernel().there.insert(BASE, 0);
    assert_eq!(world.process.fault(BASE), Ok(()));
    assert_eq!((world.space.resident(), commons.budget.stats().taken), (1, 1));
    assert_eq!(world.space.recall(64).expect("it can be evicted").pages.len(), 1);
    world.end();
    ended(&commons);
}

#[test]
fn a_page_that_is_needed_can_be_evicted_later() {
    let commons = commons();
    let mut world = World::new(Arc::clone(&commons));
    world.map(&part(0..4), "");
    touch_all(&mut world, 0..4);
    let needed = BASE + 2 * PAGE_SIZE_U64;
    let mut recalled = world.space.recall(64).expect("all of them can be evicted");
    recalled.keep(&[needed + 8]);
    let others = [0, 1, 3].map(|page| BASE + page * PAGE_SIZE_U64);
    assert_eq!(recalled.addresses, others);
    assert_eq!(recalled.pages, others.map(|address| address / PAGE_SIZE_U64));
    let again = world.space.recall(64).expect("the page that was needed");
    assert_eq!(again.addresses, [needed]);
    recalled.fcm.stay(&recalled.pages);
    again.fcm.stay(&again.pages);
    world.end();
    ended(&commons);
}

#[test]
fn a_region_that_is_left_to_the_kernel_gives_no_pages_and_ends_with_its_mapping() {
    let commons = commons();
    let mut world = World::named("left-to-the-kernel", Arc::clone(&commons));
    world.map(&part(0..4), "one");
    world.map(&part(8..12), "two");
    touch_all(&mut world, 0..12);
    world.swap_region(0, NATIVE);
    for _ in 0..8 {
        let Some(recalled) = world.space.recall(64) else { break };
        assert!(recalled.addresses.iter().all(|at| part(8..12).contains(at)), "of `two` only");
        recalled.fcm.stay(&recalled.pages);
    }
    assert!(world.space.decide());
    world.space.leave_to_kernel();
    assert_eq!((world.space.native(), world.space.resident()), (vec![part(0..4)], 4));
    // It stays so, and is not left once more, until it is to be served again.
    world.space.resume(&[part(0..12)]);
    assert_eq!((world.space.native(), world.space.decide()), (vec![part(0..4)], false));
    // A region that is to be served again is, and one whose memory is gone ends.
    world.swap_region(0, DEFAULT);
    world.space.resume(&[part(0..12)]);
    assert_eq!((world.space.native(), world.space.regions().len()), (vec![], 2));
    world.swap_region(0, NATIVE);
    assert!(world.space.decide());
    world.space.leave_to_kernel();
    world.space.resume(&[part(4..12)]);
    assert_eq!(world.space.ranges(Which::All), [part(8..12)]);
    world.unmap(&part(0..4));
    world.end();
    ended(&commons);
}

#[test]
fn memory_that_is_mapped_moved_and_thrown_away_at_random_is_what_was_written() {
    for seed in 0..200_u64 {
        let commons = commons();
        let mut state = seed;
        let mut below = move |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut world = World::new(Arc::clone(&commons));
        for _ in 0..200 {
            let start = below(PAGES);
            let pages = start..(start + 1 + below(12)).min(PAGES);
            match below(20) {
                0..3 => world.map(&part(pages), ["", "heap"][below(2) as usize]),
                3..5 => world.unmap(&part(pages)),
                5..7 => {
                    let to = below(PAGES - (pages.end - pages.start) + 1);
                    let apart = to >= pages.end || to + pages.end - pages.start <= pages.start;
                    let mapped = |page| world.program.kernel().mapped.contains_key(&page);
                    if apart && part(pages.clone()).step_by(PAGE_SIZE).all(mapped) {
                        world.remap(&part(pages), BASE + to * PAGE_SIZE_U64);
                    }
                }
                7..9 => world.throw_away(&part(pages)),
                9..12 => world.evict(1 + below(20) as usize),
                12 => world.count(),
                13 if below(4) == 0 => {
                    let child = world.fork();
                    child.count();
                    std::mem::replace(&mut world, child).end();
                }
                _ => touch_all(&mut world, pages),
            }
        }
        world.end();
        ended(&commons);
    }
}
