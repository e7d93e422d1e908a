//! Tests of transfers from one implementation to the other and back: nothing is read again, nothing
//! is lost.

use std::sync::Arc;
use std::time::Duration;

use refit_objects::SwapOptions;

use crate::host::{IMPLEMENTATIONS, PAGE_SIZE_U64, RANGE, Subject, pattern};

/// The first implementation, and the protocol by which it hands over.
const WAYS: [(usize, &str); 8] = [
    (0, "stripes"),
    (1, "stripes"),
    (0, "partitions"),
    (1, "partitions"),
    (0, "canonical"),
    (1, "canonical"),
    (0, "lazy"),
    (1, "lazy"),
];

#[test]
fn pages_dirty_marks_size_and_counters_survive_a_swap() {
    for (first, protocol) in WAYS {
        let bytes = pattern(1, (2 * RANGE) as usize + 100);
        let file = Subject::new(IMPLEMENTATIONS[first], 300, bytes.clone());
        let mut expected = bytes;
        file.read(RANGE - PAGE_SIZE_U64, 3 * PAGE_SIZE_U64 as usize).unwrap();
        for at in [3, RANGE - 2, 2 * RANGE + 90] {
            file.write(at, b"dirty here").unwrap();
            expected.resize(expected.len().max(at as usize + 10), 0);
            expected[at as usize..][..10].copy_from_slice(b"dirty here");
        }
        let before = file.cache.stats();
        assert_eq!(before.dirty, 4);
        file.host.calls();
        for round in 1..=5 {
            file.swap_by(IMPLEMENTATIONS[(first + round) % 2], protocol);
            assert_eq!(file.cache.stats(), before);
        }
        assert_eq!(
            file.read(RANGE - PAGE_SIZE_U64, 3 * PAGE_SIZE_U64 as usize).unwrap().len(),
            3 * PAGE_SIZE_U64 as usize
        );
        assert_eq!(file.host.calls(), [], "what was here is here still");
        assert_eq!(file.flush(), 4);
        assert_eq!(file.host.bytes(), expected);
        assert_eq!(file.read(0, expected.len()).unwrap(), expected);
        file.check_all_free();
    }
}

#[test]
fn an_empty_cache_can_be_swapped() {
    let file = Subject::new("shared", 4, vec![]);
    file.swap("partitioned");
    file.swap("shared");
    assert_eq!(file.cache.size(), 0);
    file.write(0, b"on we go").unwrap();
    assert_eq!(file.read(0, 100).unwrap(), b"on we go");
    file.check_all_free();
}

#[test]
fn physical_memory_can_be_swapped_under_its_files() {
    let file = Subject::new("shared", 4, pattern(2, 8 * PAGE_SIZE_U64 as usize));
    for round in 0..10 {
        assert_eq!(
            file.read(round % 2 * 4 * PAGE_SIZE_U64, 4 * PAGE_SIZE_U64 as usize).unwrap().len(),
            16_384
        );
        let before = file.pm.stats();
        let options = refit_objects::SwapOptions::default();
        let report = refit_objects::swap_named(file.pm.id(), "sweep", round, &options);
        assert!(report.committed(), "{report:?}");
        assert_eq!(file.pm.stats(), before);
    }
    assert!(file.pm.stats().evictions > 0);
    file.check_all_free();
}

/// A cache with many more pages than one stripe has is transferred in every way, and works on
/// afterwards.
#[test]
fn a_large_cache_changes_hands_whole() {
    for (first, protocol) in WAYS {
        let (frames, pages) = (3_000, 2_500);
        let mut expected = pattern(3, pages * PAGE_SIZE_U64 as usize);
        let file = Subject::new(IMPLEMENTATIONS[first], frames, expected.clone());
        file.read(0, expected.len()).unwrap();
        for round in 1..=4 {
            for page in (round..pages).step_by(61 * round) {
                let bytes = pattern(round as u64, 100);
                let at = page * PAGE_SIZE_U64 as usize + 7;
                file.write(at as u64, &bytes).unwrap();
                expected[at..at + 100].copy_from_slice(&bytes);
            }
            let before = file.cache.stats();
            file.swap_by(IMPLEMENTATIONS[(first + round) % 2], protocol);
            assert_eq!(file.cache.stats(), before);
            assert_eq!(file.read(0, expected.len()).unwrap(), expected);
        }
        assert!(file.flush() > 0);
        assert_eq!(file.host.bytes(), expected);
        // After it, truncation and growth find every page in its place.
        let half = expected.len() / 2 + 5;
        file.cache.truncate(half as u64).unwrap();
        expected.truncate(half);
        file.swap_by(IMPLEMENTATIONS[first], protocol);
        assert_eq!(file.read(0, usize::MAX >> 40).unwrap(), expected);
        file.check_all_free();
    }
}

/// The new cache had received everything when the change was rolled back. The old one still has it,
/// and is its only owner.
#[test]
fn a_cache_carries_on_when_a_swap_is_taken_back_after_the_transfer() {
    for (first, protocol) in WAYS {
        let mut expected = pattern(4, 1_200 * PAGE_SIZE_U64 as usize);
        let file = Subject::new(IMPLEMENTATIONS[first], 1_300, expected.clone());
        file.read(0, expected.len()).unwrap();
        let refuse = |phase| match phase {
            refit_objects::change::Phase::Commit => Err("not this time".to_owned()),
            _ => Ok(()),
        };
        let options = SwapOptions {
            deadline: Duration::from_secs(60),
            hook: Some(Arc::new(refuse)),
            protocol: Some(protocol.to_owned()),
            ..SwapOptions::default()
        };
        for round in 0..3_u64 {
            let report =
                refit_objects::swap_named(file.cache.id(), IMPLEMENTATIONS[1 - first], 0, &options);
            assert!(matches!(report.end, refit_objects::change::End::RolledBack(_)), "{report:?}");
            let at = (round * 333 + 1) * PAGE_SIZE_U64;
            file.write(at, b"after all").unwrap();
            expected[at as usize..][..9].copy_from_slice(b"after all");
            assert_eq!(file.cache.stats().dirty, round + 1);
        }
        assert_eq!(file.read(0, expected.len()).unwrap(), expected);
        file.swap_by(IMPLEMENTATIONS[1 - first], protocol);
        assert_eq!(file.flush(), 3);
        assert_eq!(file.host.bytes(), expected);
        file.check_all_free();
    }
}
