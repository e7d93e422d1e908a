//! The records of all processors as one stream in the order of time.
//!
//! The buffer of each processor is in the order of time, except for records whose writers were
//! interrupted between reserving a slot and reading the clock. Each buffer is therefore read
//! through a sorted window of [`WINDOW`] records, and a heap with the first record of each window
//! determines the next one. A record that is displaced further in its buffer is returned when it is
//! found, and counted ([`Records::late`]): the memory is bounded whatever a file contains.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::slice;

use zerocopy::{FromZeros, IntoBytes};

use super::blocks::Part;
use super::error::Error;
use super::index::{Index, Run};
use crate::record::Record;

/// The maximum distance of a record from the position that corresponds to its time.
const WINDOW: usize = 1024;
/// The number of records that are read at a time.
const CHUNK: usize = 2048;

/// A record and the processor on which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The processor whose buffer contained it.
    pub processor: u32,
    /// The record.
    pub record: Record,
}

/// The stream of records, which ends after the first error.
pub struct Records<'a> {
    buffers: Vec<Buffer<'a>>,
    /// The time of the first record of each window, and the number of the window.
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

    /// Returns the number of records so far that came after later ones.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of records so far that were begun and not completed, and omitted.
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

    /// Adds the first record of a buffer's window to the heap.
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
    /// The number of records of the chunk that are already in the window.
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

    /// Reads the next chunk. Returns whether there is one.
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
