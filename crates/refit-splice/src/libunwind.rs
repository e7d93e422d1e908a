//! Registers patch areas with nongnu libunwind, as its *dynamic unwind info*
//! (`<libunwind-dynamic.h>`).
//!
//! That unwinder asks neither of the functions into which refit splices code
//! ([`Action::FindFrame`](crate::Action::FindFrame)). Before all else it searches a list, whose
//! entries name a range of addresses and an index of frame descriptions. An area has these entries:
//!
//! | entry | addresses | where |
//! |---|---|---|
//! | first | the code of the area | data |
//! | one for each springboard | its five bytes | tables |
//! | last | none | data |
//!
//! An entry has exactly the addresses that are described, because the first entry that contains an
//! address decides: no further one is asked. The list is linked in both directions. The program
//! writes only to the outer entries of an area, when it registers or cancels entries of its own. So
//! these two are in the page that is private to each process ([`crate::area`]), and all others are
//! linked when they are encoded, and never change.
//!
//! The list changes only while no thread runs. A thread that walks it has the address of an entry
//! in a register: its program counter is in libunwind ([`code`]), since the walk calls nothing. The
//! area stays mapped then. Afterwards the thread has found nothing, or a description of the frame
//! that it unwinds, which keeps the area mapped by itself.
//!
//! libunwind remembers by address how frames were unwound. Addresses of an area, and bytes that
//! become a springboard, mean something else after an installation or a removal, so both invalidate
//! what it remembers.

use std::ops::Range;

use crate::jump::JUMP;
use crate::process::{Program, Refusal};
use crate::record::Head;

/// Offset of [`Words`] in the data of an area, followed by the first and the last entry.
pub(crate) const AT: u64 = 3776;
/// Number of words: the list, and three for each [`Walker`].
const WORDS: usize = 1 + 3 * WALKERS;
/// Bytes of an entry (`unw_dyn_info_t`).
pub(crate) const ENTRY: usize = 88;
/// End of these entries.
pub(crate) const END: u64 = AT + (WORDS * 8 + 2 * ENTRY) as u64;
/// Offset of the pointer to the previous entry; that to the next one comes first.
const PREVIOUS: u64 = 8;
/// Offsets of the number of changes and of the first entry in the list (`unw_dyn_info_list_t`).
const GENERATION: u64 = 4;
const FIRST: u64 = 8;
/// The format of entries with an index as in `.eh_frame_hdr` (`UNW_INFO_FORMAT_REMOTE_TABLE`).
const REMOTE_TABLE: u64 = 2;
/// Longest list that is followed.
const LONGEST: usize = 1 << 20;

/// Maximum number of libraries that walk the list: `libunwind.so`, and `libunwind-x86_64.so`, which
/// also unwinds other processes.
pub const WALKERS: usize = 2;

/// The list of a program's libunwind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicList {
    /// Address of the list (`_U_dyn_info_list`).
    pub address: u64,
    /// Whether entries have a load offset, as from version 1.6 to 1.8.
    pub has_load_offset: bool,
    /// The libraries that walk it, at most [`WALKERS`].
    pub walkers: Vec<Walker>,
}

/// A library that walks the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walker {
    /// Address of the number whose change invalidates what it remembers (`cache_generation` of the
    /// local address space).
    pub generation: u64,
    /// Addresses that contain the code which reads entries.
    pub code: Range<u64>,
}

/// An index of frame descriptions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    /// Its address, which is that from which its entries count.
    pub(crate) address: u64,
    /// The address of the first entry of the index.
    pub(crate) entries: u64,
    pub(crate) count: u64,
}

/// The addresses of the outer entries of an area.
fn outer(head: &Head) -> (u64, u64) {
    let first = head.address + head.data + AT + WORDS as u64 * 8;
    (first, first + ENTRY as u64)
}

impl DynamicList {
    /// Encodes the entries of springboards, for the address `at`.
    pub(crate) fn springboards(&self, head: &Head, index: Index, at: u64, all: &[u64]) -> Vec<u8> {
        let (first, last) = outer(head);
        let entry = |number: usize| at + (number * ENTRY) as u64;
        let entries = all.iter().enumerate().flat_map(|(number, &springboard)| {
            let next = if number + 1 == all.len() { last } else { entry(number + 1) };
            let previous = if number == 0 { first } else { entry(number - 1) };
            let code = springboard..springboard + JUMP as u64;
            self.entry((next, previous), &code, index)
        });
        entries.collect()
    }

    /// Encodes an entry with these links.
    fn entry(&self, (next, previous): (u64, u64), code: &Range<u64>, index: Index) -> Vec<u8> {
        // No global pointer; the format; no load offset, where there is one; no name.
        let before = [next, previous, code.start, code.end, 0, REMOTE_TABLE];
        let nothing = if self.has_load_offset { 2 } else { 1 };
        let table = [index.address, index.count, index.entries];
        let words = before.into_iter().chain(std::iter::repeat_n(0, nothing)).chain(table);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.resize(ENTRY, 0);
        bytes
    }

    /// Writes the outer entries of an area whose springboards have `count` entries from
    /// `springboards` on, and what a later process has to know.
    pub(crate) fn describe(
        &self,
        program: &Program,
        head: &Head,
        index: Index,
        (springboards, count): (u64, usize),
    ) -> Result<(), Refusal> {
        let walker = |one: &Walker| [one.generation, one.code.start, one.code.end];
        let words = self.walkers.iter().take(WALKERS).flat_map(walker);
        let mut bytes: Vec<u8> =
            std::iter::once(self.address).chain(words).flat_map(u64::to_le_bytes).collect();
        bytes.resize(WORDS * 8, 0);
        let (first, last) = outer(head);
        let next = if count == 0 { last } else { springboards };
        bytes.extend(self.entry((next, 0), &head.code_range(), index));
        let end = springboards + (count * ENTRY) as u64;
        let previous = if count == 0 { first } else { end - ENTRY as u64 };
        bytes.extend(self.entry((0, previous), &(0..0), index));
        program.write(head.address + head.data + AT, &bytes).map_err(|source| Refusal::System {
            id: program.id(),
            what: "write to the patch area",
            source,
        })
    }
}

/// Adds an area that is described to the list of a stopped program. A list that cannot be changed
/// is left alone: the program is spliced as well.
pub(crate) fn register(program: &Program, head: &Head) {
    let Some((list, _)) = words(program, head) else { return };
    let (first, last) = outer(head);
    let Ok(next) = program.word(list + FIRST) else { return };
    let put = |at: u64, word: u64| program.write(at, &word.to_le_bytes());
    // The entries lead back to the list before it leads to them. An entry of the program that does
    // not lead back yet, because refit was killed, takes ours out with itself: they are not found.
    let linked = put(last, next).and_then(|()| put(list + FIRST, first));
    if linked.is_ok() && next != 0 {
        // It was just read from the list.
        let _ = put(next + PREVIOUS, last);
    }
    invalidate(program, head);
}

/// Removes an area from the list of a stopped program, if it is there.
pub(crate) fn unregister(program: &Program, head: &Head) {
    let Some((list, _)) = words(program, head) else { return };
    let (first, last) = outer(head);
    // Addresses of the pointers to entries: the one in the list, then those in entries.
    let next = |at: &u64| program.word(*at).ok().filter(|&entry| entry != 0);
    let mut pointers = std::iter::successors(Some(list + FIRST), next).take(LONGEST);
    let Some(pointer) = pointers.find(|at| next(at) == Some(first)) else { return };
    let Ok(after) = program.word(last) else { return };
    let put = |at: u64, word: u64| program.write(at, &word.to_le_bytes());
    let previous = if pointer == list + FIRST { 0 } else { pointer };
    if put(pointer, after).is_ok() && after != 0 {
        // It was just read from the list.
        let _ = put(after + PREVIOUS, previous);
    }
    invalidate(program, head);
}

/// Returns the code that walks the list of which an area is part.
pub(crate) fn code(program: &Program, head: &Head) -> Vec<Range<u64>> {
    let walkers = words(program, head).map(|(_, walkers)| walkers).unwrap_or_default();
    walkers.into_iter().map(|walker| walker.code).collect()
}

/// Has libunwind forget how it has unwound frames. What is no longer mapped remembers nothing.
fn invalidate(program: &Program, head: &Head) {
    let Some((list, walkers)) = words(program, head) else { return };
    let numbers = walkers.iter().map(|walker| walker.generation).chain([list + GENERATION]);
    for at in numbers {
        let mut number = [0; 4];
        if program.read(at, &mut number).is_ok() {
            let next = u32::from_le_bytes(number).wrapping_add(1);
            let _ = program.write(at, &next.to_le_bytes());
        }
    }
}

/// Reads the address of the list and its walkers; `None` if the area is not described.
fn words(program: &Program, head: &Head) -> Option<(u64, Vec<Walker>)> {
    let mut bytes = [0; WORDS * 8];
    program.read(head.address + head.data + AT, &mut bytes).ok()?;
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let words: Vec<u64> = words.collect();
    let walker = |words: &[u64]| Walker { generation: words[0], code: words[1]..words[2] };
    let walkers = words[1..].chunks_exact(3).filter(|words| words[0] != 0).map(walker);
    (words[0] != 0).then(|| (words[0], walkers.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the entries from one on, each as its addresses and the index that it names.
    fn chain(list: &DynamicList, head: &Head, all: &[u64]) -> Vec<(Range<u64>, [u64; 3])> {
        let index = Index { address: 0x7000_1000, entries: 0x7000_100c, count: 9 };
        let at = 0x7000_2000;
        let bytes = list.springboards(head, index, at, all);
        let (first, last) = outer(head);
        let (mut previous, mut next, mut found) = (first, at, Vec::new());
        while next != last {
            let words = bytes[(next - at) as usize..][..ENTRY].as_chunks::<8>().0;
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            assert_eq!((words[1], words[5]), (previous, REMOTE_TABLE));
            let table = if list.has_load_offset { 8 } else { 7 };
            found.push((words[2]..words[3], [words[table], words[table + 1], words[table + 2]]));
            (previous, next) = (next, words[0]);
        }
        found
    }

    #[test]
    fn each_springboard_has_an_entry_between_the_outer_ones() {
        let head = Head {
            address: 0x7000_0000,
            tables: 0x1000,
            code: 0x3000,
            data: 0x8000,
            end: 0x2_0000,
            records: 0,
            session: (0, 0),
            finders: 0,
            generation: 0,
            calls: false,
            versions: false,
        };
        let (_, last) = outer(&head);
        // The outer entries are in the page that is private to each process.
        assert!(last + ENTRY as u64 <= head.address + head.data + 4096);
        for has_load_offset in [false, true] {
            let list = DynamicList { address: 0x1234, has_load_offset, walkers: Vec::new() };
            let table = [0x7000_1000, 9, 0x7000_100c];
            let wanted = [(0x100..0x105, table), (0x80..0x85, table), (0x200..0x205, table)];
            assert_eq!(chain(&list, &head, &[0x100, 0x80, 0x200]), wanted);
        }
    }
}
