//! Restartable sequences (rseq(2)): code that the kernel sends to its abort handler when a thread
//! is preempted, migrated or given a signal within it.
//!
//! The kernel compares addresses, so a sequence is one only where it is: a copy of it, or an
//! instruction of it that runs elsewhere, is not restarted. The descriptors lie in a section whose
//! name librseq and TCMalloc share (<https://github.com/compudj/librseq>,
//! <https://github.com/google/tcmalloc>); folly and older versions of librseq use the second name.
//! A file without sections is taken to have none.

use std::ops::Range;

use object::LittleEndian as LE;
use object::read::elf::SectionHeader;

use super::elf::Elf;

/// Names of the sections that hold descriptors.
const TABLES: [&str; 2] = ["__rseq_cs", "__rseq_table"];
/// Size in bytes of a descriptor (`struct rseq_cs` of `linux/rseq.h`): version, flags, then start,
/// length and abort handler of 8 bytes each.
const DESCRIPTOR: u64 = 32;
/// Size in bytes of the signature that the kernel checks before an abort handler.
const SIGNATURE: u64 = 4;

/// A sequence, by addresses of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Its instructions: from the first to the one that commits.
    pub addresses: Range<u64>,
    /// The abort handler.
    pub abort: u64,
}

impl Sequence {
    /// Returns the addresses of the signature that the kernel checks before the abort handler.
    pub fn signature(&self) -> Range<u64> {
        self.abort.saturating_sub(SIGNATURE)..self.abort
    }

    /// Whether code in these ranges holds some of it, or is its abort handler.
    pub fn touches(&self, code: &[Range<u64>]) -> bool {
        let Range { start, end } = self.addresses;
        let overlaps = |range: &Range<u64>| range.start < end && start < range.end;
        code.iter().any(|range| overlaps(range) || range.contains(&self.abort))
    }
}

/// Returns the addresses of all descriptors.
pub(super) fn descriptors(elf: &Elf) -> Vec<u64> {
    let found = TABLES.iter().filter_map(|name| elf.section(name));
    let within = |start: u64, length: usize| {
        let count = length as u64 / DESCRIPTOR;
        (0..count).filter_map(move |number| start.checked_add(number * DESCRIPTOR))
    };
    found.flat_map(|(section, bytes)| within(section.sh_addr(LE), bytes.len())).collect()
}
