//! The file format of traces: a head line, then blocks that each tell their kind, length and checksum.
//!
//! ```text
//! file   = MAGIC, version (u32), 0 (u32), block …
//! block  = MARK (u32), kind (u16), 0 (u16), length of the content (u32), CRC-32 of kind and content (u32), content,
//!          zeros up to the next multiple of 8
//! ```
//!
//! All numbers are little-endian. Blocks of unknown kind are skipped, so that later versions can add some; `version` is
//! raised only when older readers would misunderstand. What its writer was killed at is a last block that is cut off
//! or does not have its checksum: a reader takes what is before it.
//!
//! Contents are JSON (`Head`, `Definitions`, …: unknown members are skipped), but for [`Kind::Records`], which is a
//! [`RecordsHead`] and then records.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"rf-trace";
/// The version that this code writes, and the highest that it reads.
pub const VERSION: u32 = 1;
/// First word of each block.
pub const MARK: u32 = u32::from_le_bytes(*b"blck");
/// No block is longer; a length beyond this is damage.
pub const LONGEST: usize = 64 << 20;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// [`Head`]: once, first.
    Head = 1,
    /// `Vec<`[`Definition`](crate::definition::Definition)`>`: more of them, before the records that need them or after.
    Definitions = 2,
    /// [`ClockPair`]: one at begin, one at end, more in between.
    Clock = 3,
    /// [`RecordsHead`] and records: what one processor's buffer held, in the order of reservation.
    Records = 4,
    /// `Vec<`[`Thread`]`>`: names of threads, as they become known.
    Threads = 5,
    /// [`Dump`]: all processors stood still and wrote.
    Dump = 6,
    /// `Vec<`[`Cost`]`>`: what measuring costs.
    Costs = 7,
    /// `Vec<`[`Total`]`>`: what counters and timers held when this was written.
    Totals = 8,
    /// [`End`]: once, last; where it is missing the writer did not end in peace.
    End = 9,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_number(number: u16) -> Option<Kind> {
        Some(match number {
            1 => Kind::Head,
            2 => Kind::Definitions,
            3 => Kind::Clock,
            4 => Kind::Records,
            5 => Kind::Threads,
            6 => Kind::Dump,
            7 => Kind::Costs,
            8 => Kind::Totals,
            9 => Kind::End,
            _ => return None,
        })
    }
}

/// How a trace came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The host's name.
    pub host: String,
    /// What was recorded: the command and its arguments, or what was attached to.
    pub command: Vec<String>,
    /// How many processors the host can have.
    pub processors: u32,
    /// Where the time of records comes from.
    pub clock: ClockSource,
    /// Number of the file in a row of them (rotation); 0 for the first.
    #[serde(default)]
    pub part: u32,
}

/// What counts the ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockSource {
    /// The processor's cycle counter, which runs evenly; its speed follows from the [`ClockPair`]s.
    Cycles,
    /// `CLOCK_MONOTONIC_RAW` in nanoseconds.
    MonotonicRaw,
}

/// Clocks read at the same time; all but `ticks` in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// The clock of the records.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic: u64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub raw: u64,
    /// `CLOCK_BOOTTIME`.
    pub boot: u64,
    /// `CLOCK_REALTIME`.
    pub real: u64,
}

/// Before the records of a [`Kind::Records`] block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordsHead {
    /// How many records of this buffer came before the first of this block, written or lost.
    pub sequence: u64,
    /// Lost before this block, since the buffer began: there was no place.
    pub lost_full: u64,
    /// Likewise: begun and never ended.
    pub lost_torn: u64,
    /// Likewise: overwritten on purpose (flight recorder).
    pub lost_old: u64,
    /// Likewise: the file could not take them.
    pub lost_unwritten: u64,
    /// The processor.
    pub processor: u16,
    /// Which buffer of this processor: 0 is that of instruments, others are of further sources.
    pub stream: u16,
    /// How many records follow.
    pub count: u32,
}

impl RecordsHead {
    /// The head of an empty first block of a buffer that has lost nothing.
    pub fn new(processor: u16, stream: u16) -> RecordsHead {
        RecordsHead {
            sequence: 0,
            lost_full: 0,
            lost_torn: 0,
            lost_old: 0,
            lost_unwritten: 0,
            processor,
            stream,
            count: 0,
        }
    }
}

/// A thread and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The thread.
    pub id: u32,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
}

/// All processors stood still from `begin` to `end` and wrote their buffers (Kohr 1994, §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// Number of the dump.
    pub number: u64,
    /// First tick at which somebody stood still.
    pub begin: u64,
    /// Last tick.
    pub end: u64,
}

/// What one kind of instrumentation point costs, in ticks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// `event`, `timer`, `counter`, …
    pub instrument: String,
    /// Where measured: `in-vitro` (a loop that does nothing else) or `in-vivo` (between other work).
    pub place: Place,
    /// Median of the rounds.
    pub ticks: f64,
    /// Half the distance between the quartiles of the rounds.
    pub spread: f64,
    /// The dearest: first use after the caches were emptied.
    pub cold: f64,
}

/// Where a cost was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In a loop that does nothing else.
    InVitro,
    /// Between the work of the program.
    InVivo,
}

/// What a counter or timer held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Its name.
    pub name: String,
    /// The instrument manager that it belongs to.
    pub manager: String,
    /// `counter` or `timer`.
    pub instrument: String,
    /// How often.
    pub count: u64,
    /// Sum of the values (counter) or of the ticks (timer).
    pub sum: u64,
}

/// The end of a trace, over all of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Records written.
    pub written: u64,
    /// Records lost, by cause as in [`RecordsHead`].
    pub lost_full: u64,
    /// Begun and never ended.
    pub lost_torn: u64,
    /// Overwritten on purpose.
    pub lost_old: u64,
    /// The file could not take them.
    pub lost_unwritten: u64,
}

/// The first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileHead {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// 0.
    pub reserved: u32,
}

/// The first bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockHead {
    /// [`MARK`].
    pub mark: u32,
    /// A number of [`Kind`], or of a later version.
    pub kind: u16,
    /// 0.
    pub reserved: u16,
    /// Length of the content in bytes, without the zeros after it.
    pub length: u32,
    /// [`checksum`].
    pub checksum: u32,
}

/// The checksum of a block: over its kind and its content, which may come in parts.
pub fn checksum<'a>(kind: u16, parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind.to_le_bytes());
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// How many zeros follow a content of this length.
pub const fn padding(length: usize) -> usize {
    length.next_multiple_of(8) - length
}

/// A whole block around a content that is at most [`LONGEST`] bytes long.
pub fn encode(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    append(&mut block, kind, &[content]);
    block
}

/// Appends a whole block around a content in parts, which are at most [`LONGEST`] bytes long together.
pub fn append(to: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum();
    let head = BlockHead {
        mark: MARK,
        kind,
        reserved: 0,
        length: u32::try_from(length).unwrap_or(u32::MAX),
        checksum: checksum(kind, parts.iter().copied()),
    };
    to.extend_from_slice(head.as_bytes());
    parts.iter().for_each(|part| to.extend_from_slice(part));
    to.resize(to.len() + padding(length), 0);
}
