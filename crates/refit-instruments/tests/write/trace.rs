//! A small reader of traces for the tests of the write side.

use std::path::Path;

use refit_instruments::block::{
    self, BlockHead, End, FileHead, Kind, MAGIC, RecordsHead, Total, VERSION,
};
use refit_instruments::definition::Definition;
use refit_instruments::record::{Record, SIZE};
use zerocopy::FromBytes;

/// The number of ticks by which a record may precede the one that was reserved before it; see
/// `ring.rs`. A processor runs some hundred instructions ahead, and discards them when it is
/// interrupted.
const EARLY: u64 = 1 << 16;

/// The contents of a file, up to where it is damaged.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) blocks: Vec<(RecordsHead, Vec<Record>)>,
    pub(crate) definitions: Vec<Definition>,
    pub(crate) totals: Vec<Total>,
    pub(crate) dumps: Vec<block::Dump>,
    pub(crate) costs: Vec<block::Cost>,
    pub(crate) clocks: usize,
    pub(crate) end: Option<End>,
    pub(crate) part: u32,
}

impl Trace {
    /// Reads whole blocks from the beginning.
    pub(crate) fn read(path: &Path) -> Trace {
        let bytes = std::fs::read(path).expect("the trace is there");
        let (head, mut rest) = FileHead::read_from_prefix(&bytes).expect("it has a head");
        assert_eq!((head.magic, head.version), (MAGIC, VERSION));
        let mut trace = Trace::default();
        while let Ok((head, after)) = BlockHead::read_from_prefix(rest) {
            let length = head.length as usize;
            let Some(content) = after.get(..length) else { break };
            if head.mark != block::MARK || block::checksum(head.kind, [content]) != head.checksum {
                break;
            }
            trace.take(Kind::from_number(head.kind).expect("the kind is known"), content);
            rest = after.get(length + block::padding(length)..).unwrap_or_default();
        }
        trace
    }

    fn take(&mut self, kind: Kind, content: &[u8]) {
        match kind {
            Kind::Records => {
                let (head, rest) = RecordsHead::read_from_prefix(content).expect("it has a head");
                assert_eq!(rest.len(), head.count as usize * SIZE);
                let records = rest.chunks(SIZE).map(Record::read_from_bytes);
                let records = records.map(|record| record.expect("it is long enough")).collect();
                self.blocks.push((head, records));
            }
            Kind::Definitions => self.definitions.extend(json::<Vec<_>>(content)),
            Kind::Totals => self.totals = json(content),
            Kind::Dump => self.dumps.push(json(content)),
            Kind::Costs => self.costs = json(content),
            Kind::End => self.end = Some(json(content)),
            Kind::Clock => self.clocks += 1,
            Kind::Head => self.part = json::<block::Head>(content).part,
            Kind::Threads | Kind::Frames | Kind::Stacks => (),
        }
    }

    /// Returns all records, processor by processor, in order.
    pub(crate) fn records(&self) -> Vec<&Record> {
        self.blocks.iter().flat_map(|(_, records)| records).collect()
    }

    /// Returns the id of an event.
    pub(crate) fn id(&self, name: &str) -> u32 {
        let found = self.definitions.iter().find(|definition| definition.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", self.definitions)).id
    }

    /// Checks the properties of every trace: the counts add up, and times do not decrease.
    pub(crate) fn check(&self) {
        let mut by_processor = std::collections::BTreeMap::<(u16, u16), (u64, u64)>::new();
        for (head, records) in &self.blocks {
            let (written, last) = by_processor.entry((head.processor, head.stream)).or_default();
            let lost = head.lost_full + head.lost_torn + head.lost_old + head.lost_unwritten;
            assert_eq!(head.sequence, *written + lost, "{head:?}");
            *written += u64::from(head.count);
            for record in records {
                assert!(record.time + EARLY >= *last, "{record:?} after {last}");
                *last = record.time.max(*last);
            }
        }
        if let Some(end) = self.end {
            let written: u64 = by_processor.values().map(|(written, _)| written).sum();
            assert_eq!(end.written, written);
        }
    }
}

fn json<T: serde::de::DeserializeOwned>(content: &[u8]) -> T {
    serde_json::from_slice(content).expect("the block holds what its kind says")
}
