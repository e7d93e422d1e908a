//! Reading a file of any bytes ends, in an error or in a valid trace, without a panic.
//!
//! Random bytes would only show that checksums work, so blocks are changed and then sealed again
//! with the right checksum.

use proptest::prelude::*;
use proptest::sample::Index;
use refit_instruments::block::{ClockSource, Head, Kind, Stack};
use refit_instruments::record::Phase::{Begin, End, Point};

use super::builder::{Builder, blocks, head, record, sealed};
use super::exhaust::exhaust;
use super::perfetto::{swapped, waits};

/// A change of a block.
#[derive(Clone, Debug)]
enum Change {
    /// Replaces a byte of the content.
    Byte(Index, u8),
    /// Replaces eight bytes of the content by a boundary value.
    Word(Index, u64),
    /// Truncates the block.
    Cut(Index),
    /// Changes the kind of the block.
    Kind(u16),
    /// Duplicates the block.
    Twice,
    /// Removes the block.
    Gone,
}

fn change() -> impl Strategy<Value = Change> {
    let edge = prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(1 << 63), Just(u64::MAX >> 1)];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        4 => (any::<Index>(), edge).prop_map(|(at, word)| Change::Word(at, word)),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => (0..12_u16).prop_map(Change::Kind),
        1 => Just(Change::Twice),
        1 => Just(Change::Gone),
    ]
}

fn apply(blocks: &mut Vec<(u16, Vec<u8>)>, at: Index, change: &Change) {
    if blocks.is_empty() {
        return;
    }
    let number = at.index(blocks.len());
    let (kind, content) = &mut blocks[number];
    let length = content.len();
    match change {
        Change::Byte(at, byte) if length > 0 => content[at.index(length)] = *byte,
        Change::Word(at, word) if length >= 8 => {
            let begin = at.index(length / 8) * 8;
            content[begin..begin + 8].copy_from_slice(&word.to_le_bytes());
        }
        Change::Cut(at) => content.truncate(at.index(length + 1)),
        Change::Kind(other) => *kind = *other,
        Change::Twice => {
            let again = blocks[number].clone();
            blocks.push(again);
        }
        Change::Gone => drop(blocks.remove(number)),
        Change::Byte(..) | Change::Word(..) => {}
    }
}

/// Found by the properties below.
#[test]
fn more_is_lost_than_can_be_counted() {
    let at = |time| record(time, 1, Point, 1, [0; 2]);
    let trace = Builder::new()
        .lose(0, |head| head.lost_full = u64::MAX / 2)
        .records(0, &[at(1)])
        .lose(0, |head| head.lost_old = u64::MAX / 2)
        .records(0, &[at(2)]);
    let mut blocks = blocks(&trace.bytes);
    // The second block lost all records there are, in addition to what the first lost.
    if let Some((_, content)) = blocks.last_mut() {
        content[24..32].fill(0xff);
    }
    exhaust(Builder::of(sealed(&blocks)).file().path());
}

/// Found by the properties below.
#[test]
fn more_time_passes_than_can_be_added_up() {
    let long = |event, begin| {
        let end = record(u64::MAX, event, End, event, [0; 2]);
        [record(begin, event, Begin, event, [0; 2]), end]
    };
    let clock = Head { clock: ClockSource::MonotonicRaw, ..head() };
    let trace = Builder::bare().json(Kind::Head, &clock);
    let trace = trace.records(0, &long(1, 1)).records(1, &long(2, 2)).records(2, &long(3, 3));
    exhaust(trace.file().path());
}

/// Each of its many waits would be written with each of its many frames.
#[test]
fn a_stack_is_deeper_than_any() {
    let stack = Stack { id: 1, frames: vec![1; 100_000] };
    let records = (0..100_000).map(|round| {
        let id = 2 + (round + 1) % 2;
        record(20_000 + round, id as u32, Point, 7, [0, 1])
    });
    let records: Vec<_> = records.collect();
    let trace = waits().json(Kind::Stacks, &[stack]).records(0, &records);
    let opened = trace.trace();
    assert_eq!((opened.senseless(), opened.stack(1).count()), (1, 2), "the stack before stays");
    exhaust(trace.file().path());
}

proptest! {
    // A failure becomes a test with a name instead of an entry in a file of seeds.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_that_are_not_what_they_say(
        with_stacks: bool,
        changes in prop::collection::vec((any::<Index>(), change()), 1..6),
    ) {
        let trace = if with_stacks { waits() } else { swapped() };
        let mut blocks = blocks(&trace.bytes);
        for (at, change) in &changes {
            apply(&mut blocks, *at, change);
        }
        exhaust(Builder::of(sealed(&blocks)).file().path());
    }

    #[test]
    fn bytes_that_are_not_what_was_written(
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        end in any::<Index>(),
    ) {
        let mut bytes = swapped().bytes;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        exhaust(Builder::of(bytes).file().path());
    }

    #[test]
    fn bytes_of_anybody(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exhaust(Builder::of(bytes.clone()).file().path());
        exhaust(Builder::of([Builder::bare().bytes, bytes].concat()).file().path());
    }
}
