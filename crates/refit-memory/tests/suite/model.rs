//! Random calls, checked against a plain vector of bytes, with few frames, a host that fails now
//! and then, and swaps between the implementations at any time.

use proptest::prelude::*;
use refit_memory::CacheError;

use crate::host::{EIO, IMPLEMENTATIONS, PAGE_SIZE_U64, RANGE, Subject, pattern};

#[derive(Clone, Debug)]
enum Op {
    Read(u64, usize),
    Write(u64, usize, u64),
    Truncate(u64),
    Flush(u64, u64),
    Invalidate(u64, u64),
    Reclaim(usize),
    Swap(usize),
    /// Moves this many batches before calls continue with the rest.
    SwapLazily(usize, u64),
    Fail(bool, bool),
    Mend,
}

/// Returns offsets at which something changes, the borders of pages and of partitions, and others.
fn place() -> impl Strategy<Value = u64> {
    let page = prop_oneof![0..4u64, 62..67u64, 126..131u64];
    let within = prop_oneof![Just(0), Just(1), Just(4095), 0..PAGE_SIZE_U64];
    (page, within).prop_map(|(page, within)| page * PAGE_SIZE_U64 + within)
}

fn length() -> impl Strategy<Value = usize> {
    let long = (1..4usize).prop_map(|pages| pages * PAGE_SIZE_U64 as usize);
    prop_oneof![4 => 0..200usize, 3 => 0..3 * PAGE_SIZE_U64 as usize, 2 => long]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (place(), length()).prop_map(|(at, len)| Op::Read(at, len)),
        6 => (place(), length(), any::<u64>()).prop_map(|(at, len, seed)| Op::Write(at, len, seed)),
        2 => place().prop_map(Op::Truncate),
        2 => (place(), place()).prop_map(|(start, end)| Op::Flush(start, end)),
        1 => (place(), place()).prop_map(|(start, end)| Op::Invalidate(start, end)),
        2 => (0..9usize).prop_map(Op::Reclaim),
        2 => (0..IMPLEMENTATIONS.len()).prop_map(Op::Swap),
        3 => (0..IMPLEMENTATIONS.len(), 0..4u64).prop_map(|(to, batches)| Op::SwapLazily(to, batches)),
        1 => any::<(bool, bool)>().prop_map(|(reads, writes)| Op::Fail(reads, writes)),
        2 => Just(Op::Mend),
    ]
}

struct Model {
    bytes: Vec<u8>,
    failing: bool,
}

impl Model {
    /// Returns the result of a call. The host may fail, and frames may then run out permanently;
    /// every other error fails the test.
    fn passed<R>(&self, result: Result<R, CacheError>) -> Option<R> {
        match result {
            Ok(value) => Some(value),
            Err(CacheError::Host(EIO) | CacheError::NoFrame) if self.failing => None,
            Err(error) => panic!("{error:?} from a host that does not fail"),
        }
    }

    fn run(&mut self, file: &Subject, op: &Op) {
        match *op {
            Op::Read(at, len) => {
                let Some(got) = self.passed(file.read(at, len)) else { return };
                let from = self.bytes.len().min(at as usize);
                let to = self.bytes.len().min(at as usize + len);
                assert!(got == self.bytes[from..to], "{op:?} read other bytes");
            }
            Op::Write(at, len, seed) => {
                let data = pattern(seed, len);
                if self.passed(file.write(at, &data)).is_some() && len > 0 {
                    let end = at as usize + len;
                    self.bytes.resize(self.bytes.len().max(end), 0);
                    self.bytes[at as usize..end].copy_from_slice(&data);
                }
            }
            Op::Truncate(size) => {
                if self.passed(file.cache.truncate(size)).is_some() {
                    self.bytes.resize(size as usize, 0);
                }
            }
            Op::Flush(start, end) => {
                self.passed(file.cache.flush(start, end));
            }
            Op::Invalidate(start, end) => {
                self.passed(file.cache.invalidate(start, end));
            }
            Op::Reclaim(wanted) => assert!(file.reclaim(wanted) <= wanted.max(1)),
            Op::Swap(to) => {
                let before = file.cache.stats();
                file.swap(IMPLEMENTATIONS[to]);
                assert_eq!(file.cache.stats(), before);
            }
            Op::SwapLazily(to, batches) => {
                let before = file.cache.stats();
                let drained = file.swap_lazily(IMPLEMENTATIONS[to], batches);
                assert_eq!(drained.left + drained.by_drain, before.resident, "{drained:?}");
                assert_eq!(file.cache.stats(), before);
            }
            Op::Fail(reads, writes) => {
                file.host.fail(reads, writes);
                self.failing = reads || writes;
            }
            Op::Mend => {
                file.host.fail(false, false);
                self.failing = false;
            }
        }
        assert_eq!(file.cache.size(), self.bytes.len() as u64);
        let stats = file.cache.stats();
        assert_eq!(stats.resident as usize, file.frames.frames() - file.frames.free_frames());
        assert_eq!(stats.dirty as usize, file.frames.dirty_frames());
        assert_eq!(file.cache.is_dirty(), stats.dirty > 0);
    }
}

fn check(implementation: &str, frames: usize, start: usize, ops: &[Op], swaps: bool) {
    let bytes = pattern(start as u64, start);
    let file = Subject::new(implementation, frames, bytes.clone());
    let mut model = Model { bytes, failing: false };
    for op in ops.iter().filter(|op| swaps || !matches!(op, Op::Swap(_) | Op::SwapLazily(..))) {
        model.run(&file, op);
    }
    model.run(&file, &Op::Mend);
    // Read in pieces, because the pages that one call needs at once must fit into the frames.
    for at in 0..60 {
        model.run(&file, &Op::Read(at * 3 * PAGE_SIZE_U64, 3 * PAGE_SIZE_U64 as usize));
    }
    file.flush();
    assert!(file.host.bytes() == model.bytes, "the host has other bytes");
    assert!(!file.cache.is_dirty());
    file.check_all_free();
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) }
}

fn short_file() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 0..200usize, 0..3 * PAGE_SIZE_U64 as usize, Just(RANGE as usize + 5)]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn shared_is_a_file(
        ops in prop::collection::vec(op(), 1..60), frames in 6..12usize, start in short_file(),
    ) {
        check("shared", frames, start, &ops, false);
    }

    #[test]
    fn partitioned_is_a_file(
        ops in prop::collection::vec(op(), 1..60), frames in 6..12usize, start in short_file(),
    ) {
        check("partitioned", frames, start, &ops, false);
    }

    #[test]
    fn sequential_is_a_file(
        ops in prop::collection::vec(op(), 1..60), frames in 6..12usize, start in short_file(),
    ) {
        check("sequential", frames, start, &ops, false);
    }

    #[test]
    fn swaps_do_not_show(
        ops in prop::collection::vec(op(), 1..60), frames in 6..12usize, start in short_file(),
        first in 0..IMPLEMENTATIONS.len(),
    ) {
        check(IMPLEMENTATIONS[first], frames, start, &ops, true);
    }
}
