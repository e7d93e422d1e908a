//! A record: 32 bytes that contain the event, the time and the thread. The processor is that of the
//! buffer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A record as instruments write it. Little-endian, in memory as in files.
///
/// ```text
/// 0        8           12        16                 32
/// │ time   │ what      │ thread  │ payload          │
///   ticks    id and      kernel's  two words, cut
///   not 0    phase       id        into fields by the definition
/// ```
///
/// The writer stores `time` last: a record whose time is 0 was begun and not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// The time, in ticks of the trace's clock; 0 if the record is not complete (yet).
    pub time: u64,
    /// The event and its phase.
    pub what: What,
    /// The thread, by its ID in refit's PID namespace.
    pub thread: u32,
    /// Two words, or up to four half words (see
    /// [`Definition::fields`](crate::definition::Definition)).
    pub payload: [u64; 2],
}

/// The size of a record in bytes.
pub const SIZE: usize = size_of::<Record>();

/// The ID of an event and its phase, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct What(u32);

/// The number of bits of [`What`] that contain the phase.
const PHASE_BITS: u32 = 3;

impl What {
    /// IDs are below this value, which is limited by the remaining bits.
    pub const IDS: u32 = 1 << (u32::BITS - PHASE_BITS);

    /// Returns the word for an event in a phase. `id` must be below [`What::IDS`]; higher bits are
    /// dropped.
    #[inline]
    pub const fn new(id: u32, phase: Phase) -> What {
        What(id << PHASE_BITS | phase as u32)
    }

    /// Decodes a word.
    #[cfg_attr(loom, expect(dead_code, reason = "the drainer is not part of the models"))]
    pub(crate) const fn of_word(word: u32) -> What {
        What(word)
    }

    /// Returns the word itself.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Returns the event: [`Definition::id`](crate::definition::Definition).
    #[inline]
    pub const fn id(self) -> u32 {
        self.0 >> PHASE_BITS
    }

    /// Returns the phase; `None` for a number that this version does not know.
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

/// The phase of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Phase {
    /// The event happened.
    Point = 0,
    /// The event began in this thread. The next [`Phase::End`] of the same event and thread at the
    /// same depth ends it.
    Begin = 1,
    /// The event ended.
    End = 2,
    /// The event has a value, which is the first field.
    Sample = 3,
    /// Something departed here that arrives where [`Phase::In`] has the same first payload word.
    Out = 4,
    /// Something arrived; see [`Phase::Out`].
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
