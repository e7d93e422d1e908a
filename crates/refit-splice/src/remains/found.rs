//! Finds the patch areas in a program.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use refit_sys::maps::Mapping;
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::patch_area::is_area;

use crate::indices;
use crate::moving::DISPLACEMENT;
use crate::process::{Program, Refusal};
use crate::record::{Contents, Head, Record};

/// End of the addresses of programs.
const USER: u64 = 1 << 47;

/// A patch area found in a program.
#[derive(Debug)]
pub struct Remains {
    pub(crate) head: Head,
    pub(crate) records: Vec<Record>,
    /// The file of the area, by device and inode.
    pub(super) file: (u64, u64),
    /// The originals of copied instructions, by the addresses of the copies, once they are needed.
    pub(super) back: OnceLock<BTreeMap<u64, u64>>,
}

/// Finds the patch areas in a program, in the order in which they are taken out.
///
/// # Errors
/// [`Refusal`]: the program has ended.
pub fn find(program: &Program) -> Result<Vec<Remains>, Refusal> {
    let mappings = program.mappings()?;
    let found = mappings.iter().filter_map(|mapping| Remains::at(program, mapping));
    let mut found: Vec<Remains> = found.collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.head.generation));
    Ok(found)
}

/// Finds them again: those that are as they were found before are not read again. An area has the
/// same records as long as it has the same head.
pub(super) fn find_again(
    program: &Program,
    known: &[Arc<Remains>],
) -> Result<Vec<Arc<Remains>>, Refusal> {
    let mappings = program.mappings()?;
    let found = mappings.iter().filter_map(|mapping| {
        let same = known.iter().find(|one| one.is_still(program, mapping)).cloned();
        same.or_else(|| Remains::at(program, mapping).map(Arc::new))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.head.generation));
    Ok(found)
}

/// Returns the first page of an area that is mapped at this address, with this number of records,
/// at most 2,048. For fuzzing.
#[doc(hidden)]
pub fn first_page(address: u64, records: u64) -> Vec<u8> {
    let (tables, code, data, end) = (0x4_0000, 0x6_0000, 0x8_0000, 0x10_0000);
    let (session, finders, generation) = ((0, 0), 0, 0);
    let contents = Contents::Arrangement;
    let head =
        Head { address, tables, code, data, end, records, session, finders, generation, contents };
    let mut page = vec![0; PAGE_SIZE_U64 as usize];
    page[Head::AT as usize..][..Head::BYTES].copy_from_slice(&head.to_bytes());
    page
}

/// Whether a patch area begins with this mapping.
fn begins(mapping: &Mapping) -> bool {
    is_area(mapping) && mapping.offset == 0 && !mapping.writable
}

impl Remains {
    /// Returns the patch area that begins with this mapping.
    fn at(program: &Program, mapping: &Mapping) -> Option<Self> {
        if !begins(mapping) {
            return None;
        }
        Self::parse(&mapping.range, mapping.file, |address, into| program.read(address, into))
    }

    /// Whether it is the area that begins with this mapping.
    fn is_still(&self, program: &Program, mapping: &Mapping) -> bool {
        let own = (self.head.address, self.file) == (mapping.range.start, mapping.file);
        let mut bytes = [0; Head::BYTES];
        own && begins(mapping)
            && program.read(self.head.address + Head::AT, &mut bytes).is_ok()
            && bytes == self.head.to_bytes()
    }

    /// Parses the patch area whose head and records are mapped at these addresses of a program.
    /// Nothing that `read` returns is trusted: it is the program's memory.
    #[doc(hidden)]
    pub fn parse(
        mapped: &Range<u64>,
        file: (u64, u64),
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> Option<Self> {
        let mut bytes = [0; Head::BYTES];
        read(mapped.start + Head::AT, &mut bytes).ok()?;
        let head = Head::from_bytes(&bytes).filter(|head| head.address == mapped.start)?;
        if head.code > mapped.end - mapped.start {
            return None;
        }
        // A copy outside of the area's code makes the record invalid.
        let code = head.code_range();
        let sound = |record: &Record| {
            let copies = record.copies.iter().all(|&(_, copy)| code.contains(&copy));
            copies && record.address < USER && record.old.len() == record.new.len()
        };
        // Reads page by page: an invalid record ends it, however many the head promised.
        let mut records = Vec::new();
        let mut left = head.records as usize;
        let mut at = head.address + PAGE_SIZE_U64;
        while left > 0 {
            let mut page = [0; PAGE_SIZE_U64 as usize];
            let some = left.min(page.len() / Record::BYTES);
            read(at, &mut page[..some * Record::BYTES]).ok()?;
            let (texts, _) = page[..some * Record::BYTES].as_chunks::<{ Record::BYTES }>();
            for text in texts {
                records.push(Record::from_bytes(text).filter(sound)?);
            }
            left -= some;
            at += PAGE_SIZE_U64;
        }
        Some(Self { head, records, file, back: OnceLock::new() })
    }

    /// Whether its records are immediates that have been replaced, and it has no code.
    pub(crate) fn holds_immediates(&self) -> bool {
        self.head.contents == Contents::Immediates
    }

    /// Lists other areas in this one, unless it is one of them, or has no code that looks there.
    pub(crate) fn list(&self, program: &Program, heads: &[Head]) -> Result<(), Refusal> {
        let own = heads.iter().any(|head| head.address == self.head.address);
        if own || !self.head.has_code() { Ok(()) } else { indices::add(program, &self.head, heads) }
    }

    /// Whether its code makes calls itself: it is of an arrangement of copies or of versions, which
    /// stay in the program when probes are taken out.
    pub fn makes_calls(&self) -> bool {
        self.head.calls()
    }

    /// Whether it has versions of functions ([`Versions`](crate::Versions)).
    pub fn has_versions(&self) -> bool {
        self.head.contents == Contents::Versions
    }

    /// Returns the changes of calls that lead to its versions.
    pub(crate) fn redirected(&self) -> impl Iterator<Item = &Record> {
        let calls = |record: &&Record| !record.is_place() && record.new.len() == DISPLACEMENT;
        self.records.iter().filter(calls).filter(|_| self.has_versions())
    }

    /// Returns the records whose changes are there now.
    pub(crate) fn in_place<'r>(
        &'r self,
        program: &'r Program,
    ) -> impl Iterator<Item = &'r Record> + 'r {
        self.records.iter().filter(|record| {
            let mut now = vec![0; record.new.len()];
            program.read(record.address, &mut now).is_ok() && now == record.new
        })
    }

    /// Returns the addresses of the sites whose code is changed now.
    pub fn entries(&self, program: &Program) -> Vec<u64> {
        let places = self.in_place(program).filter(|record| record.is_place());
        places.map(|record| record.address).collect()
    }

    /// Returns the bytes of its code, with some room behind it.
    pub fn code_bytes(&self) -> u64 {
        self.head.data - self.head.code
    }

    /// Returns the number of sites that the area's records change.
    pub fn sites(&self) -> usize {
        self.records.iter().filter(|record| record.is_place()).count()
    }

    /// Returns the number of its sites whose code is changed now: an area may have been taken out
    /// that could not be unmapped.
    pub fn entered(&self, program: &Program) -> usize {
        self.entries(program).len()
    }

    /// Returns the addresses of copied instructions, if control comes to the copies.
    pub(crate) fn copied(&self, program: &Program) -> impl Iterator<Item = u64> + '_ {
        let (entered, finders) = (self.entered(program) > 0, self.head.finders());
        let records = self.records.iter().filter(move |record| entered && !record.changes());
        let copies = records.flat_map(|record| &record.copies);
        copies.filter(move |(_, copy)| !finders.contains(copy)).map(|&(from, _)| from)
    }
}

#[cfg(test)]
#[test]
fn what_is_fuzzed_is_read_beyond_its_head() {
    let page = first_page(1 << 20, 0);
    let read = |_: u64, into: &mut [u8]| {
        into.copy_from_slice(&page[Head::AT as usize..][..Head::BYTES]);
        Ok(())
    };
    assert!(Remains::parse(&(1 << 20..1 << 30), (1, 2), read).is_some());
}
