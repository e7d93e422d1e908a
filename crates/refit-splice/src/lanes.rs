//! Reads the cells of many steps with few calls: neighbouring cells of a lane together.

use std::io;

use crate::counted::Keyed;
use crate::install::Installed;
use crate::snippet::Step;

/// A number of words that many steps are read ahead by: 256 KiB.
pub const AHEAD: usize = 1 << 15;

/// A reader of cells. What it has read ahead is as old as the reader: later ones read on.
#[derive(Debug)]
pub struct Lanes<'i> {
    installed: &'i Installed,
    /// Number of words that are read ahead.
    ahead: usize,
    /// The words of each lane of each area that were read last.
    buffers: Vec<Buffer>,
}

/// Neighbouring words of a lane.
#[derive(Clone, Debug, Default)]
struct Buffer {
    /// Number of the first one.
    first: usize,
    words: Vec<u64>,
}

impl Installed {
    /// Begins to read the cells of steps, which should be in ascending order, and up to this many
    /// words ahead ([`AHEAD`]).
    pub fn lanes(&self, ahead: usize) -> Lanes<'_> {
        let all = self.areas.len() * self.shape.all_lanes() as usize;
        let buffers = vec![Buffer::default(); all];
        Lanes { installed: self, ahead, buffers }
    }

    /// Reads what a step has counted so far, as [`Lanes::keyed`] does.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn keyed(&self, step: &Step, first: u32) -> io::Result<(Keyed, Vec<u64>)> {
        self.lanes(0).keyed(step, first)
    }

    /// Reads what a step without a key has counted so far: its cells.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn cells(&self, step: &Step, first: u32) -> io::Result<Vec<u64>> {
        self.lanes(0).cells(step, first)
    }

    /// Reads what a cell has counted so far. Never less than a previous result.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn cell(&self, cell: u32) -> io::Result<u64> {
        self.lanes(0).cell(cell)
    }
}

impl Lanes<'_> {
    /// Reads what a step has counted: cells by key, and the cells of all other keys together.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn keyed(&mut self, step: &Step, first: u32) -> io::Result<(Keyed, Vec<u64>)> {
        let (each, table) = (step.action.cells() as usize, step.table(first));
        let (mut keys, mut others) = (Keyed::new(), vec![0; each]);
        self.each(first, (table.end - first) as usize, |words| {
            let (rest, entries) = words.split_at(each);
            step.action.add(&mut others, rest);
            for entry in entries.chunks_exact(1 + each).filter(|entry| entry[0] != 0) {
                let cells = keys.entry(entry[0] - 1).or_insert_with(|| vec![0; each]);
                step.action.add(cells, &entry[1..]);
            }
        })?;
        Ok((keys, others))
    }

    /// Reads what a step without a key has counted: its cells.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn cells(&mut self, step: &Step, first: u32) -> io::Result<Vec<u64>> {
        let mut cells = vec![0; step.cells() as usize];
        self.each(first, cells.len(), |words| step.action.add(&mut cells, words))?;
        Ok(cells)
    }

    /// Reads what a cell has counted.
    ///
    /// # Errors
    /// The error of reading the area.
    pub fn cell(&mut self, cell: u32) -> io::Result<u64> {
        let mut sum = 0_u64;
        // A lane's part of the time is negative while a thread that entered on it has left on
        // another one.
        self.each(cell, 1, |words| sum = words.iter().copied().fold(sum, u64::wrapping_add))?;
        Ok(sum)
    }

    /// Calls `with` for the words of some cells in each lane.
    fn each(&mut self, first: u32, count: usize, mut with: impl FnMut(&[u64])) -> io::Result<()> {
        let Self { installed, ahead, ref mut buffers } = *self;
        let first = first as usize;
        for (index, Buffer { first: begin, words }) in buffers.iter_mut().enumerate() {
            let known = first.checked_sub(*begin).and_then(|at| words.get(at..at + count));
            if let Some(known) = known.filter(|_| count > 0) {
                with(known);
                continue;
            }
            let lanes = installed.shape.all_lanes() as usize;
            let (area, lane) = (index / lanes, index % lanes);
            let left = (installed.cells as usize).saturating_sub(first);
            let at = lane as u64 * installed.shape.stride + first as u64 * 8;
            *words = installed.areas[area].words(at, ahead.min(left).max(count))?;
            *begin = first;
            with(&words[..count]);
        }
        Ok(())
    }
}
