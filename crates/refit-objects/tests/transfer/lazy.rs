//! Tests of lazy transfer: on demand, by the drain, at the deadline, and on top of another one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use refit_objects::change::Drained;
use refit_objects::transfer::{AtDeadline, DrainOptions, Lazy, LazySource, Progress};
use refit_objects::{SwapOptions, TransferError, destroy, swap_named};

use crate::table::*;

fn lazily(drain: DrainOptions) -> SwapOptions {
    SwapOptions { drain, ..patient() }
}

fn no_drain() -> DrainOptions {
    let deadline = Duration::ZERO;
    DrainOptions { deadline, at_deadline: AtDeadline::Report, ..DrainOptions::default() }
}

fn drained(table: TableRef, options: &SwapOptions) -> Drained {
    let report = swap_named(table.id(), "lazy", 1, options);
    assert!(report.committed(), "{report:?}");
    report.transfers.into_iter().next().and_then(|t| t.drained).expect("it was lazy")
}

#[test]
fn the_drain_moves_everything_and_tells_how_far_it_is() {
    let (t, _) = table("drain", "lazy", 1000);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let watch = move |progress: Progress| sees.lock().unwrap().push(progress.left);
    let drain = DrainOptions { batch: 100, watch: Some(Arc::new(watch)), ..patient().drain };
    let Drained { on_demand, by_drain, left, forced, why, .. } = drained(t, &lazily(drain));
    assert_eq!((on_demand, by_drain, left, forced, &*why), (0, 1000, 0, false, ""));
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, [900, 800, 700, 600, 500, 400, 300, 200, 100, 0]);
    check(t, 1000);
    destroy(t.id());
}

/// A batch of none would move nothing, for ever.
#[test]
fn a_batch_has_at_least_one_item() {
    let (t, _) = table("batch", "lazy", 3);
    let cancel = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sees, ends) = (Arc::clone(&seen), Arc::clone(&cancel));
    let watch = move |progress: Progress| {
        let mut seen = sees.lock().unwrap();
        ends.fetch_or(seen.last() == Some(&progress.left), Ordering::Relaxed);
        seen.push(progress.left);
    };
    let drain = DrainOptions { batch: 0, watch: Some(Arc::new(watch)), ..patient().drain };
    let options = SwapOptions { cancel: Some(cancel), ..lazily(drain) };
    assert_eq!(drained(t, &options).left, 0);
    assert_eq!(*seen.lock().unwrap(), [2, 1, 0]);
    check(t, 3);
    destroy(t.id());
}

/// After the commit there is nothing to take back: what has not moved is left where it is, for the
/// calls that need it.
#[test]
fn a_drain_ends_when_its_requester_goes_away() {
    let (t, _) = table("leaves", "lazy", 1000);
    let cancel = Arc::new(AtomicBool::new(false));
    let leaves = Arc::clone(&cancel);
    let watch = move |_| leaves.store(true, Ordering::Relaxed);
    let drain = DrainOptions { batch: 100, watch: Some(Arc::new(watch)), ..patient().drain };
    let options = SwapOptions { cancel: Some(cancel), ..lazily(drain) };
    let Drained { by_drain, left, why, .. } = drained(t, &options);
    assert_eq!((by_drain, left), (100, 900));
    assert!(why.contains("went away"), "{why}");
    check(t, 1000);
    destroy(t.id());
}

#[test]
fn calls_move_what_they_need_and_the_next_swap_takes_what_is_left() {
    let (t, _) = table("demand", "lazy", 300);
    assert_eq!(drained(t, &lazily(no_drain())).left, 300);
    for key in 0..100 {
        assert_eq!(t.get(key), Ok(Some(3 * key)));
        assert_eq!(t.get(key), Ok(Some(3 * key)));
    }
    assert_eq!(t.remove(100), Ok(Some(300)), "removed before it had moved");
    assert_eq!(t.insert(101, 0), Ok(Some(303)), "overwritten before it had moved");
    assert_eq!(t.insert(101, 303), Ok(Some(0)));
    assert_eq!(t.len(), 299);
    // A source that has a source itself, of which nothing has moved; then everything moves.
    assert_eq!(drained(t, &lazily(no_drain())).left, 299);
    assert_eq!(t.get(100), Ok(None), "what was removed does not come back");
    let Drained { by_drain, left, .. } = drained(t, &patient());
    assert_eq!((by_drain, left), (299, 0));
    // The canonical state also contains all of it.
    assert_eq!(drained(t, &lazily(no_drain())).left, 299);
    assert!(swap(t, "copying").committed());
    assert_eq!(t.get(100), Ok(None));
    t.insert(100, 300).expect("nobody fails");
    check(t, 300);
    destroy(t.id());
}

#[test]
fn at_the_deadline_the_rest_is_moved_at_once_if_that_is_asked_for() {
    let (t, _) = table("finish", "lazy", 500);
    let drain = DrainOptions { at_deadline: AtDeadline::Finish, ..no_drain() };
    let Drained { by_drain, left, forced, why, .. } = drained(t, &lazily(drain));
    assert_eq!((by_drain, left, forced, &*why), (500, 0, true, ""));
    check(t, 500);
    destroy(t.id());
}

/// The object continues to work and reports why the drain is not complete: the old implementation
/// never gives item 5 away.
#[test]
fn a_drain_that_cannot_end_says_why() {
    struct Stubborn(Mutex<Vec<u64>>);
    impl LazySource<u64, u64> for Stubborn {
        fn fetch(&self, key: &u64) -> Result<Option<u64>, TransferError> {
            if *key == 5 {
                return Err(TransferError("5 is mine".into()));
            }
            let mut keys = self.0.lock().unwrap();
            let at = keys.iter().position(|k| k == key);
            Ok(at.map(|at| keys.swap_remove(at)))
        }
        fn keys(&self, most: usize) -> Result<Vec<u64>, TransferError> {
            Ok(self.0.lock().unwrap().iter().copied().take(most).collect())
        }
        fn left(&self) -> u64 {
            self.0.lock().unwrap().len() as u64
        }
    }
    let map = Map::new(4);
    map.attach(Arc::new(Stubborn(Mutex::new((0..10).collect()))));
    assert_eq!(map.drain(100), Err(TransferError("5 is mine".into())));
    assert_eq!(map.drain(usize::MAX), Err(TransferError("5 is mine".into())));
    let Progress { open, left, by_drain, .. } = map.drain(0).expect("nothing is asked of it");
    assert_eq!((open, left, by_drain), (true, 1, 9), "the others have moved");
    assert_eq!(map.get(&4, |n| *n), Ok(Some(4)));
    assert!(map.get(&5, |n| *n).is_err());
}

/// One item was refused here, and one is still at the source. No more keys are listed than are
/// asked for, and none is left out when all are.
#[test]
fn keys_are_listed_as_far_as_they_are_asked_for() {
    let lazy = Lazy::<u64, u64>::new(1);
    let source = Map::new(1);
    for key in [1, 2] {
        source.insert(key, key).expect("it has no source");
    }
    lazy.attach(Arc::new(source));
    lazy.settle(&1, |_refused| ()).expect_err("it was not taken over");
    for (most, listed) in [(1, 1), (2, 2), (usize::MAX, 2)] {
        assert_eq!(lazy.keys(most).map(|keys| keys.len()), Ok(listed));
    }
}

/// A root releases its source when the swap to it is rolled back, and only then.
/// [`LazyMap::detach`](refit_objects::transfer::LazyMap::detach) requires proof of that, which no
/// replaced root has.
#[test]
fn a_chain_of_lazy_swaps_without_a_drain_keeps_every_item_and_a_rolled_back_one_its_source() {
    let (t, faults) = table("chain", "lazy", 1000);
    for _ in 0..3 {
        assert_eq!(drained(t, &lazily(no_drain())).left, 1000);
        assert_eq!(t.len(), 1000);
    }
    let dry = SwapOptions { dry_run: true, ..lazily(no_drain()) };
    assert_eq!(swap_named(t.id(), "lazy", 2, &dry).end.word(), "rehearsed");
    assert_eq!(faults.detached(), 1, "the new root of the dry run, and no other");
    check(t, 1000);
    destroy(t.id());
}

/// No call waits for ever for an item that is announced and never given.
#[test]
fn a_source_that_lists_what_it_does_not_have_is_an_error() {
    struct Boasting;
    impl LazySource<u64, u64> for Boasting {
        fn fetch(&self, _key: &u64) -> Result<Option<u64>, TransferError> {
            Ok(None)
        }
        fn keys(&self, _most: usize) -> Result<Vec<u64>, TransferError> {
            Ok(vec![7])
        }
        fn left(&self) -> u64 {
            1
        }
    }
    let map = Map::new(1);
    map.attach(Arc::new(Boasting));
    assert!(map.drain(1).is_ok_and(|progress| progress.open));
    assert!(map.drain(usize::MAX).is_err_and(|e| e.0.contains("lists keys")));
    assert_eq!(map.get(&7, |n| *n), Ok(None));
}

/// A source pauses between giving an item away and returning. Calls meet the drain in that moment,
/// and at its end, when it closes.
#[test]
fn readers_find_what_is_in_hand() {
    struct Dawdling(Map);
    impl LazySource<u64, u64> for Dawdling {
        fn fetch(&self, key: &u64) -> Result<Option<u64>, TransferError> {
            let item = self.0.fetch(key)?;
            (0..20).for_each(|_| std::thread::yield_now());
            Ok(item)
        }
        fn keys(&self, most: usize) -> Result<Vec<u64>, TransferError> {
            self.0.keys(most)
        }
        fn left(&self) -> u64 {
            self.0.left()
        }
    }
    for round in 0..300_u64 {
        let source = Dawdling(Map::new(1));
        (0..4).for_each(|key| drop(source.0.insert(key, key + round)));
        let map = Map::new(2);
        map.attach(Arc::new(source));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let map = &map;
                scope.spawn(move || {
                    for key in (0..4).map(|key| (key + thread) % 4) {
                        assert_eq!(map.get(&key, |n| *n), Ok(Some(key + round)), "item {key}");
                    }
                });
            }
            while map.drain(1).expect("nobody fails").open {}
        });
        assert_eq!(map.len(), 4);
    }
}

/// Every method of the map settles its key first: the drain does not undo a write, and a read sees
/// the value that the old implementation had.
#[test]
fn every_method_of_the_map_settles_its_key_first() {
    for finish in [false, true] {
        let source = Map::new(1);
        (0..8_u64).for_each(|key| drop(source.insert(key, 10 + key)));
        let map = Map::new(2);
        map.attach(Arc::new(source));
        assert_eq!(map.get(&0, |n| *n), Ok(Some(10)));
        assert_eq!(map.insert(1, 1), Ok(Some(11)), "the old item is replaced");
        assert_eq!(map.remove(&2), Ok(Some(12)));
        let add = |item: &mut Option<u64>| item.as_mut().map(|n| *n += 100);
        assert_eq!(map.update(&3, add), Ok(Some(())), "the old item is there to be changed");
        assert_eq!(map.update(&4, |item| item.take()), Ok(Some(14)));
        assert_eq!(map.update(&9, |item| *item = Some(9)), Ok(()));
        assert_eq!((map.len(), map.is_empty()), (7, false));
        if finish {
            map.drain(usize::MAX).expect("nobody fails");
        } else {
            while map.drain(1).expect("nobody fails").open {}
        }
        let mut all = Vec::new();
        map.visit(|key, item| all.push((*key, *item))).expect("nobody fails");
        all.sort_unstable();
        assert_eq!(all, [(0, 10), (1, 1), (3, 113), (5, 15), (6, 16), (7, 17), (9, 9)]);
    }
}

/// An item that the new store refuses while everything is moved at once is kept, keeps the transfer
/// open, and is offered again.
#[test]
fn an_item_that_is_refused_at_the_end_keeps_the_transfer_open() {
    let source = Arc::new(Map::new(1));
    (0..4_u64).for_each(|key| drop(source.insert(key, key)));
    let (lazy, here) = (Lazy::new(2), Map::new(1));
    lazy.attach(Arc::clone(&source) as Arc<dyn LazySource<u64, u64>>);
    let put = |key: &u64, hand: refit_objects::transfer::InHand<'_, u64>| {
        assert_eq!(here.insert(*key, hand.take()), Ok(None));
    };
    let but_for_two = |key: &u64, hand: refit_objects::transfer::InHand<'_, u64>| {
        if *key != 2 {
            put(key, hand);
        }
    };
    for _ in 0..2 {
        assert!(lazy.finish(but_for_two).is_err_and(|e| e.0.contains("not taken over")));
        let Progress { open, left, .. } = lazy.progress();
        assert_eq!((open, left, here.len()), (true, 1, 3), "kept, and still to be moved");
        assert_eq!(lazy.keys(10), Ok(vec![2]));
    }
    assert!(lazy.drain(1, but_for_two).is_err());
    assert_eq!(lazy.finish(put).map(|progress| (progress.open, progress.left)), Ok((false, 0)));
    assert_eq!(here.len(), 4);
}

#[test]
fn an_item_that_is_not_taken_is_kept_even_in_a_panic() {
    let source = Arc::new(Map::new(1));
    (0..4_u64).for_each(|key| drop(source.insert(key, key)));
    let (lazy, here) = (Lazy::new(2), Map::new(1));
    lazy.attach(Arc::clone(&source) as Arc<dyn LazySource<u64, u64>>);
    let refused = lazy.settle(&1, |_hand| ());
    assert!(refused.is_err_and(|e| e.0.contains("not taken over")));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lazy.settle(&2, |_hand| panic!("there is no room"))
    }));
    assert!(panicked.is_err());
    assert_eq!((source.len(), lazy.progress().left), (2, 4), "out of there, and not lost");
    let mut keys = lazy.keys(10).expect("nobody fails");
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 2, 3]);
    let put = |key: &u64, hand: refit_objects::transfer::InHand<'_, u64>| {
        assert_eq!(here.insert(*key, hand.take()), Ok(None));
    };
    assert_eq!(lazy.settle(&1, |hand| put(&1, hand)), Ok(()));
    while lazy.drain(1, put).expect("nobody fails").open {}
    assert_eq!(here.len(), 4);
    let Progress { on_demand, by_drain, .. } = lazy.progress();
    assert_eq!((on_demand, by_drain), (1, 3));
}

/// The old state is freed when the drain is over, not with the next swap.
#[test]
fn the_old_state_is_freed_after_the_drain() {
    struct Counted(Arc<AtomicU64>, Map);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl LazySource<u64, u64> for Counted {
        fn fetch(&self, key: &u64) -> Result<Option<u64>, TransferError> {
            self.1.fetch(key)
        }
        fn keys(&self, most: usize) -> Result<Vec<u64>, TransferError> {
            self.1.keys(most)
        }
        fn left(&self) -> u64 {
            self.1.left()
        }
    }
    for finish in [false, true] {
        let freed = Arc::new(AtomicU64::new(0));
        let source = Counted(Arc::clone(&freed), Map::new(2));
        (0..10_u64).for_each(|key| drop(source.1.insert(key, key)));
        let map = Map::new(2);
        map.attach(Arc::new(source));
        while map.drain(if finish { usize::MAX } else { 3 }).expect("nobody fails").open {
            assert_eq!(freed.load(Ordering::Relaxed), 0);
        }
        assert_eq!((freed.load(Ordering::Relaxed), map.len()), (1, 10));
    }
}

/// Readers find every item at every moment, and the items of writers are never undone, while the
/// drain runs and further swaps put one lazy implementation on top of the other.
#[test]
fn nothing_is_lost_or_comes_back_under_load() {
    const ITEMS: u64 = 2_000;
    let (t, _) = table("load", "lazy", ITEMS);
    let stop = Stop::default();
    let moved = std::thread::scope(|scope| {
        for thread in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                // Each thread has keys of its own, and knows their expected values.
                let mut mine: Vec<(u64, Option<u64>)> =
                    (0..ITEMS).filter(|k| k % 3 == thread).map(|k| (k, Some(3 * k))).collect();
                let mut random = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                while !stop.said() {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let place = random as usize % mine.len();
                    let (key, expected) = &mut mine[place];
                    let found = match random >> 60 {
                        0..10 => t.get(*key),
                        10..13 => t.insert(*key, random),
                        _ => t.remove(*key),
                    };
                    assert_eq!(found, Ok(*expected), "item {key}");
                    match random >> 60 {
                        0..10 => {}
                        10..13 => *expected = Some(random),
                        _ => *expected = None,
                    }
                }
                for (key, expected) in mine {
                    assert_eq!(t.get(key), Ok(expected), "item {key} at the end");
                }
            });
        }
        let stopping = stop.when_dropped();
        let mut moved = 0;
        for round in 0..150 {
            let batch = 1 + round % 50;
            let drain = DrainOptions {
                batch,
                deadline: Duration::from_micros(200 * (round as u64 % 7)),
                at_deadline: if round % 3 == 0 { AtDeadline::Finish } else { AtDeadline::Report },
                watch: None,
            };
            let to = if round % 10 == 9 { "copying" } else { "lazy" };
            let report = swap_named(t.id(), to, 1, &lazily(drain));
            assert!(report.committed(), "{report:?}");
            let drained =
                report.transfers.into_iter().next().and_then(|t| t.drained).unwrap_or_default();
            moved += drained.on_demand + drained.by_drain;
        }
        drop(stopping);
        moved
    });
    assert!(moved > 0);
    destroy(t.id());
}
