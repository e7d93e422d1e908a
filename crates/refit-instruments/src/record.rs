//! One record: 32 bytes that say what happened, when, and in which thread. The processor is that of the buffer it is in.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What an instrument writes. Little-endian, in memory as in files.
///
/// ```text
/// 0        8           12        16                 32
/// │ time   │ what      │ thread  │ payload          │
///   ticks    id and      kernel's  two words, cut
///   not 0    phase       id        into fields by the definition
/// ```
///
/// The writer stores `time` last: a record whose time is 0 was begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// When, in ticks of the trace's clock; 0: not there (yet).
    pub time: u64,
    /// Which event, in which phase.
    pub what: What,
    /// The thread, as the kernel numbers it in refit's pid namespace.
    pub thread: u32,
    /// Two words, or up to four half words (see [`Definition::fields`](crate::definition::Definition)).
    pub payload: [u64; 2],
}

/// Size of a record in bytes.
pub const SIZE: usize = size_of::<Record>();

/// An event's id and the phase of what happened, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct What(u32);

/// Bits of [`What`] that hold the phase.
const PHASE_BITS: u32 = 3;

impl What {
    /// Ids are below this: what is left of 32 bits.
    pub const IDS: u32 = 1 << (u32::BITS - PHASE_BITS);

    /// The word for an event in a phase. `id` is below [`What::IDS`]; higher bits are dropped.
    #[inline]
    pub const fn new(id: u32, phase: Phase) -> What {
        What(id << PHASE_BITS | phase as u32)
    }

    /// What this word says.
    #[cfg_attr(loom, expect(dead_code, reason = "the drainer is not part of the models"))]
    pub(crate) const fn of_word(word: u32) -> What {
        What(word)
    }

    /// The word itself.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The event: [`Definition::id`](crate::definition::Definition).
    #[inline]
    pub const fn id(self) -> u32 {
        self.0 >> PHASE_BITS
    }

    /// The phase; `None`: a number that this version does not know.
    pub const fn phase(self) -> Option<Phase> {
        Some(match self.0 & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Point,
            1 => Phase::Begin,
            2 => Phase::End,
            3 => Phase::Sample,
            4 => Phase::Out,
            5 => Phase::In,
            _ => return None,
        })
    }
}

/// What a record says of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Phase {
    /// It happened.
    Point = 0,
    /// It began in this thread; the next [`Phase::End`] of the same event and thread at the same depth ends it.
    Begin = 1,
    /// It ended.
    End = 2,
    /// It has this value now: the first field.
    Sample = 3,
    /// Something left here that arrives where [`Phase::In`] has the same first payload word.
    Out = 4,
    /// It arrived.
    In = 5,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_the_event_and_the_phase() {
        let phases = [Phase::Point, Phase::Begin, Phase::End, Phase::Sample, Phase::Out, Phase::In];
        for phase in phases {
            for id in [0, 1, 4711, What::IDS - 1] {
                let what = What::new(id, phase);
                assert_eq!((what.id(), what.phase()), (id, Some(phase)));
            }
        }
        assert_eq!(What(7).phase(), None);
    }

    #[test]
    fn a_record_has_no_gaps() {
        assert_eq!(SIZE, 32);
    }
}
