//! Changes many places of a stopped program so that refit may be killed at any moment.
//!
//! The kernel writes to the memory of another process page by page, in the order of their addresses,
//! and may stop between two pages when the writer is killed. The program can run with any prefix of
//! the pages written:
//!
//! - a jump lies within one page ([`in_one_page`]), so it is written wholly or not at all;
//! - records are written in their order and undone in reverse order: the target of a short jump is
//!   written before the jump and removed after it. The bytes of a copied function that have to
//!   change at once are in one page, and change last ([`crate::layout`]).
//!
//! Successive records in the same page, and in the page after it, are read and written together, with
//! the bytes in between: each access costs a system call, which takes longer than a page does.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;

use refit_sys::memory::PAGE_SIZE_U64;

use crate::process::{Program, Refusal};

use crate::record::Record;

/// Maximum number of pages that are read and written together.
const TOGETHER: u64 = 64;

/// A range of memory, with the places in it that change, by ascending pages.
struct Stretch<'r> {
    begin: u64,
    length: usize,
    /// The bytes that are there, if they can be read.
    found: Vec<u8>,
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

/// Decides on changes: for each place, `wanted` receives its present state and returns the bytes to
/// write, or `None` to leave it. The changes are made in the order of the records.
///
/// # Errors
/// The error of `wanted`.
pub(crate) fn decide<'r, E: From<Refusal>>(
    program: &Program,
    records: impl IntoIterator<Item = &'r Record>,
    mut wanted: impl FnMut(&'r Record, Now) -> Result<Option<&'r [u8]>, E>,
) -> Result<Change<'r>, E> {
    let mut stretches = read(program, stretches(records));
    for stretch in &mut stretches {
        let readable = stretch.found.len() == stretch.length;
        for record in &stretch.records {
            let at = (record.address - stretch.begin) as usize;
            let now = match stretch.found.get(at..at + record.new.len()).unwrap_or_default() {
                _ if !readable => Now::Gone,
                // A short jump can have the same bytes as the one that it replaced.
                bytes if bytes == record.old => Now::Old,
                bytes if bytes == record.new => Now::New,
                // Another tool has put a breakpoint over the first byte. When it restores the byte,
                // the place leads to the patch area again.
                bytes if bytes[1..] == record.new[1..] => Now::Foreign,
                _ => Now::Replaced,
            };
            if let Some(bytes) = wanted(record, now)? {
                stretch.puts.push((at, bytes));
            }
        }
    }
    Ok(Change { stretches })
}

/// Reads what is there, page by page where not all pages of a stretch can be read.
fn read<'r>(program: &Program, stretches: Vec<Stretch<'r>>) -> Vec<Stretch<'r>> {
    let mut all = Vec::with_capacity(stretches.len());
    for mut stretch in stretches {
        stretch.found = vec![0; stretch.length];
        if program.read(stretch.begin, &mut stretch.found).is_ok() {
            all.push(stretch);
            continue;
        }
        stretch.found.clear();
        let pages = stretch.records.chunk_by(|one, next| page(one.address) == page(next.address));
        let mut pages: Vec<_> =
            pages.flat_map(|records| joined(records.iter().copied(), 1)).collect();
        for page in &mut pages {
            page.found = vec![0; page.length];
            if program.read(page.begin, &mut page.found).is_err() {
                page.found.clear();
            }
        }
        all.append(&mut pages);
    }
    all
}

impl Change<'_> {
    /// Makes all changes, or none.
    ///
    /// # Errors
    /// [`Refusal`]: the program's memory cannot be written.
    pub(crate) fn make(&self, program: &Program) -> Result<(), Refusal> {
        let mut done: Vec<(u64, Cow<'_, [u8]>)> = Vec::new();
        let mut pages = BTreeSet::new();
        for stretch in self.stretches.iter().filter(|stretch| !stretch.puts.is_empty()) {
            let written = stretch.before(program, &mut pages).and_then(|before| {
                let mut after = before.to_vec();
                for &(at, bytes) in &stretch.puts {
                    after[at..at + bytes.len()].copy_from_slice(bytes);
                }
                done.push((stretch.begin, before));
                program.write(stretch.begin, &after)
            });
            let Err(source) = written else { continue };
            for (begin, before) in done.iter().rev() {
                // Memory that was writable a moment ago can be restored. Of the last stretch, some
                // pages may have been written.
                for page in pieces(*begin, before) {
                    let _ = program.write(page.0, page.1);
                }
            }
            let id = program.id();
            return Err(Refusal::System { id, what: "change its code", source });
        }
        Ok(())
    }
}

impl<'r> Stretch<'r> {
    fn new(record: &'r Record) -> Self {
        let (begin, length) = (record.address, record.new.len());
        Self { begin, length, found: Vec::new(), records: vec![record], puts: Vec::new() }
    }

    /// Whether a record of this place can be the next one: no page that was passed is written
    /// again.
    fn takes(&self, begin: u64, length: usize, most: u64) -> bool {
        let last = page(self.begin + self.length as u64 - 1);
        let whole = in_one_page(self.records[0].address, self.records[0].new.len());
        let next = last..=last + u64::from(page(self.begin) + most > last + 1);
        whole && in_one_page(begin, length) && next.contains(&page(begin))
    }

    /// Returns the bytes before its change; `pages` are those that have been changed.
    fn before(&self, program: &Program, pages: &mut BTreeSet<u64>) -> io::Result<Cow<'_, [u8]>> {
        let mut again = false;
        for page in page(self.begin)..=page(self.begin + self.length as u64 - 1) {
            again |= !pages.insert(page);
        }
        // Earlier changes may have changed the bytes in between.
        if !again && self.found.len() == self.length {
            return Ok(Cow::Borrowed(&self.found));
        }
        let mut before = vec![0; self.length];
        program.read(self.begin, &mut before)?;
        Ok(Cow::Owned(before))
    }
}

/// Divides bytes at the ends of pages.
fn pieces(begin: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let first = (PAGE_SIZE_U64 - begin % PAGE_SIZE_U64) as usize;
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    let behind = (begin + head.len() as u64..).step_by(PAGE_SIZE_U64 as usize);
    [(begin, head)].into_iter().chain(behind.zip(rest.chunks(PAGE_SIZE_U64 as usize)))
}

fn page(address: u64) -> u64 {
    address / PAGE_SIZE_U64
}

fn stretches<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Stretch<'r>> {
    joined(records, TOGETHER)
}

/// Joins successive records in the same page, or in the next one, up to this many pages.
fn joined<'r>(records: impl IntoIterator<Item = &'r Record>, most: u64) -> Vec<Stretch<'r>> {
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for record in records.into_iter().filter(|record| record.changes()) {
        let (begin, length) = (record.address, record.new.len());
        match stretches.last_mut().filter(|last| last.takes(begin, length, most)) {
            Some(last) => {
                let end = (last.begin + last.length as u64).max(begin + length as u64);
                last.begin = last.begin.min(begin);
                last.length = (end - last.begin) as usize;
                last.records.push(record);
            }
            None => stretches.push(Stretch::new(record)),
        }
    }
    stretches
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
        let stretches = stretches(&records);
        let addresses = |one: &Stretch<'_>| one.records.iter().map(|one| one.address).collect();
        stretches.iter().map(|one| (addresses(one), one.length)).collect()
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
        // What lies in two pages is alone.
        assert_eq!(joined_at(&[0x1000, 0x1ffe, 0x2010]).len(), 3);
    }

    #[test]
    fn bytes_are_divided_at_the_ends_of_pages() {
        let bytes = [7; 0x1020];
        let pieces: Vec<_> = pieces(0x1ff0, &bytes).map(|(at, part)| (at, part.len())).collect();
        assert_eq!(pieces, [(0x1ff0, 0x10), (0x2000, 0x1000), (0x3000, 0x10)]);
        assert_eq!(super::pieces(0x1ff0, &bytes[..3]).map(|(at, _)| at).collect::<Vec<_>>(), [
            0x1ff0
        ]);
    }
}
