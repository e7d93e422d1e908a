//! Tests of promised frames and of pages in a store: never more than the limit, however many
//! callers there are, and none is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use refit_memory::program::{BudgetInterface, GLOBAL, LOCAL, Share, create_budget};
use refit_memory::store::{PageStore, StoreError, StoreStats, StoredPage};
use refit_memory::{AnonymousPages, FileRepresentative, PAGE_SIZE};
use refit_objects::{Interface, destroy};

use crate::common::{Numbers, PAGE_SIZE_U64, contents_of, page_of, swap};

#[test]
fn no_more_frames_are_out_than_were_ever_allowed() {
    const MOST: u64 = 100;
    let budget = create_budget("test", MOST);
    let out = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let out = &out;
            scope.spawn(move || {
                let (mut numbers, mut mine) = (Numbers(seed), 0);
                for _ in 0..50_000 {
                    if numbers.below(2) == 0 {
                        let wanted = numbers.below(40);
                        let got = budget.take(wanted);
                        assert!(got <= wanted);
                        // Counted after the frames are taken, and uncounted before they are
                        // returned, so the count never exceeds the truth.
                        let all = out.fetch_add(got, Relaxed) + got;
                        assert!(all <= MOST, "{all} of {MOST}");
                        mine += got;
                    } else {
                        let some = numbers.below(mine + 1);
                        out.fetch_sub(some, Relaxed);
                        budget.give(some);
                        mine -= some;
                    }
                }
                out.fetch_sub(mine, Relaxed);
                budget.give(mine);
            });
        }
        let mut numbers = Numbers(9);
        for _ in 0..50_000 {
            budget.allow(numbers.below(MOST + 1));
        }
    });
    assert_eq!(budget.stats().taken, 0);
    budget.allow(MOST);
    assert_eq!(budget.take(2 * MOST), MOST);
    destroy(BudgetInterface::id(budget));
}

#[test]
fn what_is_out_beyond_what_is_allowed_has_to_come_back_first() {
    let budget = create_budget("test", 10);
    assert_eq!((budget.take(8), budget.take(8), budget.take(0)), (8, 2, 0));
    budget.allow(4);
    let before = budget.stats();
    assert_eq!((before.limit, before.taken), (4, 10));
    for out in (5..=10).rev() {
        assert_eq!(budget.take(1), 0, "{out} are out");
        budget.give(1);
    }
    assert_eq!(budget.take(3), 0);
    budget.give(2);
    assert_eq!((budget.take(3), budget.take(1)), (2, 0));
    let after = budget.stats();
    assert_eq!((after.taken, after.refused), (4, before.refused + 8));
    budget.give(4);
    destroy(BudgetInterface::id(budget));
}

#[test]
fn a_swap_keeps_the_limit_and_what_is_granted() {
    let budget = create_budget("test", 10);
    assert_eq!((budget.take(7), budget.take(7), budget.take(1)), (7, 3, 0));
    budget.give(4);
    for policy in [LOCAL, GLOBAL] {
        let before = budget.stats();
        assert_eq!((before.limit, before.taken, before.refused), (10, 6, 1));
        swap(BudgetInterface::id(budget), policy);
        assert_eq!(budget.stats(), before);
    }
    budget.give(6);
    destroy(BudgetInterface::id(budget));
}

#[test]
fn a_page_is_kept_whatever_the_store_has_room_for() {
    let store = PageStore::new(0, None);
    let refused = store.put(&page_of(1)).expect_err("no room");
    assert!(matches!(refused, StoreError::Full { bytes: 0 }), "{refused}");
    let kept = [1, 2, 0].map(|contents| Arc::new(store.keep(&page_of(contents))));
    assert_eq!(store.stats().compressed_bytes, 3 * PAGE_SIZE_U64);
    let mut read = vec![0xee; 3 * PAGE_SIZE];
    StoredPage::read(&kept, &mut read).expect("in memory");
    assert_eq!(read.chunks(PAGE_SIZE).map(contents_of).collect::<Vec<_>>(), [1, 2, 0]);
    // The limit exceeds the space in the kept pages: kept pages occupy space like any others.
    store.allow(3 * PAGE_SIZE_U64);
    assert!(store.put(&page_of(2)).is_err());
    store.allow(4 * PAGE_SIZE_U64);
    let put = store.put(&[page_of(2), page_of(0)].concat()).expect("room");
    store.allow(0);
    assert!(store.put(&page_of(2)).is_err(), "and what is there stays");
    assert_eq!((store.stats().compressed, store.stats().zeros), (4, 1));
    drop((put, kept));
    assert_eq!(store.stats(), StoreStats::default());
}

#[test]
fn what_is_kept_takes_the_place_of_what_was_there_and_goes_with_it() {
    let store = PageStore::new(1 << 20, None);
    let pages = AnonymousPages::new(Arc::clone(&store), i64::MAX as u64);
    pages.write(5 * PAGE_SIZE_U64, &[page_of(5), page_of(6)].concat()).expect("room");
    let child = pages.fork();
    pages.keep(6, &page_of(7));
    pages.keep(9, &page_of(9));
    let apart = pages.split_off(6..8);
    assert_eq!((pages.numbers(), apart.numbers()), (vec![5, 9], vec![6]));
    let read = |pages: &AnonymousPages, page: u64| {
        let mut bytes = [0xee; PAGE_SIZE];
        assert_eq!(pages.read(page * PAGE_SIZE_U64, &mut bytes), Ok(PAGE_SIZE));
        contents_of(&bytes)
    };
    assert_eq!([5, 6, 9].map(|page| read(&pages, page)), [5, 0, 9]);
    assert_eq!([5, 6, 9].map(|page| read(&apart, page)), [0, 7, 0]);
    assert_eq!([5, 6, 9].map(|page| read(&child, page)), [5, 6, 0]);
    pages.punch(0, 100 * PAGE_SIZE_U64).expect("in memory");
    assert!(pages.is_empty() && child.len() == 2);
    drop((pages, child, apart));
    assert_eq!(store.stats(), StoreStats::default());
}

#[test]
fn who_gives_is_drawn_by_what_programs_have_or_by_what_comes_to_them() {
    let budget = create_budget("test", 10);
    let (large, greedy) = (Share { resident: 3000, came: 99 }, Share { resident: 999, came: 300 });
    let drawn = |shares: &[Share]| {
        let mut drawn = [0; 2];
        (0..40_000).for_each(|_| drawn[budget.who_gives(shares).expect("there are some")] += 1);
        drawn
    };
    for _ in 0..3 {
        assert_eq!(budget.who_gives(&[]), None);
        // In proportion to the resident pages: three to one.
        let [from_large, _] = drawn(&[large, greedy]);
        assert!((29_900..30_200).contains(&from_large), "{from_large}");
        swap(BudgetInterface::id(budget), LOCAL);
        // In proportion to the arrived pages: one to three.
        let [from_large, _] = drawn(&[large, greedy]);
        assert!((9_900..10_100).contains(&from_large), "{from_large}");
        // No page has arrived; the limit was lowered.
        let quiet = [large, greedy].map(|share| Share { came: 0, ..share });
        let [from_large, _] = drawn(&quiet);
        assert!((29_900..30_200).contains(&from_large), "{from_large}");
        swap(BudgetInterface::id(budget), GLOBAL);
    }
    destroy(BudgetInterface::id(budget));
}
