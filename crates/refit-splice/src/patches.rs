//! Changing many places of a program while it stands still, such that it does not matter when refit is killed.
//!
//! The kernel writes to another process's memory page by page, and may stop between two pages when the writer is killed. So every write is
//! within a page, and whatever has been written up to then is code that the program can run:
//!
//! - a jump lies in one page ([`in_one_page`]), so it is there or it is not;
//! - records stand in the order in which they are written, and are undone in the reverse one: what a short jump leads to is there before
//!   the jump, and goes after it; of a function that is copied, what must change at once is in one page and changes last
//!   ([`crate::layout`]).
//!
//! Records that follow each other and are in the same page are read and written together, since each access costs a system call whatever
//! its length.

use crate::process::{Program, Refusal};

use crate::record::{PAGE, Record};

/// A part of a page with places that change.
struct Stretch<'r> {
    begin: u64,
    length: usize,
    records: Vec<&'r Record>,
    /// What is put where, from the beginning on.
    puts: Vec<(usize, &'r [u8])>,
}

/// Whether so many bytes from an address on are in one page.
pub(crate) fn in_one_page(address: u64, length: usize) -> bool {
    address / PAGE == (address + length as u64 - 1) / PAGE
}

/// What a place looks like now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// As before the change.
    Old,
    /// As after it.
    New,
    /// Somebody else has changed its first byte.
    Foreign,
    /// Something else, which does not lead to the patch area.
    Replaced,
    /// It is not mapped any more.
    Gone,
}

/// Changes that have been decided on, and not been made.
pub(crate) struct Change<'r> {
    stretches: Vec<Stretch<'r>>,
}

/// Decides on the changes that `wanted` makes of each place, which is as it is told now: the bytes to put there, or `None` to leave
/// it. They are made in the order of the records.
///
/// # Errors
/// What `wanted` says.
pub(crate) fn decide<'r, E: From<Refusal>>(
    program: &Program,
    records: impl IntoIterator<Item = &'r Record>,
    mut wanted: impl FnMut(&'r Record, Now) -> Result<Option<&'r [u8]>, E>,
) -> Result<Change<'r>, E> {
    let mut stretches = stretches(records);
    for stretch in &mut stretches {
        let mut found = vec![0; stretch.length];
        let readable = program.read(stretch.begin, &mut found).is_ok();
        for record in &stretch.records {
            let at = (record.address - stretch.begin) as usize;
            let now = match &found[at..at + record.new.len()] {
                _ if !readable => Now::Gone,
                // A short jump can come out as the one that stood there.
                bytes if bytes == record.old => Now::Old,
                bytes if bytes == record.new => Now::New,
                // A breakpoint over the first byte: what is put back there leads to the patch area.
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

impl Change<'_> {
    /// Makes all changes, or none.
    ///
    /// # Errors
    /// [`Refusal`]: the program's memory cannot be written.
    pub(crate) fn make(&self, program: &Program) -> Result<(), Refusal> {
        let mut done: Vec<(u64, Vec<u8>)> = Vec::new();
        for stretch in self.stretches.iter().filter(|stretch| !stretch.puts.is_empty()) {
            let mut before = vec![0; stretch.length];
            // Those before may have changed what lies between.
            let written = program.read(stretch.begin, &mut before).and_then(|()| {
                let mut after = before.clone();
                for &(at, bytes) in &stretch.puts {
                    after[at..at + bytes.len()].copy_from_slice(bytes);
                }
                program.write(stretch.begin, &after)
            });
            if let Err(source) = written {
                for (begin, before) in done.iter().rev() {
                    // What could be written a moment ago can be written back.
                    let _ = program.write(*begin, before);
                }
                let id = program.id();
                return Err(Refusal::System { id, what: "change its code", source });
            }
            done.push((stretch.begin, before));
        }
        Ok(())
    }
}

fn stretches<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<Stretch<'r>> {
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for record in records.into_iter().filter(|record| record.changes()) {
        let (begin, length) = (record.address, record.new.len());
        let whole = in_one_page(begin, length);
        match stretches.last_mut() {
            Some(last) if whole && last.begin / PAGE == begin / PAGE && last.length > 0 => {
                let end = (last.begin + last.length as u64).max(begin + length as u64);
                last.begin = last.begin.min(begin);
                last.length = (end - last.begin) as usize;
                last.records.push(record);
            }
            _ => stretches.push(Stretch { begin, length, records: vec![record], puts: Vec::new() }),
        }
    }
    stretches
}
