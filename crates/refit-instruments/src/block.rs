//! The file format of traces: a file head, then blocks, each with its kind, length and checksum.
//!
//! ```text
//! file   = MAGIC, version (u32), 0 (u32), block …
//! block  = MARK (u32), kind (u16), 0 (u16), length of the content (u32),
//!          CRC-32 of kind and content (u32), content,
//!          zeros up to the next multiple of 8
//! ```
//!
//! All numbers are little-endian. Readers skip blocks of unknown kind, so that later versions can
//! add kinds; `version` is increased only if older readers would misinterpret the file. If the
//! writer is killed, the last block is truncated or has a wrong checksum; a reader uses everything
//! before it.
//!
//! The contents are JSON (`Head`, `Definitions` and so on; unknown members are skipped), except for
//! [`Kind::Records`], which contains a [`RecordsHead`] followed by records.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first bytes of a trace.
pub const MAGIC: [u8; 8] = *b"rf-trace";
/// The version that this code writes, and the highest one that it reads.
pub const VERSION: u32 = 1;
/// The first word of each block.
pub const MARK: u32 = u32::from_le_bytes(*b"blck");
/// The maximum length of a block's content, in bytes. A greater length means that the file is
/// damaged.
pub const LONGEST: usize = 64 << 20;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// A [`Head`], once, as the first block.
    Head = 1,
    /// `Vec<`[`Definition`](crate::definition::Definition)`>`: further definitions, before or after
    /// the records that need them.
    Definitions = 2,
    /// A [`ClockPair`]: one at the beginning, one at the end, and more in between.
    Clock = 3,
    /// A [`RecordsHead`] and records: the contents of one processor's buffer in the order of
    /// reservation.
    Records = 4,
    /// `Vec<`[`Thread`]`>`: names of threads, as they become known.
    Threads = 5,
    /// A [`Dump`], during which all processors waited while their buffers were written.
    Dump = 6,
    /// `Vec<`[`Cost`]`>`: the costs of measuring.
    Costs = 7,
    /// `Vec<`[`Total`]`>`: the values of counters and timers at the time of writing.
    Totals = 8,
    /// An [`End`], once, as the last block. If it is missing, the writer did not end regularly.
    End = 9,
    /// `Vec<`[`Frame`]`>`: frames of stacks, as they become known. Their names follow at the end of
    /// the recording, in a frame of the same number.
    Frames = 10,
    /// `Vec<`[`Stack`]`>`: stacks, as they become known.
    Stacks = 11,
}

impl Kind {
    /// Returns the kind with this number.
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
            10 => Kind::Frames,
            11 => Kind::Stacks,
            _ => return None,
        })
    }
}

/// The origin of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The host name.
    pub host: String,
    /// The recorded command with its arguments, or a description of what was attached to.
    pub command: Vec<String>,
    /// The maximum number of processors of the host.
    pub processors: u32,
    /// The clock of the records.
    pub clock: ClockSource,
    /// The number of the file within a rotation; 0 for the first.
    #[serde(default)]
    pub part: u32,
}

/// The clock that counts the ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockSource {
    /// The processor's cycle counter, which runs at a constant rate; the rate follows from the
    /// [`ClockPair`]s.
    Cycles,
    /// `CLOCK_MONOTONIC_RAW`, in nanoseconds.
    MonotonicRaw,
}

/// Clocks that were read at the same time. All but `ticks` are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// The clock of the records, in ticks.
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

/// The head of a [`Kind::Records`] block, before its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordsHead {
    /// The number of records of this buffer before the first one of this block, written or lost.
    pub sequence: u64,
    /// The number of records lost before this block, since the beginning of the buffer, because the
    /// buffer was full.
    pub lost_full: u64,
    /// The number of records lost before this block that were begun and never completed.
    pub lost_torn: u64,
    /// The number of records lost before this block that were overwritten deliberately (flight
    /// recorder).
    pub lost_old: u64,
    /// The number of records lost before this block that could not be written to the file.
    pub lost_unwritten: u64,
    /// The processor.
    pub processor: u16,
    /// The number of the buffer of this processor: 0 is that of instruments, others belong to
    /// further sources.
    pub stream: u16,
    /// The number of records that follow.
    pub count: u32,
}

impl RecordsHead {
    /// Returns the head of an empty first block of a buffer that has lost nothing.
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

/// A thread and its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The thread.
    pub id: u32,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
}

/// A place in code at which threads stood, or from which they had called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its number, from 1 on.
    pub id: u32,
    /// Name of the file that holds the code; `None` if no file does, or it is not known.
    #[serde(default)]
    pub module: Option<String>,
    /// Address of the instruction, or of the last byte of the call: in the file, if one is known.
    pub address: u64,
    /// The functions that are there: those that the compiler has inlined, innermost first, then the
    /// one that they are inlined into. Empty if none is known.
    #[serde(default)]
    pub functions: Vec<Function>,
}

impl Frame {
    /// Returns what to call it, a line for each function, the innermost first.
    pub fn labels(&self) -> Vec<String> {
        let module = self.module.as_ref();
        if self.functions.is_empty() {
            let address = self.address;
            return vec![
                module.map_or(format!("{address:#x}"), |name| format!("{name}+{address:#x}")),
            ];
        }
        let named = |function: &Function| match module {
            Some(module) => format!("{} ({module})", function.name),
            None => function.name.clone(),
        };
        self.functions.iter().map(named).collect()
    }
}

/// A function at a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// The name.
    pub name: String,
    /// Source file and line.
    #[serde(default)]
    pub source: Option<String>,
}

/// The maximum number of frames of a stack, and of functions at a frame. A greater number means
/// that the file is damaged.
pub const DEEPEST: usize = 1024;

/// A stack of frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Its number, from 1 on.
    pub id: u32,
    /// The numbers of its frames, the innermost first.
    pub frames: Vec<u32>,
}

/// A dump: from `begin` to `end` all processors waited while their buffers were written (Kohr 1994,
/// §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// The number of the dump.
    pub number: u64,
    /// The first tick at which a thread waited.
    pub begin: u64,
    /// The last tick of the dump.
    pub end: u64,
}

/// The cost of one kind of instrumentation point, in ticks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The kind of the instrument: `event`, `timer`, `counter` and so on.
    pub instrument: String,
    /// Where the cost was measured: `in-vitro` (in a loop without other work) or `in-vivo` (between
    /// other work).
    pub place: Place,
    /// The median of the rounds.
    pub ticks: f64,
    /// Half the distance between the quartiles of the rounds.
    pub spread: f64,
    /// The highest cost, which is that of the first use after the caches were emptied.
    pub cold: f64,
}

/// Where a cost was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In a loop without other work.
    InVitro,
    /// Between other work.
    InVivo,
}

/// The value of a counter or timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Its name.
    pub name: String,
    /// The instrument manager that it belongs to.
    pub manager: String,
    /// The kind: `counter` or `timer`.
    pub instrument: String,
    /// The number of additions or runs.
    pub count: u64,
    /// The sum of the values (counter) or of the ticks (timer).
    pub sum: u64,
}

/// The end of a trace, with counts over all of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The number of records written.
    pub written: u64,
    /// The number of records lost because a buffer was full; see [`RecordsHead`].
    pub lost_full: u64,
    /// The number of records that were begun and never completed.
    pub lost_torn: u64,
    /// The number of records that were overwritten deliberately.
    pub lost_old: u64,
    /// The number of records that could not be written to the file.
    pub lost_unwritten: u64,
}

/// The first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileHead {
    /// The constant [`MAGIC`].
    pub magic: [u8; 8],
    /// The constant [`VERSION`].
    pub version: u32,
    /// Reserved; 0.
    pub reserved: u32,
}

/// The first bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockHead {
    /// The constant [`MARK`].
    pub mark: u32,
    /// The number of a [`Kind`], possibly of a later version.
    pub kind: u16,
    /// Reserved; 0.
    pub reserved: u16,
    /// The length of the content in bytes, without the padding.
    pub length: u32,
    /// The [`checksum`] of the block.
    pub checksum: u32,
}

/// Returns the checksum of a block, which covers its kind and its content, given in parts.
pub fn checksum<'a>(kind: u16, parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind.to_le_bytes());
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Returns the number of zero bytes that follow a content of this length.
pub const fn padding(length: usize) -> usize {
    length.next_multiple_of(8) - length
}

/// Returns a complete block with a content of at most [`LONGEST`] bytes.
pub fn encode(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    append(&mut block, kind, &[content]);
    block
}

/// Appends a complete block whose content is given in parts, together at most [`LONGEST`] bytes.
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
