//! Changes many places of a stopped program so that refit may be killed at any moment.
//!
//! The kernel writes to the memory of another process page by page, and may stop between two pages
//! when the writer is killed. So every write is within one page, and the program can run with any
//! prefix of the writes done:
//!
//! - a jump lies within one page ([`in_one_page`]), so it is written wholly or not at all;
//! - records are written in their order and undone in reverse order: the target of a short jump is
//!   written before the jump and removed after it. The bytes of a copied function that have to
//!   change at once are in one page, and change last ([`crate::layout`]).
//!
//! Successive records in the same page are read and written together, since each access costs a
//! system call, whatever its length.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;

use refit_sys::memory::PAGE_SIZE_U64;

use crate::process::{Program, Refusal};

use crate::record::Record;

/// A part of a page, with the places in it that change.
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
    address / PAGE_SIZE_U64 == (address + length as u64 - 1) / PAGE_SIZE_U64
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
    let mut stretches = stretches(records);
    for stretch in &mut stretches {
        stretch.found = vec![0; stretch.length];
        let found = &mut stretch.found;
        let readable = program.read(stretch.begin, found).is_ok();
        for record in &stretch.records {
            let at = (record.address - stretch.begin) as usize;
            let now = match &found[at..at + record.new.len()] {
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
        if !readable {
            stretch.found.clear();
        }
    }
    Ok(Change { stretches })
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
                program.write(stretch.begin, &after).map(|()| before)
            });
            match written {
                Ok(before) => done.push((stretch.begin, before)),
                Err(source) => {
                    for (begin, before) in done.iter().rev() {
                        // Memory that was writable a moment ago can be restored.
                        let _ = program.write(*begin, before);
                    }
                    let id = program.id();
                    return Err(Refusal::System { id, what: "change its code", source });
                }
            }
        }
        Ok(())
    }
}

impl<'r> Stretch<'r> {
    fn new(record: &'r Record) -> Self {
        let (begin, length) = (record.address, record.new.len());
        Self { begin, length, found: Vec::new(), records: vec![record], puts: Vec::new() }
    }

    /// Returns the bytes before its change; `pages` are those that have been changed.
    fn before(&self, program: &Program, pages: &mut BTreeSet<u64>) -> io::Result<Cow<'_, [u8]>> {
        let last = (self.begin + self.length as u64 - 1) / PAGE_SIZE_U64;
        let mut again = false;
        for page in self.begin / PAGE_SIZE_U64..=last {
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

fn stretches<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Stretch<'r>> {
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for record in records.into_iter().filter(|record| record.changes()) {
        let (begin, length) = (record.address, record.new.len());
        let whole = in_one_page(begin, length);
        match stretches.last_mut() {
            Some(last)
                if whole
                    && last.begin / PAGE_SIZE_U64 == begin / PAGE_SIZE_U64
                    && last.length > 0 =>
            {
                let end = (last.begin + last.length as u64).max(begin + length as u64);
                last.begin = last.begin.min(begin);
                last.length = (end - last.begin) as usize;
                last.records.push(record);
            }
            _ => stretches.push(Stretch::new(record)),
        }
    }
    stretches
}
