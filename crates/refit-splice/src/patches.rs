//! Changes many places of a stopped program so that refit may be killed at any moment.
//!
//! The kernel writes to the memory of another process page by page, in the order of their
//! addresses, and may stop between two pages when the writer is killed. The program can run with
//! any prefix of the pages written:
//!
//! - a jump lies within one page ([`in_one_page`]), so it is written wholly or not at all;
//! - records are written in their order and undone in reverse order: the target of a short jump is
//!   written before the jump and removed after it. The bytes of a copied function that have to
//!   change at once are in one page, and change last ([`crate::layout`]).
//!
//! Successive records in the same page, and in the page after it, are read and written together,
//! with the bytes in between: each access costs a system call.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use refit_sys::memory::PAGE_SIZE_U64;

use crate::process::{Program, Refusal};

use crate::record::Record;

/// Maximum number of pages that are read and written together.
const TOGETHER: u64 = 16;
/// Number of pages that change in one of several stops: some three milliseconds.
pub(crate) const PAGES_AT_ONCE: usize = 384;

/// Places that are to change, with room for what is there.
pub(crate) struct Places<'r> {
    stretches: Vec<Stretch<'r>>,
}

/// A range of memory, with the places in it that change, by ascending pages.
struct Stretch<'r> {
    begin: u64,
    /// The bytes that are there; some others before they were read.
    bytes: Vec<u8>,
    readable: bool,
    records: Vec<&'r Record>,
    /// Offsets from the beginning, and the bytes to write there.
    puts: Vec<(usize, &'r [u8])>,
}

/// Whether the `length` bytes from an address on are in one page.
pub(crate) fn in_one_page(address: u64, length: usize) -> bool {
    page(address) == page(address + length as u64 - 1)
}

/// The present state of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// The bytes from before the change.
    Old,
    /// The bytes from after the change.
    New,
    /// Another tool has changed its first byte.
    Foreign,
    /// Other bytes, which do not lead to the patch area.
    Replaced,
    /// No longer mapped.
    Gone,
}

/// Changes that have been decided on, and not made yet.
pub(crate) struct Change<'r> {
    stretches: Vec<Stretch<'r>>,
}

impl<'r> Places<'r> {
    /// Returns the places of these changes, in their order. This needs no stopped program.
    pub(crate) fn new(records: impl IntoIterator<Item = &'r Record>) -> Self {
        Self { stretches: joined(records, TOGETHER) }
    }

    /// Divides the changes, in their order, so that each part is in about this many pages. There is
    /// at least one part.
    pub(crate) fn divide(self, most: usize) -> Vec<Self> {
        let mut parts = vec![Self { stretches: Vec::new() }];
        let mut pages = 0;
        for stretch in self.stretches {
            let own = (page(stretch.end() - 1) - page(stretch.begin) + 1) as usize;
            if pages > 0 && pages + own > most {
                parts.push(Self { stretches: Vec::new() });
                pages = 0;
            }
            pages += own;
            if let Some(part) = parts.last_mut() {
                part.stretches.push(stretch);
            }
        }
        parts
    }

    /// Decides on changes: for each place, `wanted` receives its present state and returns the
    /// bytes to write, or `None` to leave it. The changes are made in the order of the records.
    ///
    /// # Errors
    /// The error of `wanted`.
    pub(crate) fn decide<E: From<Refusal>>(
        self,
        program: &Program,
        mut wanted: impl FnMut(&'r Record, Now) -> Result<Option<&'r [u8]>, E>,
    ) -> Result<Change<'r>, E> {
        let mut stretches = Vec::with_capacity(self.stretches.len());
        self.stretches.into_iter().for_each(|stretch| stretch.read(program, &mut stretches));
        for Stretch { begin, bytes, readable, records, puts } in &mut stretches {
            for &record in &*records {
                let at = (record.address - *begin) as usize;
                let now = match &bytes[at..at + record.new.len()] {
                    _ if !*readable => Now::Gone,
                    // A short jump can have the same bytes as the one that it replaced.
                    bytes if bytes == record.old => Now::Old,
                    bytes if bytes == record.new => Now::New,
                    // Another tool has put a breakpoint over the first byte. When it restores the
                    // byte, the place leads to the patch area again.
                    bytes if bytes[1..] == record.new[1..] => Now::Foreign,
                    _ => Now::Replaced,
                };
                if let Some(bytes) = wanted(record, now)? {
                    puts.push((at, bytes));
                }
            }
        }
        stretches.retain(|stretch| !stretch.puts.is_empty());
        Ok(Change { stretches })
    }
}

impl Change<'_> {
    /// Makes all changes, or none.
    ///
    /// # Errors
    /// [`Refusal`]: the program's memory cannot be written.
    pub(crate) fn make(mut self, program: &Program) -> Result<(), Refusal> {
        let mut changed = BTreeSet::new();
        let mut done = Vec::with_capacity(self.stretches.len());
        for stretch in &mut self.stretches {
            let written = stretch.renew(program, &mut changed).and_then(|()| {
                done.push(stretch.put());
                program.write(stretch.begin, &stretch.bytes)
            });
            let Err(source) = written else { continue };
            for (stretch, before) in self.stretches.iter_mut().zip(&done).rev() {
                stretch.put_back(before);
                // Memory that was writable a moment ago can be restored. Of the last stretch, some
                // pages may have been written.
                for (begin, page) in pages(stretch.begin, &stretch.bytes) {
                    let _ = program.write(begin, page);
                }
            }
            let id = program.id();
            return Err(Refusal::System { id, what: "change its code", source });
        }
        Ok(())
    }
}

impl<'r> Stretch<'r> {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Reads what is there, page by page if not all pages can be read.
    fn read(mut self, program: &Program, into: &mut Vec<Self>) {
        self.readable = program.read(self.begin, &mut self.bytes).is_ok();
        if self.readable || page(self.begin) == page(self.end() - 1) {
            into.push(self);
            return;
        }
        let pages = joined(self.records.iter().copied(), 1);
        pages.into_iter().for_each(|page| page.read(program, into));
    }

    /// Reads it again if earlier changes, in pages of `changed`, may have changed the bytes between
    /// those that change.
    fn renew(&mut self, program: &Program, changed: &mut BTreeSet<u64>) -> io::Result<()> {
        let mut again = !self.readable;
        for page in page(self.begin)..=page(self.end() - 1) {
            again |= !changed.insert(page);
        }
        if again { program.read(self.begin, &mut self.bytes) } else { Ok(()) }
    }

    /// Changes the bytes that were read; returns those that were there.
    fn put(&mut self) -> Vec<u8> {
        let mut before = Vec::with_capacity(self.puts.iter().map(|(_, put)| put.len()).sum());
        for &(at, put) in &self.puts {
            let bytes = &mut self.bytes[at..at + put.len()];
            before.extend_from_slice(bytes);
            bytes.copy_from_slice(put);
        }
        before
    }

    fn put_back(&mut self, mut before: &[u8]) {
        for &(at, put) in self.puts.iter().rev() {
            let (rest, bytes) = before.split_at(before.len() - put.len());
            self.bytes[at..at + put.len()].copy_from_slice(bytes);
            before = rest;
        }
    }
}

/// Divides bytes at the ends of pages.
fn pages(begin: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let first = (PAGE_SIZE_U64 - begin % PAGE_SIZE_U64) as usize;
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    let behind = (begin + head.len() as u64..).step_by(PAGE_SIZE_U64 as usize);
    [(begin, head)].into_iter().chain(behind.zip(rest.chunks(PAGE_SIZE_U64 as usize)))
}

fn page(address: u64) -> u64 {
    address / PAGE_SIZE_U64
}

/// Joins successive records in the same page, or in the next one, up to this many pages.
fn joined<'r>(records: impl IntoIterator<Item = &'r Record>, most: u64) -> Vec<Stretch<'r>> {
    let mut ranges: Vec<(Range<u64>, Vec<&Record>)> = Vec::new();
    for record in records.into_iter().filter(|record| record.changes()) {
        let own = record.address..record.address + record.new.len() as u64;
        match ranges.last_mut().filter(|(range, _)| follows(range, &own, most)) {
            Some((range, records)) => {
                *range = range.start.min(own.start)..range.end.max(own.end);
                records.push(record);
            }
            None => ranges.push((own, vec![record])),
        }
    }
    let stretch = |(Range { start: begin, end }, records)| {
        // Bytes other than 0 make the kernel provide the memory now, and not in the stop.
        let bytes = vec![0xff; (end - begin) as usize];
        Stretch { begin, bytes, readable: false, records, puts: Vec::new() }
    };
    ranges.into_iter().map(stretch).collect()
}

/// Whether a place, which has to lie in one page, can be joined to a range: no page that was passed
/// is written again.
fn follows(range: &Range<u64>, own: &Range<u64>, most: u64) -> bool {
    let (first, last) = (page(range.start), page(range.end - 1));
    let next = last..=last + u64::from(first + most > last + 1);
    page(own.start) == page(own.end - 1) && next.contains(&page(own.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> Record {
        Record { address, old: vec![0; 5], new: vec![1; 5], copies: Vec::new() }
    }

    /// Returns the addresses of each stretch, and its length.
    fn joined_at(addresses: &[u64]) -> Vec<(Vec<u64>, usize)> {
        let records: Vec<Record> = addresses.iter().copied().map(at).collect();
        let addresses = |one: &Stretch<'_>| one.records.iter().map(|one| one.address).collect();
        let joined = joined(&records, TOGETHER);
        joined.iter().map(|one| (addresses(one), one.bytes.len())).collect()
    }

    #[test]
    fn pages_are_written_in_the_order_of_the_records() {
        assert_eq!(
            joined_at(&[0x1100, 0x1010, 0x2000, 0x3ff0, 0x5000, 0x4000]),
            [
                (vec![0x1100, 0x1010, 0x2000, 0x3ff0], 0x2fe5),
                (vec![0x5000], 5),
                // Its page is written later.
                (vec![0x4000], 5),
            ]
        );
        // A page that another one has followed is not written before that.
        assert_eq!(joined_at(&[0x1000, 0x2000, 0x1010]).len(), 2);
        let many: Vec<u64> = (1..=1 + TOGETHER).map(|page| page * PAGE_SIZE_U64).collect();
        assert_eq!(joined_at(&many)[1], (vec![*many.last().expect("some")], 5));
        // What lies in two pages is not joined.
        assert_eq!(joined_at(&[0x1000, 0x1ffe]).len(), 2);
    }

    #[test]
    fn parts_are_as_long_as_a_stop_may_be() {
        let records: Vec<Record> = (1..=100).map(|page| at(page * 2 * PAGE_SIZE_U64)).collect();
        let parts = Places::new(&records).divide(40);
        let lengths: Vec<_> = parts.iter().map(|part| part.stretches.len()).collect();
        assert_eq!(lengths, [40, 40, 20]);
        assert_eq!(Places::new(&[]).divide(40).len(), 1);
    }

    #[test]
    fn bytes_are_divided_at_the_ends_of_pages() {
        let bytes = [7; 0x1020];
        let divided: Vec<_> = pages(0x1ff0, &bytes).map(|(at, part)| (at, part.len())).collect();
        assert_eq!(divided, [(0x1ff0, 0x10), (0x2000, 0x1000), (0x3000, 0x10)]);
        assert_eq!(pages(0x1ff0, &bytes[..3]).map(|(at, _)| at).collect::<Vec<_>>(), [0x1ff0]);
    }
}
