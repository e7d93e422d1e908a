//! Tests of a pager that serves this process: the kernel's messages about its memory, and the
//! pager's responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use refit_memory::program::{Commons, Outside, Pager};
use refit_sys::pagemap::Pagemap;
use refit_sys::userfault::{Door, Features, Flags, Userfault};

use crate::common::{PAGE_SIZE_U64, commons, until};
use crate::memory::{Memory, join};

#[derive(Default)]
struct Short(AtomicU64);

impl Outside for Short {
    fn short(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn forked(&self, _parent: &Pager, _child: Arc<Pager>) {}
}

/// A pager of this process that serves until it is dropped.
struct Served {
    pager: Arc<Pager>,
    commons: Arc<Commons>,
    short: Arc<Short>,
    server: Option<JoinHandle<()>>,
}

impl Served {
    /// Starts a pager with `frames` frames; `None` where this host does not permit it.
    fn new(frames: u64) -> Option<Self> {
        // SAFETY: only `Memory` is registered, to which nobody holds a reference.
        let opened = unsafe { Userfault::open(Door::Call, Flags::CLOEXEC | Flags::NONBLOCK) };
        let userfault = match opened {
            Ok(userfault) => userfault,
            Err(error) => {
                println!("skipped: userfaultfd: {error}");
                return None;
            }
        };
        let changes = Features::EVENT_REMAP | Features::EVENT_REMOVE | Features::EVENT_UNMAP;
        userfault.agree(changes).expect("any kernel that can be served has them");
        let (commons, short) = (commons(frames), Arc::<Short>::default());
        let outside = Arc::clone(&short);
        let pager = Pager::new("test", Arc::new(userfault), Arc::clone(&commons), outside);
        let pager = pager.expect("descriptors");
        let server = Arc::clone(&pager);
        let server = Some(thread::spawn(move || server.serve()));
        Some(Self { pager, commons, short, server })
    }

    fn taken(&self) -> u64 {
        self.commons.budget.stats().taken
    }

    /// Waits until the pager has forgotten the pages that the program has discarded.
    fn settle(&self) {
        let pagemap = Pagemap::of(std::process::id()).expect("our own");
        let there = |addresses: &[u64]| {
            let page =
                |&at: &u64| pagemap.pages(at..at + PAGE_SIZE_U64).expect("our own")[0].present();
            addresses.iter().map(page).collect()
        };
        self.pager.settle(there, || false);
    }

    /// Checks that nothing is served any more and that nothing is left.
    fn end(mut self) {
        self.stop();
        self.pager.dismiss();
        assert_eq!(self.taken(), 0);
    }

    fn stop(&mut self) {
        self.pager.end();
        let ended = self.server.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || thread::panicking());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn what_is_touched_first_or_was_thrown_away_is_zeros() {
    let Some(served) = Served::new(1000) else { return };
    let memory = Memory::new(40);
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    for round in 1..4 {
        for page in 0..40 {
            assert_eq!(memory.get(page), 0, "page {page}, round {round}");
            memory.set(page, round * 100 + page);
        }
        assert!((0..40).all(|page| memory.get(page) == round * 100 + page));
        until("neighbours that are not mapped are given back", || served.taken() == 40);
        memory.advise(0..40, libc::MADV_DONTNEED);
        until("what was thrown away is gone", || {
            served.settle();
            served.taken() == 0
        });
    }
    memory.set(7, 7);
    memory.advise(0..5, libc::MADV_DONTNEED);
    assert_eq!((memory.get(4), memory.get(7)), (0, 7));
    memory.unmap(0..40);
    until("all of it is unmapped", || served.taken() == 0);
    served.end();
}

#[test]
fn what_is_unmapped_gives_its_frames_back_and_what_is_moved_stays_what_it_is() {
    let Some(served) = Served::new(1000) else { return };
    let (memory, other) = (Memory::new(60), Memory::new(60));
    served.pager.manage(&memory.all(), memory.all().end, "one").expect("anonymous memory");
    served.pager.manage(&other.all(), other.all().end, "two").expect("anonymous memory");
    for page in 0..60 {
        memory.set(page, 100 + page);
        other.set(page, 200 + page);
    }
    until("all are counted", || served.taken() == 120);
    memory.cover(0..5);
    memory.cover(55..60);
    memory.cover(20..40);
    until("thirty pages are gone", || served.taken() == 90);
    // Moved into the hole, from the middle of another region.
    other.move_to(10..30, memory.part(20..40));
    until("twenty have been moved", || {
        served.taken() == 90 && served.pager.space().regions().len() == 3
    });
    let old = (5..20).chain(40..55);
    assert!(old.clone().all(|page| memory.get(page) == 100 + page), "around the hole");
    assert!((20..40).all(|page| memory.get(page) == 190 + page), "in the hole");
    assert!((0..10).chain(30..60).all(|page| other.get(page) == 200 + page), "left behind");
    memory.advise(5..55, libc::MADV_DONTNEED);
    assert!((5..55).all(|page| memory.get(page) == 0), "thrown away");
    memory.unmap(0..60);
    other.unmap(0..60);
    served.end();
}

#[test]
fn eight_threads_miss_the_same_pages_at_once() {
    let Some(served) = Served::new(5000) else { return };
    let memory = Memory::new(2000);
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    let add = |memory: Memory, page: u64| {
        // SAFETY: the word is in a page of `Memory`, and all accesses to it are atomic here.
        let word = unsafe { AtomicU64::from_ptr(memory.at(page)) };
        word.fetch_add(1, Relaxed);
    };
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            thread::spawn(move || (0..2000).for_each(|page| add(memory, page ^ (thread % 2))))
        })
        .collect();
    threads.into_iter().for_each(join);
    assert!((0..2000).all(|page| memory.get(page) == 8));
    until("each is counted once", || served.taken() == 2000);
    memory.unmap(0..2000);
    served.end();
}

#[test]
fn memory_is_thrown_away_and_moved_while_others_miss_it() {
    let Some(served) = Served::new(5000) else { return };
    let (memory, place) = (Memory::new(64), Memory::new(64));
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    let others: Vec<_> = (0..3)
        .map(|thread| {
            thread::spawn(move || {
                for round in 0..3000 {
                    let page = 32 + (round * 7 + thread * 11) % 32;
                    let found = memory.get(page);
                    assert!(found == 0 || found == page, "page {page} has {found}");
                    memory.set(page, page);
                }
            })
        })
        .collect();
    for round in 1..300 {
        for page in 0..16 {
            memory.set(page, round);
        }
        memory.advise(32..48, libc::MADV_DONTNEED);
        memory.move_to(0..16, place.part(0..16));
        assert!((0..16).all(|page| place.get(page) == round));
        place.move_to(0..16, memory.part(0..16));
        memory.advise(8..16, libc::MADV_DONTNEED);
        assert!((0..16).all(|page| memory.get(page) == if page < 8 { round } else { 0 }));
        served.settle();
    }
    others.into_iter().for_each(join);
    memory.unmap(0..64);
    place.unmap(0..64);
    served.end();
}

#[test]
fn no_change_is_handled_while_pages_are_decided_about() {
    let Some(served) = Served::new(1000) else { return };
    let memory = Memory::new(40);
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    (0..40).for_each(|page| memory.set(page, page));
    until("neighbours that are not mapped are given back", || served.taken() == 40);
    memory.advise(0..1, libc::MADV_DONTNEED);
    let asked = AtomicBool::new(false);
    let there = |addresses: &[u64]| {
        if !asked.swap(true, Relaxed) {
            // Returns once the server has read the message.
            join(thread::spawn(move || memory.unmap(20..40)));
            // Long enough for the server to handle it, if it did not wait.
            thread::sleep(Duration::from_millis(50));
            assert_eq!(served.taken(), 40, "the tables change while they are in use");
        }
        vec![false; addresses.len()]
    };
    until("the page that was thrown away is found", || {
        served.pager.settle(there, || false);
        asked.load(Relaxed)
    });
    until("both are given back", || served.taken() == 19);
    memory.unmap(0..20);
    served.end();
}

#[test]
fn two_thousand_regions_are_served() {
    const REGIONS: u64 = 2000;
    let Some(served) = Served::new(REGIONS * 2) else { return };
    // Maps every other page, each with a name of its own.
    let memory = Memory::new(2 * REGIONS);
    for region in 0..REGIONS {
        let range = memory.part(2 * region..2 * region + 1);
        served.pager.manage(&range, range.end, &region.to_string()).expect("anonymous memory");
    }
    assert_eq!(served.pager.space().regions().len() as u64, REGIONS);
    for page in 0..2 * REGIONS {
        memory.set(page, page);
    }
    assert!((0..2 * REGIONS).all(|page| memory.get(page) == page));
    until("each is counted once", || served.taken() == REGIONS);
    memory.unmap(0..2 * REGIONS);
    until("no region is left", || served.pager.space().regions().is_empty());
    assert_eq!(served.taken(), 0);
    served.end();
}

/// Neighbouring pages that are brought in together also include the last pages of a mapping.
#[test]
fn a_mapping_that_has_grown_is_served_as_a_whole() {
    let Some(served) = Served::new(1000) else { return };
    let memory = Memory::new(6);
    served.pager.manage(&memory.part(0..2), memory.part(0..4).end, "test").expect("memory");
    let reader = thread::spawn(move || (0..6).for_each(|page| assert_eq!(memory.get(page), 0)));
    join(reader);
    until("what was mapped then is counted", || served.taken() == 4);
    memory.unmap(0..6);
    served.end();
}

#[test]
fn the_last_pages_of_a_mapping_come_too() {
    let Some(served) = Served::new(1000) else { return };
    let memory = Memory::new(40);
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    // A region gets its objects at its first fault.
    assert_eq!(memory.get(0), 0);
    let region = format!("test/{:x}", memory.start);
    let mut all = refit_objects::objects().into_iter();
    let found = all.find(|one| one.interface == "region" && one.name.ends_with(&region));
    crate::common::swap(found.expect("it is there").id, "sequential");
    memory.unmap(29..40);
    let reader = thread::spawn(move || (0..29).for_each(|page| assert_eq!(memory.get(page), 0)));
    join(reader);
    until("each is counted once", || served.taken() == 29);
    memory.unmap(0..29);
    served.end();
}

#[test]
fn who_finds_no_frame_waits_until_there_is_one() {
    let Some(served) = Served::new(4) else { return };
    let memory = Memory::new(8);
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    let writer = thread::spawn(move || (0..8).for_each(|page| memory.set(page, page)));
    until("no frame is left for it", || served.commons.budget.stats().refused > 0);
    until("it is told", || served.short.0.load(Relaxed) > 0);
    assert_eq!(served.taken(), 4);
    assert!(!writer.is_finished());
    served.commons.budget.allow(100);
    served.pager.ring();
    join(writer);
    assert!((0..8).all(|page| memory.get(page) == page));
    memory.unmap(0..8);
    served.end();
}

#[test]
fn what_is_released_the_kernel_serves() {
    let Some(served) = Served::new(100) else { return };
    let memory = Memory::new(60);
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    (0..20).for_each(|page| memory.set(page, page));
    let toucher = thread::spawn(move || (20..60).for_each(|page| memory.set(page, page)));
    assert!(served.pager.release());
    join(toucher);
    assert!((0..60).all(|page| memory.get(page) == page));
    until("nobody serves it", || served.taken() == 0);
    memory.advise(0..60, libc::MADV_DONTNEED);
    assert!((0..60).all(|page| memory.get(page) == 0));
    assert_eq!(served.taken(), 0);
    // The range is served again, and resident pages are counted.
    served.pager.manage(&memory.all(), memory.all().end, "test").expect("anonymous memory");
    let there: Vec<u64> = (0..60).map(|page| memory.part(page..page + 1).start).collect();
    assert_eq!(served.pager.adopt(&there), 60);
    assert_eq!(served.taken(), 60);
    memory.unmap(0..60);
    served.end();
}
