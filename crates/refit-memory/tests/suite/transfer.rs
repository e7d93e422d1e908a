//! From one implementation to the other and back: nothing is read again, nothing is lost.

use crate::host::{IMPLEMENTATIONS, PAGE, RANGE, Subject, pattern};

#[test]
fn pages_dirty_marks_size_and_counters_survive_a_swap() {
    for first in 0..2 {
        let bytes = pattern(1, (2 * RANGE) as usize + 100);
        let file = Subject::new(IMPLEMENTATIONS[first], 300, bytes.clone());
        let mut expected = bytes;
        file.read(RANGE - PAGE, 3 * PAGE as usize).unwrap();
        for at in [3, RANGE - 2, 2 * RANGE + 90] {
            file.write(at, b"dirty here").unwrap();
            expected.resize(expected.len().max(at as usize + 10), 0);
            expected[at as usize..][..10].copy_from_slice(b"dirty here");
        }
        let before = file.cache.stats();
        assert_eq!(before.dirty, 4);
        file.host.calls();
        for round in 1..=5 {
            file.swap(IMPLEMENTATIONS[(first + round) % 2]);
            assert_eq!(file.cache.stats(), before);
        }
        assert_eq!(file.read(RANGE - PAGE, 3 * PAGE as usize).unwrap().len(), 3 * PAGE as usize);
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
    let file = Subject::new("shared", 4, pattern(2, 8 * PAGE as usize));
    for round in 0..10 {
        assert_eq!(file.read(round % 2 * 4 * PAGE, 4 * PAGE as usize).unwrap().len(), 16_384);
        let before = file.pm.stats();
        let options = refit_objects::SwapOptions::default();
        let report = refit_objects::swap_named(file.pm.id(), "clock", round, &options);
        assert!(report.committed(), "{report:?}");
        assert_eq!(file.pm.stats(), before);
    }
    assert!(file.pm.stats().evictions > 0);
    file.check_all_free();
}
