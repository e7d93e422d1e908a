//! The positions of the records of each processor, and the missing records.
//!
//! Each block of records contains the number of records of its buffer before it, written or lost,
//! and the number of those that were lost since the beginning of the buffer, by cause. Any further
//! missing records were in parts of the trace that are not available, or in damaged blocks.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use zerocopy::FromBytes;

use super::blocks::Block;
use crate::block::RecordsHead;
use crate::record::{self, Record};

/// The positions of all records.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The blocks of each buffer, by processor and stream.
    buffers: BTreeMap<(u16, u16), Vec<Run>>,
    gaps: Vec<Gap>,
    /// Threads that have records; 0 is none.
    threads: BTreeSet<u32>,
}

/// The records of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) part: usize,
    /// The position of its first record.
    pub(super) at: u64,
    pub(super) count: u32,
    sequence: u64,
    lost: Losses,
    /// The smallest and the largest time of a record; `None` without records.
    span: Option<(u64, u64)>,
}

/// The number of lost records, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// The buffer was full.
    pub full: u64,
    /// The record was begun and never completed, because its thread was killed.
    pub torn: u64,
    /// The record was overwritten deliberately (flight recorder).
    pub old: u64,
    /// The record could not be written to the file.
    pub unwritten: u64,
    /// The record was in a file that is not available or damaged.
    pub missing: u64,
}

impl Losses {
    /// Returns the total.
    pub fn sum(&self) -> u64 {
        [self.full, self.torn, self.old, self.unwritten, self.missing]
            .iter()
            .fold(0, |sum, one| sum.saturating_add(*one))
    }

    /// Returns each cause with its name, in the order of the fields.
    pub fn causes(&self) -> [(&'static str, u64); 5] {
        [
            ("full", self.full),
            ("torn", self.torn),
            ("old", self.old),
            ("unwritten", self.unwritten),
            ("missing", self.missing),
        ]
    }

    fn combine(&self, other: &Losses, with: impl Fn(u64, u64) -> u64) -> Losses {
        Losses {
            full: with(self.full, other.full),
            torn: with(self.torn, other.torn),
            old: with(self.old, other.old),
            unwritten: with(self.unwritten, other.unwritten),
            missing: with(self.missing, other.missing),
        }
    }
}

/// A position in a processor's records at which some are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The processor.
    pub processor: u32,
    /// The ticks of the last record before it; 0 if there is none.
    pub begin: u64,
    /// The ticks of the first record after it.
    pub end: u64,
    /// The records that are lost there.
    pub lost: Losses,
}

impl Run {
    /// Returns the rest after its first `count` records, of which it must have as many.
    pub(super) fn after(self, count: u32) -> Run {
        let at = self.at + u64::from(count) * record::SIZE as u64;
        Run { at, count: self.count - count, ..self }
    }
}

impl Index {
    /// Adds a block of records. Returns `None` if its content is invalid.
    pub(super) fn add(&mut self, part: usize, block: &Block<'_>) -> Option<()> {
        let (head, records) = RecordsHead::read_from_prefix(block.content).ok()?;
        if head.count as usize != records.len() / record::SIZE
            || !records.len().is_multiple_of(record::SIZE)
        {
            return None;
        }
        let mut span: Option<(u64, u64)> = None;
        // Records of one thread usually follow one another, so the thread is looked up once for all
        // of them.
        let mut last = 0;
        for bytes in records.chunks_exact(record::SIZE) {
            let Ok(Record { time, thread, .. }) = Record::read_from_bytes(bytes) else { continue };
            if time != 0 {
                if thread != last {
                    self.threads.insert(thread);
                    last = thread;
                }
                let (least, most) = span.unwrap_or((time, time));
                span = Some((least.min(time), most.max(time)));
            }
        }
        let lost = Losses {
            full: head.lost_full,
            torn: head.lost_torn,
            old: head.lost_old,
            unwritten: head.lost_unwritten,
            missing: 0,
        };
        let at = block.at + size_of::<RecordsHead>() as u64;
        let run = Run { part, at, count: head.count, sequence: head.sequence, lost, span };
        self.buffers.entry((head.processor, head.stream)).or_default().push(run);
        Some(())
    }

    /// Sorts all blocks and finds the gaps between them.
    pub(super) fn arrange(&mut self) {
        for (&(processor, _), runs) in &mut self.buffers {
            let processor = u32::from(processor);
            runs.sort_by_key(|run| run.sequence);
            let (mut here, mut before, mut last) = (0_u64, Losses::default(), 0);
            for run in runs {
                let lost = run.lost;
                let missing = run.sequence.saturating_sub(here.saturating_add(lost.sum()));
                run.lost.missing = missing;
                let fresh = run.lost.combine(&before, u64::saturating_sub);
                if fresh.sum() > 0 {
                    let end = run.span.map_or(last, |(least, _)| least);
                    self.gaps.push(Gap { processor, begin: last, end, lost: fresh });
                }
                before = run.lost.combine(&before, u64::max);
                here = here.saturating_add(u64::from(run.count));
                last = run.span.map_or(last, |(_, most)| last.max(most));
            }
        }
        self.gaps.sort_by_key(|gap| gap.end);
    }

    pub(super) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Returns the lost records in all gaps.
    pub(super) fn losses(&self) -> Losses {
        let none = Losses::default();
        self.gaps.iter().fold(none, |sum, gap| sum.combine(&gap.lost, u64::saturating_add))
    }

    pub(super) fn records(&self) -> u64 {
        self.buffers.values().flatten().map(|run| u64::from(run.count)).sum()
    }

    /// Returns the number of threads that have records.
    pub(super) fn threads(&self) -> usize {
        self.threads.iter().filter(|thread| **thread != 0).count()
    }

    pub(super) fn processors(&self) -> impl Iterator<Item = u32> {
        let processors: BTreeSet<u16> = self.buffers.keys().map(|key| key.0).collect();
        processors.into_iter().map(u32::from)
    }

    /// Returns the blocks of each buffer, in order, with its processor.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (u32, &[Run])> {
        self.buffers.iter().map(|(key, runs)| (u32::from(key.0), runs.as_slice()))
    }

    pub(super) fn span(&self) -> Option<(u64, u64)> {
        let spans = self.buffers.values().flatten().filter_map(|run| run.span);
        spans.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }
}
