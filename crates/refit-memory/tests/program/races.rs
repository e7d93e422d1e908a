//! Many threads fault on pages while others evict or discard pages and swap the cache: no version
//! of a page is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, RwLock};
use std::thread;

use refit_memory::PAGE_SIZE;
use refit_memory::program::{AnonymousCacheInterface, GROUP, SHARED};
use refit_objects::Interface;

use crate::common::{
    Contents, IMPLEMENTATIONS, Numbers, Subject, contents_of, page_of, store, swap,
};

const PAGES: u64 = 6 * GROUP;
const FRAMES: u64 = 40;
const THREADS: u64 = 4;
/// The minimum number of accesses of each thread.
const ROUNDS: u64 = 20_000;
/// The minimum number of operations of each disturbing thread.
const DISTURBANCES: u64 = 150;

/// A page as its program has it, and its expected contents.
#[derive(Default)]
struct Slot {
    there: Option<Contents>,
    holds: Contents,
    /// The number of times that the page was installed.
    installed: u64,
}

/// A program, as the kernel sees it.
struct Program {
    subject: Subject,
    slots: Vec<Mutex<Slot>>,
    /// The counterpart of the pager's lock of the same name: held exclusively while a change is
    /// reported.
    changes: RwLock<()>,
    done: AtomicBool,
    versions: AtomicU64,
    evictions: AtomicU64,
    dooms: AtomicU64,
    swaps: AtomicU64,
}

/// Sets the flag on drop, so that the other threads end, too, when one panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

impl Program {
    fn slot(&self, page: u64) -> MutexGuard<'_, Slot> {
        self.slots[page as usize].lock().expect("nobody panics here")
    }

    /// Writes to a page if it is present; otherwise returns that it has to be faulted in.
    fn write(&self, page: u64) -> bool {
        let mut slot = self.slot(page);
        let Some(found) = slot.there else { return false };
        assert_eq!(found, slot.holds, "page {page} is another than was written");
        slot.holds = self.versions.fetch_add(1, Relaxed) + 1;
        slot.there = Some(slot.holds);
        true
    }

    /// Handles a fault as a region does.
    fn fault(&self, page: u64, most: usize) {
        let _changes = self.changes.read().expect("nobody panics here");
        let cache = self.subject.cache;
        let mut pages = vec![0xee; most * PAGE_SIZE];
        let Ok(count) = cache.lend(page, &mut pages) else { return thread::yield_now() };
        let mut done = 0;
        for (at, lent) in pages.chunks(PAGE_SIZE).take(count).enumerate() {
            let mut slot = self.slot(page + at as u64);
            if slot.there.is_some() {
                break;
            }
            let lent = contents_of(lent);
            assert_eq!(lent, slot.holds, "page {} comes back as another", page + at as u64);
            slot.there = Some(lent);
            slot.installed += 1;
            done += 1;
        }
        if done > 0 {
            cache.landed(page, done, true);
        }
        if done < count {
            cache.found(page + done as u64);
        }
        if done + 1 < count {
            cache.landed(page + done as u64 + 1, count - done - 1, false);
        }
    }

    fn run(&self, seed: u64) {
        let _end = End(&self.done);
        let mut numbers = Numbers(seed);
        let enough = |round| {
            let disturbed = [&self.evictions, &self.dooms, &self.swaps];
            round > ROUNDS && disturbed.iter().all(|count| count.load(Relaxed) >= DISTURBANCES)
        };
        for round in 0.. {
            if enough(round) {
                break;
            }
            let (page, most) = (numbers.below(PAGES), 1 + numbers.below(GROUP) as usize);
            while !self.write(page) && !self.done.load(Relaxed) {
                self.fault(page, most);
            }
            if self.done.load(Relaxed) {
                break;
            }
        }
    }

    fn evict(&self) {
        let _end = End(&self.done);
        let mut numbers = Numbers(77);
        while !self.done.load(Relaxed) {
            let _changes = self.changes.read().expect("nobody panics here");
            let pages = self.subject.cache.recall(1 + numbers.below(12) as usize);
            let (mut stay, mut go, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
            let mut left = Vec::new();
            for page in pages {
                let mut slot = self.slot(page);
                let Some(there) = slot.there else {
                    // The page arrived after it was discarded in the tables, and before it was in
                    // the program: the contents in the store are right.
                    left.push(page);
                    continue;
                };
                assert_eq!(there, slot.holds);
                if numbers.below(8) == 0 {
                    stay.push(page);
                    continue;
                }
                go.push(page);
                bytes.extend(page_of(there));
                slot.there = None;
            }
            self.subject.cache.stay(&stay);
            self.subject.cache.left(&left);
            self.subject.cache.take_back(&go, &bytes).expect("there is room");
            self.evictions.fetch_add(1, Relaxed);
        }
    }

    /// Acts as `MADV_DONTNEED`: the change is reported first, then the pages are removed one by
    /// one.
    fn doom(&self) {
        let _end = End(&self.done);
        let mut numbers = Numbers(99);
        while !self.done.load(Relaxed) {
            let start = numbers.below(PAGES);
            let range = start..(start + 1 + numbers.below(6)).min(PAGES);
            let before: Vec<Option<u64>> = {
                let _changes = self.changes.write().expect("nobody panics here");
                self.subject.cache.doom(range.start, range.end);
                let content = |page| {
                    let mut slot = self.slot(page);
                    if slot.there.is_none() {
                        slot.holds = 0;
                    }
                    slot.there.map(|_| slot.installed)
                };
                range.clone().map(content).collect()
            };
            thread::yield_now();
            for (page, before) in range.zip(before) {
                let mut slot = self.slot(page);
                if slot.there.is_some() {
                    (slot.there, slot.holds) = (None, 0);
                } else {
                    let evicted = before == Some(slot.installed);
                    assert!(!evicted, "page {page} has left while it was doomed");
                }
            }
            let _changes = self.changes.read().expect("nobody panics here");
            let mut doomed = self.subject.cache.doomed();
            doomed.retain(|&page| self.slot(page).there.is_none());
            self.subject.cache.settle(&doomed, false);
            self.dooms.fetch_add(1, Relaxed);
        }
    }

    fn swap(&self) {
        let _end = End(&self.done);
        for to in IMPLEMENTATIONS.into_iter().cycle() {
            if self.done.load(Relaxed) {
                break;
            }
            swap(AnonymousCacheInterface::id(self.subject.cache), to);
            self.swaps.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn no_version_of_a_page_is_lost_and_none_is_stale() {
    let program = Program {
        subject: Subject::new(SHARED, FRAMES, store(2)),
        slots: (0..PAGES).map(|_| Mutex::default()).collect(),
        changes: RwLock::default(),
        done: AtomicBool::new(false),
        versions: AtomicU64::new(0),
        evictions: AtomicU64::new(0),
        dooms: AtomicU64::new(0),
        swaps: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let disturbers = [Program::evict, Program::doom, Program::swap];
        for disturb in disturbers {
            let program = &program;
            scope.spawn(move || disturb(program));
        }
        let threads = (0..THREADS).map(|seed| {
            let program = &program;
            scope.spawn(move || program.run(seed))
        });
        let threads: Vec<_> = threads.collect();
        let ended: Vec<bool> = threads.into_iter().map(|thread| thread.join().is_ok()).collect();
        let well = ended.into_iter().all(|well| well);
        program.done.store(true, Relaxed);
        assert!(well, "a thread has panicked");
    });
    let Program { subject, slots, .. } = program;
    let there = |page: &u64| slots[*page as usize].lock().is_ok_and(|slot| slot.there.is_some());
    let (_, evicted): (Vec<_>, Vec<_>) =
        subject.cache.recall(PAGES as usize).into_iter().partition(&there);
    subject.cache.left(&evicted);
    let inside = (0..PAGES).filter(there).count() as u64;
    assert_eq!(subject.cache.stats().resident, inside, "as many as the program has");
    assert_eq!(subject.budget.stats().taken, inside);
    subject.end_all();
}
