//! Builds whole and damaged traces.

use std::io::Write;

use refit_instruments::block::{
    self, BlockHead, ClockPair, ClockSource, Cost, Dump, End, FileHead, Head, Kind, MAGIC, Place,
    RecordsHead, Thread, VERSION,
};
use refit_instruments::definition::{Definition, Field, FieldKind, Role};
use refit_instruments::read::{Error, Trace};
use refit_instruments::record::{Phase, Record, What};
use serde::Serialize;
use tempfile::NamedTempFile;
use zerocopy::{FromBytes, IntoBytes};

/// A trace under construction.
#[derive(Clone)]
pub(crate) struct Builder {
    pub(crate) bytes: Vec<u8>,
    /// The number of records, written or lost, of each processor.
    sequences: std::collections::HashMap<u32, (u64, RecordsHead)>,
    written: u64,
}

/// Returns the head of all traces of these tests: two ticks per nanosecond.
pub(crate) fn head() -> Head {
    Head {
        host: "box".into(),
        command: vec!["./water".into(), "512".into()],
        processors: 2,
        clock: ClockSource::Cycles,
        part: 0,
    }
}

/// Returns a reading of a clock with two ticks per nanosecond; raw time begins at 1 s.
pub(crate) fn pair(ticks: u64) -> ClockPair {
    let raw = 1_000_000_000 + ticks / 2;
    ClockPair {
        ticks,
        raw,
        monotonic: raw + 5,
        boot: raw + 50,
        real: 1_700_000_000_000_000_000 + raw,
    }
}

pub(crate) fn record(
    time: u64,
    event: u32,
    phase: Phase,
    thread: u32,
    payload: [u64; 2],
) -> Record {
    Record { time, what: What::new(event, phase), thread, payload }
}

pub(crate) fn definition(
    id: u32,
    name: &str,
    role: Role,
    fields: &[(&str, FieldKind)],
) -> Definition {
    let field = |(name, kind): &(&str, FieldKind)| Field { name: (*name).into(), kind: *kind };
    let fields = fields.iter().map(field).collect();
    Definition { id, name: name.into(), manager: "test".into(), role, fields }
}

impl Builder {
    /// Begins a trace with any bytes.
    pub(crate) fn of(bytes: Vec<u8>) -> Builder {
        Builder { bytes, ..Builder::bare() }
    }

    /// Begins a trace with the file head alone.
    pub(crate) fn bare() -> Builder {
        let head = FileHead { magic: MAGIC, version: VERSION, reserved: 0 };
        Builder { bytes: head.as_bytes().to_vec(), sequences: Default::default(), written: 0 }
    }

    /// Begins a trace with a head and clock readings at 0 and at 4 s.
    pub(crate) fn new() -> Builder {
        Builder::bare()
            .json(Kind::Head, &head())
            .json(Kind::Clock, &pair(0))
            .json(Kind::Clock, &pair(8_000_000_000))
    }

    pub(crate) fn json<T: Serialize + ?Sized>(mut self, kind: Kind, content: &T) -> Builder {
        let content = serde_json::to_vec(content).expect("it is plain data");
        self.bytes.extend(block::encode(kind as u16, &content));
        self
    }

    pub(crate) fn definitions(self, definitions: &[Definition]) -> Builder {
        self.json(Kind::Definitions, &definitions)
    }

    pub(crate) fn threads(self, threads: &[(u32, u32, &str)]) -> Builder {
        let thread = |(id, process, name): &(u32, u32, &str)| Thread {
            id: *id,
            process: *process,
            name: (*name).into(),
        };
        self.json(Kind::Threads, &threads.iter().map(thread).collect::<Vec<_>>())
    }

    pub(crate) fn dump(self, begin: u64, end: u64) -> Builder {
        self.json(Kind::Dump, &Dump { number: 1, begin, end })
    }

    /// Adds the cost of an event, in ticks.
    pub(crate) fn cost(self, place: Place, ticks: f64, spread: f64, cold: f64) -> Builder {
        self.json(Kind::Costs, &[Cost { instrument: "event".into(), place, ticks, spread, cold }])
    }

    /// Loses records of a processor before its next block.
    pub(crate) fn lose(mut self, processor: u32, how: impl FnOnce(&mut RecordsHead)) -> Builder {
        let head = &mut self.sequences.entry(processor).or_insert((0, no_losses(processor))).1;
        how(head);
        self
    }

    /// Adds a block of records of a processor.
    pub(crate) fn records(mut self, processor: u32, records: &[Record]) -> Builder {
        let (written, losses) =
            self.sequences.entry(processor).or_insert((0, no_losses(processor)));
        let lost = losses.lost_full + losses.lost_torn + losses.lost_old + losses.lost_unwritten;
        let head =
            RecordsHead { sequence: *written + lost, count: records.len() as u32, ..*losses };
        *written += records.len() as u64;
        self.written += records.len() as u64;
        let content = [head.as_bytes(), records.as_bytes()].concat();
        self.bytes.extend(block::encode(Kind::Records as u16, &content));
        self
    }

    /// Adds the block of a regular end.
    pub(crate) fn end(self) -> Builder {
        let sum = |field: fn(&RecordsHead) -> u64| {
            self.sequences.values().map(|(_, head)| field(head)).sum()
        };
        let end = End {
            written: self.written,
            lost_full: sum(|head| head.lost_full),
            lost_torn: sum(|head| head.lost_torn),
            lost_old: sum(|head| head.lost_old),
            lost_unwritten: sum(|head| head.lost_unwritten),
        };
        self.json(Kind::End, &end)
    }

    /// Returns the trace as a file, which is removed on drop.
    pub(crate) fn file(&self) -> NamedTempFile {
        let mut file = NamedTempFile::new().expect("a temporary file");
        file.write_all(&self.bytes).expect("room for it");
        file
    }

    /// Opens the trace.
    pub(crate) fn open(&self) -> Result<Trace, Error> {
        Trace::open(&[self.file().path()])
    }

    pub(crate) fn trace(&self) -> Trace {
        self.open().expect("it is a trace")
    }
}

fn no_losses(processor: u32) -> RecordsHead {
    RecordsHead::new(u16::try_from(processor).expect("few are enough"), 0)
}

/// Returns the blocks of a trace: kind and content.
pub(crate) fn blocks(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut rest = &bytes[size_of::<FileHead>()..];
    let mut blocks = Vec::new();
    while let Ok((head, after)) = BlockHead::read_from_prefix(rest) {
        let length = head.length as usize;
        blocks.push((head.kind, after[..length].to_vec()));
        rest = &after[length + block::padding(length)..];
    }
    blocks
}

/// Returns a trace of these blocks, each with the right checksum.
pub(crate) fn sealed(blocks: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let blocks = blocks.iter().flat_map(|(kind, content)| block::encode(*kind, content));
    Builder::bare().bytes.into_iter().chain(blocks).collect()
}
