//! Slack: bytes of a program's code that never run, namely the zeros after the last instruction of
//! a mapping, up to the end of its last page.
//!
//! Code that refit needs in a program for the length of a call is written there
//! ([`crate::trace::Tracee::call_returning`]), and so is the code that completes a call which a
//! stop has cut short ([`crate::restart`]). The mapping stays as it is; the first write gives the
//! process its own copy of the page. `[vdso]` is tried first: every program has it, and no tool
//! compares it with a file.

use std::ops::Range;

use crate::foreign::Memory;
use crate::maps::Mapping;

/// Bytes of a slack.
pub const SIZE: u64 = 1024;
/// The first bytes of a slack that is in use.
pub const MARK: [u8; 16] = *b"refit slack 1\0\0\0";

/// Returns the slacks of a program in the order in which to try them: the last [`SIZE`] bytes of
/// each mapping, if they are all zeros or in use by refit.
pub fn all<'a>(
    memory: &'a Memory,
    mappings: &'a [Mapping],
) -> impl Iterator<Item = Range<u64>> + 'a {
    candidates(mappings).filter(move |range| {
        let mut bytes = [0; SIZE as usize];
        if memory.read(range.start, &mut bytes).is_err() {
            return false;
        }
        // There must be a distance to the last instruction, whose own last bytes may be zeros.
        let clear = bytes.iter().all(|byte| *byte == 0) && is_clear_before(memory, range.start);
        clear || bytes.starts_with(&MARK)
    })
}

/// Returns the slacks that refit uses.
pub fn in_use<'a>(
    memory: &'a Memory,
    mappings: &'a [Mapping],
) -> impl Iterator<Item = Range<u64>> + 'a {
    candidates(mappings).filter(move |range| {
        let mut bytes = [0; MARK.len()];
        memory.read(range.start, &mut bytes).is_ok() && bytes == MARK
    })
}

fn candidates(mappings: &[Mapping]) -> impl Iterator<Item = Range<u64>> + '_ {
    let vdso = mappings.iter().filter(|mapping| is_vdso(mapping));
    let files = mappings.iter().filter(|mapping| !is_vdso(mapping) && mapping.file.1 != 0);
    let private = |mapping: &&Mapping| mapping.readable && !mapping.writable && !mapping.shared;
    let candidates = vdso.chain(files).filter(|mapping| mapping.executable).filter(private);
    candidates.filter_map(|mapping| Some(mapping.range.end.checked_sub(SIZE)?..mapping.range.end))
}

fn is_clear_before(memory: &Memory, address: u64) -> bool {
    /// Bytes of the longest instruction, plus one.
    const APART: usize = 16;
    let mut before = [1; APART];
    memory.read(address - APART as u64, &mut before).is_ok() && before == [0; APART]
}

fn is_vdso(mapping: &Mapping) -> bool {
    mapping.name.as_os_str() == "[vdso]"
}
