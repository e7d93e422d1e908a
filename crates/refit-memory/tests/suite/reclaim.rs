//! Tests of physical memory: one budget for several files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use refit_memory::{
    CLOCK, FramePool, ReplacementPolicy, ReplacementPolicyInterface, ReplacementPolicyRef, Search,
    create_physical_memory, destroy_file_cache, mark,
};
use refit_objects::{Choices, State, SwapOptions, TransferError};

use crate::host::{Call, IMPLEMENTATIONS, PAGE_SIZE_U64, Subject, pattern, policy};

#[test]
fn clean_pages_go_before_dirty_ones() {
    let file = Subject::new("shared", 8, pattern(1, 16 * PAGE_SIZE_U64 as usize));
    file.write(0, &pattern(2, 4 * PAGE_SIZE_U64 as usize)).unwrap();
    file.read(8 * PAGE_SIZE_U64, 4 * PAGE_SIZE_U64 as usize).unwrap();
    file.host.calls();
    let (dirty, clean) = (4, 4);
    assert_eq!(file.reclaim(clean), clean);
    assert_eq!(file.host.calls(), []);
    assert_eq!(file.cache.stats().dirty, dirty as u64);
    assert_eq!(file.reclaim(100), dirty);
    assert_eq!(file.reclaim(1), 0);
    let stats = file.pm.stats();
    assert_eq!((stats.total, stats.free, stats.dirty), (8, 8, 0));
    assert_eq!(stats.evictions, 8);
    assert_eq!(
        file.host.bytes()[..4 * PAGE_SIZE_U64 as usize],
        pattern(2, 4 * PAGE_SIZE_U64 as usize)
    );
}

#[test]
fn a_page_in_use_gets_a_second_chance() {
    let file = Subject::new("shared", 8, pattern(3, 64 * PAGE_SIZE_U64 as usize));
    for page in 0..64 {
        file.read(page * PAGE_SIZE_U64, 1).unwrap();
        file.read(0, 1).unwrap();
    }
    // The page that was used all the time was read from the host once or twice, although 64 pages
    // went through 8 frames.
    let reads =
        file.host.calls().into_iter().filter(|&call| call == Call::Read(0, PAGE_SIZE_U64)).count();
    assert!(reads <= 2, "{reads} reads of the page in use");
}

#[test]
fn files_share_a_budget_and_take_from_each_other() {
    for implementation in IMPLEMENTATIONS {
        let one = Subject::new(implementation, 8, vec![]);
        let other = Subject::on("shared", one.pm, Arc::clone(&one.frames), vec![]);
        one.write(0, &pattern(4, 8 * PAGE_SIZE_U64 as usize)).unwrap();
        other.write(0, &pattern(5, 6 * PAGE_SIZE_U64 as usize)).unwrap();
        assert_eq!(
            one.read(0, 8 * PAGE_SIZE_U64 as usize).unwrap(),
            pattern(4, 8 * PAGE_SIZE_U64 as usize)
        );
        assert_eq!(
            other.read(0, 6 * PAGE_SIZE_U64 as usize).unwrap(),
            pattern(5, 6 * PAGE_SIZE_U64 as usize)
        );
        one.write(3, b"x").unwrap();
        other.write(3, b"y").unwrap();
        let mut flushed = vec![];
        one.frames.visit_dirty(|cache| {
            flushed.push(cache.id());
            cache.flush(0, u64::MAX).unwrap();
        });
        assert_eq!(flushed.len(), 2);
        one.frames.visit_dirty(|cache| panic!("{cache:?} is still dirty"));
        assert_eq!((one.host.bytes()[3], other.host.bytes()[3]), (b'x', b'y'));
        one.cache.discard();
        other.check_all_free();
    }
}

#[test]
fn physical_memory_can_be_swapped_while_frames_are_taken_back() {
    // Caches call physical memory with their locks held, and reclaiming frames waits for these
    // locks. A swap of physical memory must therefore never wait for a thread that reclaims frames.
    // Its policy is swapped at the same time: the two changes do not wait for each other either.
    const SWAPS: u64 = 3000;
    let one = Subject::new("shared", 12, vec![]);
    let other = Subject::on("partitioned", one.pm, Arc::clone(&one.frames), vec![]);
    let done = AtomicBool::new(false);
    let use_file = |file: &Subject, seed: u64| {
        let mut file = file.clone();
        file.attempts = 100_000;
        for round in (0..).take_while(|_| !done.load(Relaxed)) {
            let at = round * 5 % 30 * PAGE_SIZE_U64 + 100;
            let data = pattern(seed + round, 3 * PAGE_SIZE_U64 as usize);
            file.write(at, &data).unwrap();
            assert!(file.read(at, data.len()).unwrap() == data, "round {round}");
        }
    };
    let options = SwapOptions { deadline: Duration::from_secs(60), ..SwapOptions::default() };
    let swap = |object, to| {
        let swap = |round| refit_objects::swap_named(object, to, round, &options);
        (0..SWAPS).map(swap).find(|report| !report.committed())
    };
    std::thread::scope(|scope| {
        let users = [scope.spawn(|| use_file(&one, 1)), scope.spawn(|| use_file(&other, 2))];
        let of_policy = scope.spawn(|| swap(policy().id(), CLOCK));
        let reports = [swap(one.pm.id(), "sweep"), of_policy.join().unwrap()];
        done.store(true, Relaxed);
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!(reports, [None, None]);
    });
    assert!(one.pm.stats().write_backs > 0);
    one.cache.discard();
    other.check_all_free();
}

#[test]
fn files_can_go_while_others_reclaim() {
    // A thread that reclaims finds caches in descriptors; a call of a destroyed cache would panic.
    let keeper = Subject::new("shared", 16, pattern(6, 4 * PAGE_SIZE_U64 as usize));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    keeper.reclaim(2);
                    keeper.frames.visit_dirty(|cache| {
                        cache.flush(0, u64::MAX).unwrap();
                    });
                    std::thread::yield_now();
                }
            });
        }
        let goer = scope.spawn(|| {
            for round in 0..3000 {
                let which = IMPLEMENTATIONS[round % IMPLEMENTATIONS.len()];
                let file = Subject::on(which, keeper.pm, Arc::clone(&keeper.frames), vec![]);
                file.write(0, &pattern(round as u64, 3 * PAGE_SIZE_U64 as usize)).unwrap();
                destroy_file_cache(file.cache, &file.frames);
            }
        });
        let went = goer.join();
        done.store(true, Relaxed);
        went.unwrap();
    });
    keeper.check_all_free();
}

#[test]
fn a_cache_that_is_visited_is_not_destroyed() {
    let file = Subject::new("shared", 4, vec![]);
    file.write(0, b"something").unwrap();
    let frame = file.frames.frame(0).unwrap();
    std::thread::scope(|scope| {
        let visited = file.frames.visit(frame, |owner, page| {
            scope.spawn(|| destroy_file_cache(file.cache, &file.frames));
            // From here on only the visit keeps the cache alive.
            while file.frames.free_frames() < 4 {
                std::thread::yield_now();
            }
            (0..1000).for_each(|_| std::thread::yield_now());
            owner.evict(page, frame)
        });
        assert_eq!(visited, Some(Ok(refit_memory::Eviction::Busy)));
    });
}

/// A policy that behaves as the test specifies.
struct Wayward(fn(&[u8], &mut [u8]));

impl ReplacementPolicy for Wayward {
    fn judge(&self, _first: u32, marks: &[u8], _round: u32, verdicts: &mut [u8]) {
        (self.0)(marks, verdicts);
    }
}

impl State<Vec<u8>> for Wayward {
    fn export(&self) -> Result<Vec<u8>, TransferError> {
        Ok(vec![])
    }

    fn import(&self, _heat: Vec<u8>) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Creates physical memory over a policy of the test.
fn with_policy(policy: fn() -> Wayward) -> Subject {
    let choices = Choices::new().with("wayward", ReplacementPolicyInterface::rep, policy);
    let policy: ReplacementPolicyRef = choices.create("test", "wayward").unwrap();
    let frames = FramePool::new(100 * PAGE_SIZE_U64).unwrap();
    let pm = create_physical_memory("test", Arc::clone(&frames), policy);
    Subject::on("shared", pm, frames, pattern(8, 150 * PAGE_SIZE_U64 as usize))
}

#[test]
fn the_policy_has_the_say() {
    // Pages that arrived since the hand last passed are evicted; older pages stay.
    let newest = || {
        let newest = |marks: &[u8], verdicts: &mut [u8]| {
            marks.iter().zip(verdicts).for_each(|(mark, verdict)| *verdict = mark & mark::NEW);
        };
        Wayward(newest)
    };
    let file = with_policy(newest);
    file.read(0, 100 * PAGE_SIZE_U64 as usize).unwrap();
    // The hand passes each page once.
    assert_eq!(file.reclaim(100), 100);
    file.read(0, 90 * PAGE_SIZE_U64 as usize).unwrap();
    let mut search = Search::default();
    assert_eq!(file.pm.victims(90, &mut search).len(), 90, "all of them are new");
    assert_eq!(search.named, 90);
    file.read(90 * PAGE_SIZE_U64, 10 * PAGE_SIZE_U64 as usize).unwrap();
    let victims = file.pm.victims(100, &mut Search::default());
    let pages: Vec<_> = victims.iter().filter_map(|v| file.frames.owner(v.frame)).collect();
    assert_eq!(pages.len(), 10);
    assert!(pages.iter().all(|(_, page)| *page >= 90), "{pages:?}");
    file.check_all_free();
}

/// Pages are still reclaimed, and pages that must not be evicted stay.
#[test]
fn a_policy_that_names_nobody_all_or_panics_does_no_harm() {
    let policies: [fn() -> Wayward; 3] = [
        || Wayward(|_, _| ()),
        || Wayward(|_, verdicts| verdicts.fill(u8::MAX)),
        || Wayward(|_, _| panic!("no verdict (part of the test)")),
    ];
    for policy in policies {
        let file = with_policy(policy);
        assert_eq!(file.reclaim(5), 0, "free frames are no victims");
        let mut expected = file.host.bytes();
        for round in 0..3 {
            for at in (round..150).step_by(3) {
                file.write(at * PAGE_SIZE_U64 + 7, b"written").unwrap();
                expected[(at * PAGE_SIZE_U64 + 7) as usize..][..7].copy_from_slice(b"written");
            }
            let read: Vec<_> = (0..15)
                .flat_map(|n| {
                    file.read(n * 10 * PAGE_SIZE_U64, 10 * PAGE_SIZE_U64 as usize).unwrap()
                })
                .collect();
            assert!(read == expected);
        }
        file.flush();
        assert!(file.host.bytes() == expected);
        file.check_all_free();
    }
}
