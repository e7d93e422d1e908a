//! Records that do not come through the rings: those of the scheduler and of other sources with
//! their own clocks.

use std::fmt;

use zerocopy::IntoBytes;

use super::output::Output;
use crate::block::{End, Frame, Kind, RecordsHead, Stack, Thread};
use crate::record::Record;

/// A source of records that the recorder reads repeatedly.
pub trait Source: Send + fmt::Debug {
    /// Adds what has happened since the last call.
    fn collect(&mut self, found: &mut SourceBatch);

    /// Adds what is known only at the end of the recording. Called once, after the last
    /// [`collect`](Self::collect).
    fn finish(&mut self, _found: &mut SourceBatch) {}
}

/// The records from a source.
#[derive(Debug, Default)]
pub struct SourceBatch {
    /// Records with the processor that they belong to; those of one processor are in the order of
    /// time.
    pub records: Vec<(u32, Record)>,
    /// The number of records that the source has lost, by processor.
    pub lost: Vec<(u32, u64)>,
    /// Threads whose names have become known.
    pub threads: Vec<Thread>,
    /// Frames that have become known, or their names.
    pub frames: Vec<Frame>,
    /// Stacks that have become known, whose frames are known.
    pub stacks: Vec<Stack>,
}

/// The maximum number of frames, or stacks, of a block.
const MAX_FRAMES: usize = 10_000;

/// A source, and the state of the blocks that were written from it.
#[derive(Debug)]
pub(super) struct Tap {
    source: Box<dyn Source>,
    /// The head of the next block of each processor.
    heads: Vec<RecordsHead>,
    written: u64,
}

impl Tap {
    /// Creates the tap of a source. `stream` distinguishes its blocks from those of other sources.
    pub(super) fn new(source: Box<dyn Source>, processors: usize, stream: u16) -> Tap {
        let head =
            |processor| RecordsHead::new(u16::try_from(processor).unwrap_or(u16::MAX), stream);
        Tap { source, heads: (0..processors).map(head).collect(), written: 0 }
    }

    /// Reads the source and writes its records.
    pub(super) fn write(&mut self, output: &mut Output) {
        let mut found = SourceBatch::default();
        self.source.collect(&mut found);
        self.write_batch(&found, output);
    }

    /// Reads the source for the last time.
    pub(super) fn finish(&mut self, output: &mut Output) {
        self.write(output);
        let mut found = SourceBatch::default();
        self.source.finish(&mut found);
        self.write_batch(&found, output);
    }

    fn write_batch(&mut self, found: &SourceBatch, output: &mut Output) {
        if !found.threads.is_empty() {
            output.json(Kind::Threads, &found.threads);
        }
        for frames in found.frames.chunks(MAX_FRAMES) {
            output.keep(Kind::Frames, &frames);
        }
        for stacks in found.stacks.chunks(MAX_FRAMES) {
            output.keep(Kind::Stacks, &stacks);
        }
        for (processor, head) in self.heads.iter_mut().enumerate() {
            let here = |of: u32| of as usize == processor;
            let lost: u64 = found.lost.iter().filter(|(p, _)| here(*p)).map(|(_, n)| n).sum();
            let records = found.records.iter().filter(|(p, _)| here(*p)).map(|(_, r)| *r);
            let records: Vec<Record> = records.collect();
            if records.is_empty() && lost == 0 {
                continue;
            }
            head.lost_full += lost;
            // Losses come before the block that reports them.
            head.sequence += lost;
            head.count = u32::try_from(records.len()).unwrap_or(u32::MAX);
            let count = u64::from(head.count);
            if output.block(Kind::Records, &[head.as_bytes(), records.as_bytes()]) {
                self.written += count;
            } else {
                // Reported by the next block that can be written.
                head.lost_unwritten += count;
            }
            head.sequence += count;
        }
    }

    /// Adds the counts of its records to `end`.
    pub(super) fn add_to(&self, end: &mut End) {
        end.written += self.written;
        end.lost_full += self.heads.iter().map(|head| head.lost_full).sum::<u64>();
        end.lost_unwritten += self.heads.iter().map(|head| head.lost_unwritten).sum::<u64>();
    }
}
