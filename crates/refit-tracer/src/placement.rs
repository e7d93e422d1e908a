//! Where in a program's memory refit puts its own: between the program and its libraries, wherever
//! they are.

use refit_sys::maps::Mapping;

/// The first address that is tried. It is free in most programs: neither the program nor its
/// mappings are there, unless it asks for that.
pub const FIRST: u64 = 0x6000_0000_0000;
/// The end of a program's address space (`TASK_SIZE`), on processors with four levels of page
/// tables.
pub const TOP: u64 = 0x7fff_ffff_f000;

/// Returns an address at which `length` bytes are free, and where neither the program nor the
/// kernel puts anything unless asked for: a program may rely on memory that it has unmapped, or
/// that a child did not inherit (`MADV_DONTFORK`), being free.
pub fn place(mappings: &[Mapping], length: u64) -> u64 {
    const STEP: usize = 1 << 24;
    let taken =
        |at: u64| mappings.iter().any(|one| one.range.start < at + length && at < one.range.end);
    (FIRST..TOP).step_by(STEP).find(|&at| !taken(at)).unwrap_or(FIRST)
}
