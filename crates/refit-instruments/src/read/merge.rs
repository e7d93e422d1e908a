//! The records of all processors as one stream in the order of time.
//!
//! Each processor's buffer is in the order of time but for records whose writers were interrupted between taking a
//! place and reading the clock. So each is read through a window of [`WINDOW`] records that is kept in order, and a
//! heap with the first record of each window tells which comes next. A record that is later in its buffer than that
//! comes out when it is seen, and is counted ([`Records::late`]): memory is bounded whatever a file holds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::slice;

use zerocopy::{FromZeros, IntoBytes};

use super::blocks::Part;
use super::error::Error;
use super::index::{Index, Run};
use crate::record::Record;

/// How many places a record may be away from where its time belongs.
const WINDOW: usize = 1024;
/// How many records are read at a time.
const CHUNK: usize = 2048;

/// A record, and where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The processor whose buffer it was in.
    pub processor: u32,
    /// What was written.
    pub record: Record,
}

/// The stream; ends after the first error.
pub struct Records<'a> {
    buffers: Vec<Buffer<'a>>,
    /// Time of the first record of a window, and which.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    begun: bool,
    latest: u64,
    late: u64,
    torn: u64,
}

impl<'a> Records<'a> {
    pub(super) fn new(parts: &'a [Part], index: &'a Index) -> Records<'a> {
        let buffers = index.buffers().map(|(processor, runs)| Buffer {
            processor,
            parts,
            runs: runs.iter(),
            run: None,
            chunk: Vec::new(),
            taken: 0,
            window: VecDeque::new(),
            torn: 0,
        });
        let buffers = buffers.collect();
        Records { buffers, next: BinaryHeap::new(), begun: false, latest: 0, late: 0, torn: 0 }
    }

    /// Records so far that came after later ones.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Records so far that were begun and not ended, and left out.
    pub fn torn(&self) -> u64 {
        self.torn + self.buffers.iter().map(|buffer| buffer.torn).sum::<u64>()
    }

    fn take(&mut self) -> Result<Option<Seen>, Error> {
        if !self.begun {
            self.begun = true;
            for number in 0..self.buffers.len() {
                self.offer(number)?;
            }
        }
        let Some(Reverse((_, number))) = self.next.pop() else { return Ok(None) };
        let buffer = &mut self.buffers[number];
        let Some(record) = buffer.window.pop_front() else { return Ok(None) };
        let seen = Seen { processor: buffer.processor, record };
        self.offer(number)?;
        self.late += u64::from(record.time < self.latest);
        self.latest = self.latest.max(record.time);
        Ok(Some(seen))
    }

    /// Puts the first record of a buffer's window into the heap.
    fn offer(&mut self, number: usize) -> Result<(), Error> {
        let buffer = &mut self.buffers[number];
        buffer.fill()?;
        if let Some(first) = buffer.window.front() {
            self.next.push(Reverse((first.time, number)));
        }
        Ok(())
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Seen, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.take().transpose();
        if matches!(next, Some(Err(_))) {
            self.torn = self.torn();
            self.buffers.clear();
            self.next.clear();
        }
        next
    }
}

/// The records of one processor.
struct Buffer<'a> {
    processor: u32,
    parts: &'a [Part],
    runs: slice::Iter<'a, Run>,
    run: Option<Run>,
    chunk: Vec<Record>,
    /// How many of the chunk are in the window already.
    taken: usize,
    window: VecDeque<Record>,
    torn: u64,
}

impl Buffer<'_> {
    /// Fills the window as far as there are records.
    fn fill(&mut self) -> Result<(), Error> {
        while self.window.len() < WINDOW {
            if self.taken == self.chunk.len() && !self.read()? {
                break;
            }
            let record = self.chunk[self.taken];
            self.taken += 1;
            if record.time == 0 {
                self.torn += 1;
                continue;
            }
            // Nearly always it is the last.
            let after = match self.window.back() {
                Some(last) if last.time > record.time => {
                    self.window.partition_point(|earlier| earlier.time <= record.time)
                }
                _ => self.window.len(),
            };
            self.window.insert(after, record);
        }
        Ok(())
    }

    /// Reads the next chunk; whether there is one.
    fn read(&mut self) -> Result<bool, Error> {
        let run = loop {
            match self.run.take() {
                Some(run) if run.count > 0 => break run,
                _ => match self.runs.next() {
                    Some(run) => self.run = Some(*run),
                    None => return Ok(false),
                },
            }
        };
        let count = run.count.min(CHUNK as u32);
        self.chunk.resize(count as usize, Record::new_zeroed());
        self.taken = 0;
        self.parts[run.part].read(run.at, self.chunk.as_mut_bytes())?;
        self.run = Some(run.after(count));
        Ok(true)
    }
}
