//! Tests of lazy transfer between file caches: calls, and the next swap, find the pages that have
//! not moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use refit_objects::SwapOptions;
use refit_objects::change::{End, Phase};

use crate::host::{IMPLEMENTATIONS, PAGE_SIZE_U64, Subject, pattern};

/// Enough pages for several stripes.
const PAGES: usize = 1_500;

fn to_move(file: &Subject) -> u64 {
    let info = refit_objects::object(file.cache.id()).expect("it is there");
    let stats: HashMap<_, _> = info.stats.into_iter().collect();
    stats.get("to_move").copied().unwrap_or(0)
}

/// Creates a file whose pages are all resident, every 50th of them dirty, in a cache that has taken
/// over from the other implementation without moving any page. Also returns the contents of the
/// file.
fn unmoved(first: usize) -> (Subject, Vec<u8>) {
    let mut expected = pattern(first as u64, PAGES * PAGE_SIZE_U64 as usize);
    let file = Subject::new(IMPLEMENTATIONS[first], PAGES, expected.clone());
    file.read(0, expected.len()).unwrap();
    for page in (0..PAGES).step_by(50) {
        write(&file, &mut expected, page);
    }
    let drained = file.swap_lazily(IMPLEMENTATIONS[1 - first], 0);
    assert_eq!((drained.left, drained.by_drain), (PAGES as u64, 0), "{drained:?}");
    assert_eq!(to_move(&file), PAGES as u64);
    file.host.calls();
    (file, expected)
}

fn write(file: &Subject, expected: &mut [u8], page: usize) {
    let (at, bytes) = (page * PAGE_SIZE_U64 as usize + 9, pattern(page as u64 + 1, 50));
    file.write(at as u64, &bytes).unwrap();
    expected[at..at + bytes.len()].copy_from_slice(&bytes);
}

/// Checks that all data is as it was written, in the cache and on the host.
fn check(file: &Subject, expected: &[u8]) {
    assert!(file.read(0, usize::MAX >> 40).unwrap() == expected, "other bytes are read");
    file.flush();
    assert!(file.host.bytes() == expected, "the host has other bytes");
    file.check_all_free();
}

#[test]
fn calls_move_what_they_need_and_read_nothing_again() {
    for first in [0, 1] {
        let (file, mut expected) = unmoved(first);
        let at = 100 * PAGE_SIZE_U64 as usize;
        let found = file.read(at as u64, 30 * PAGE_SIZE_U64 as usize).unwrap();
        assert!(found == expected[at..at + found.len()]);
        assert_eq!(to_move(&file), PAGES as u64 - 30);
        // Eleven pages: one of them has moved, and pages that are overwritten whole move, too.
        let bytes = pattern(77, 10 * PAGE_SIZE_U64 as usize);
        file.write(129 * PAGE_SIZE_U64 + 5, &bytes).unwrap();
        expected[129 * PAGE_SIZE_U64 as usize + 5..][..bytes.len()].copy_from_slice(&bytes);
        assert_eq!(to_move(&file), PAGES as u64 - 40);
        assert_eq!(file.host.calls(), [], "what was here is here still");
        let stats = file.cache.stats();
        assert_eq!((stats.resident, stats.dirty), (PAGES as u64, 30 + 11));
        check(&file, &expected);
    }
}

#[test]
fn pages_that_have_not_moved_are_flushed_and_evicted() {
    for first in [0, 1] {
        let (file, expected) = unmoved(first);
        assert_eq!(file.cache.flush(0, 100 * PAGE_SIZE_U64), Ok(2));
        assert!(file.cache.is_dirty());
        assert_eq!(file.reclaim(PAGES), PAGES, "dirty pages are written back and go, too");
        assert_eq!((to_move(&file), file.frames.free_frames()), (0, PAGES));
        assert!(!file.cache.is_dirty());
        assert!(file.host.bytes() == expected, "the host has other bytes");
        check(&file, &expected);
    }
}

#[test]
fn what_is_cut_off_or_invalidated_does_not_come_back() {
    for first in [0, 1] {
        let (file, mut expected) = unmoved(first);
        let half = expected.len() / 2 + 5;
        file.cache.truncate(half as u64).unwrap();
        expected.truncate(half);
        assert_eq!(to_move(&file), PAGES as u64 / 2 + 1);
        // The file grows again, and contains zeros instead of the old pages.
        file.cache.truncate((PAGES * PAGE_SIZE_U64 as usize) as u64).unwrap();
        expected.resize(PAGES * PAGE_SIZE_U64 as usize, 0);
        file.cache.invalidate(0, 200 * PAGE_SIZE_U64).unwrap();
        file.host.change(|bytes| bytes[..1000].fill(b'x'));
        expected[..1000].fill(b'x');
        check(&file, &expected);
    }
}

#[test]
fn the_next_swap_takes_the_rest_along_in_any_protocol() {
    for first in [0, 1] {
        for protocol in ["stripes", "partitions", "canonical", "lazy"] {
            let (file, mut expected) = unmoved(first);
            write(&file, &mut expected, 3);
            let before = file.cache.stats();
            file.swap_by(IMPLEMENTATIONS[first], protocol);
            assert_eq!((file.cache.stats(), to_move(&file)), (before, 0), "{protocol}");
            check(&file, &expected);
        }
    }
}

/// Each new cache finds some pages in the index of its predecessor, and others further down the
/// chain.
#[test]
fn a_chain_of_caches_that_have_not_got_everything() {
    for first in [0, 1] {
        let (file, mut expected) = unmoved(first);
        for round in 0..12 {
            for page in (round * 13..PAGES).step_by(97) {
                write(&file, &mut expected, page);
            }
            let before = file.cache.stats();
            let to = IMPLEMENTATIONS[(first + round / 2) % 2];
            let drained = file.swap_lazily(to, round as u64 % 4 * 5);
            assert_eq!(drained.by_drain, round as u64 % 4 * 10, "{drained:?}");
            assert_eq!(to_move(&file) + drained.by_drain, PAGES as u64);
            assert_eq!(file.cache.stats(), before);
        }
        assert_eq!(file.host.calls(), [], "what was here is here still");
        check(&file, &expected);
    }
}

/// Fails each step of a swap that finds pages which have not moved.
#[test]
fn a_swap_that_is_taken_back_leaves_pages_where_they_are() {
    const PHASES: [Phase; 5] =
        [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit];
    for first in [0, 1] {
        let (file, mut expected) = unmoved(first);
        for (round, phase) in PHASES.into_iter().enumerate() {
            let refuse = move |entered| match entered {
                entered if entered == phase => Err("not this time".to_owned()),
                _ => Ok(()),
            };
            let options = SwapOptions {
                deadline: Duration::from_secs(60),
                hook: Some(Arc::new(refuse)),
                protocol: Some("lazy".to_owned()),
                ..SwapOptions::default()
            };
            let to = IMPLEMENTATIONS[first];
            let report = refit_objects::swap_named(file.cache.id(), to, 0, &options);
            assert!(matches!(report.end, End::RolledBack(_)), "{report:?}");
            assert_eq!(to_move(&file), (PAGES - round) as u64);
            write(&file, &mut expected, round * 7);
        }
        assert_eq!(to_move(&file), (PAGES - PHASES.len()) as u64);
        assert_eq!(file.host.calls(), [], "what was here is here still");
        check(&file, &expected);
    }
}

/// The shadow transfer of a rehearsal moves nothing.
#[test]
fn a_dry_run_says_how_and_changes_nothing() {
    let (file, expected) = unmoved(0);
    let options = SwapOptions {
        deadline: Duration::from_secs(60),
        dry_run: true,
        protocol: Some("lazy".to_owned()),
        ..SwapOptions::default()
    };
    let report = refit_objects::swap_named(file.cache.id(), "shared", 0, &options);
    assert_eq!(report.end, End::Rehearsed, "{report:?}");
    let moved = &report.transfers[0];
    assert_eq!((&*moved.route[0], moved.items), ("lazy", Some(PAGES as u64)), "{moved:?}");
    assert_eq!(to_move(&file), PAGES as u64);
    check(&file, &expected);
}
