//! Tests of the order of eviction, the only difference between implementations that a program could
//! observe.

use std::collections::{BTreeSet, VecDeque};

use refit_memory::PAGE_SIZE;
use refit_memory::program::{LendError, PARTITIONED, SEQUENTIAL, SHARED};
use refit_memory::store::{PageStore, SwapFile};

use crate::common::{IMPLEMENTATIONS, Numbers, Subject, store};

/// The number of pages evicted at once.
const BATCH: usize = 8;

/// Returns the number of these accesses that find their page resident.
fn hits(implementation: &str, frames: u64, accesses: &[u64]) -> usize {
    let subject = Subject::new(implementation, frames, store(0));
    let (mut inside, mut hits) = (BTreeSet::new(), 0);
    let mut page_of_it = [0; PAGE_SIZE];
    for &page in accesses {
        if inside.contains(&page) {
            hits += 1;
            continue;
        }
        while let Err(why) = subject.cache.lend(page, &mut page_of_it) {
            assert_eq!(why, LendError::NoFrame);
            let go = subject.cache.recall(BATCH);
            assert_eq!(go.len(), BATCH);
            go.iter().for_each(|page| assert!(inside.remove(page)));
            let bytes = vec![0; BATCH * PAGE_SIZE];
            subject.cache.take_back(&go, &bytes).expect("zeros take no room");
        }
        subject.cache.landed(page, 1, true);
        inside.insert(page);
    }
    subject.end_all();
    hits
}

/// Returns the number of hits under first-in, first-out eviction.
fn hits_in_order(frames: usize, accesses: &[u64]) -> usize {
    let (mut inside, mut order, mut hits) = (BTreeSet::new(), VecDeque::new(), 0);
    for &page in accesses {
        if inside.contains(&page) {
            hits += 1;
            continue;
        }
        if order.len() == frames {
            order.drain(..BATCH).for_each(|page| assert!(inside.remove(&page)));
        }
        inside.insert(page);
        order.push_back(page);
    }
    hits
}

/// Returns accesses with a Zipf distribution: page n is accessed n times less often than page 1.
fn zipf(pages: u64, accesses: usize) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=pages)
        .map(|n| {
            sum += 1.0 / n as f64;
            sum
        })
        .collect();
    let mut numbers = Numbers(5);
    let mut next = || {
        let at = numbers.below(1 << 30) as f64 / (1 << 30) as f64 * sum;
        sums.partition_point(|&to| to <= at) as u64
    };
    (0..accesses).map(|_| next()).collect()
}

#[test]
fn what_comes_back_soon_stays_longer() {
    let accesses = zipf(4000, 60_000);
    let in_order = hits_in_order(1000, &accesses);
    for implementation in [SHARED, PARTITIONED] {
        let hits = hits(implementation, 1000, &accesses);
        println!("{implementation}: {hits} hits, in order {in_order}");
        assert!(hits > in_order, "{implementation}: {hits} hits, in order {in_order}");
    }
}

#[test]
fn a_loop_over_twice_the_frames_finds_half_of_them_where_the_last_go_first() {
    let pages = 2000;
    let rounds = 10;
    let accesses: Vec<u64> = (0..rounds).flat_map(|_| 0..pages).collect();
    // No access of the first round can be a hit.
    let all = ((rounds - 1) * pages) as f64;
    let part = |implementation| hits(implementation, pages / 2, &accesses) as f64 / all;
    let (newest, queues) = (part(SEQUENTIAL), part(SHARED));
    println!("the last first: {newest:.3}, two queues: {queues:.3}");
    assert!((0.4..0.55).contains(&newest), "{newest}");
    assert!(queues < 0.1, "{queues}");
}

/// Pages that cannot be evicted, because they are shared with a device, for example, do not prevent
/// the eviction of others.
#[test]
fn others_are_chosen_when_some_always_stay() {
    for implementation in IMPLEMENTATIONS {
        for fixed in [0..100_u64, 300..400] {
            let subject = Subject::new(implementation, 400, store(0));
            assert_eq!(subject.cache.adopt(&(0..400).collect::<Vec<_>>()), 400);
            let mut evicted = 0;
            for _ in 0..100 {
                let (stay, go): (Vec<_>, Vec<_>) =
                    subject.cache.recall(64).into_iter().partition(|page| fixed.contains(page));
                subject.cache.stay(&stay);
                subject.cache.left(&go);
                evicted += go.len();
            }
            assert_eq!(evicted, 300, "{implementation}: {fixed:?} stay");
            subject.end_all();
        }
    }
}

/// Pages that leave are put where the last call about them says, not where they began to leave.
#[test]
fn a_page_that_has_come_again_while_it_left_stays_and_one_that_leaves_is_not_doomed() {
    for implementation in IMPLEMENTATIONS {
        let subject = Subject::new(implementation, 8, store(0));
        let cache = subject.cache;
        let come = || {
            assert_eq!(cache.lend(3, &mut [0; PAGE_SIZE]), Ok(1), "{implementation}");
            cache.landed(3, 1, true);
        };
        come();
        assert_eq!(cache.recall(1), [3]);
        cache.forget(3, 4);
        come();
        cache.left(&[3]);
        assert_eq!((cache.stats().resident, subject.budget.stats().taken), (1, 1));
        assert_eq!(cache.recall(1), [3]);
        cache.doom(3, 4);
        assert!(cache.doomed().is_empty(), "{implementation}");
        cache.stay(&[3]);
        assert_eq!(cache.recall(1), [3], "{implementation}: it can leave again");
        subject.end_all();
    }
}

/// A page that the store cannot return is out as before, and every fault finds that again.
#[test]
fn a_page_that_cannot_be_read_is_not_in_transit_for_ever() {
    for implementation in IMPLEMENTATIONS {
        let file = tempfile::tempfile().expect("a file");
        let swap_file = SwapFile::new(file.try_clone().expect("a descriptor"), 1 << 20);
        let subject = Subject::new(implementation, 8, PageStore::new(0, Some(swap_file)));
        let cache = subject.cache;
        assert_eq!(cache.lend(3, &mut [0; PAGE_SIZE]), Ok(1));
        cache.landed(3, 1, true);
        assert_eq!(cache.recall(1), [3]);
        cache.take_back(&[3], &[7; PAGE_SIZE]).expect("there is room");
        file.set_len(0).expect("it can be cut");
        for _ in 0..2 {
            let lent = cache.lend(3, &mut [0; PAGE_SIZE]);
            assert!(matches!(lent, Err(LendError::Host(_))), "{implementation}: {lent:?}");
            assert_eq!(subject.budget.stats().taken, 0);
        }
        subject.end_all();
    }
}
