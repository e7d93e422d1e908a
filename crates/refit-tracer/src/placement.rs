//! Where in a program's memory refit puts what is its own: between the program and its libraries, wherever they are.

use refit_sys::maps::Mapping;

/// The first address that is tried, which is free in most programs: none is there, nor what it
/// maps, unless it asks for that.
pub const FIRST: u64 = 0x6000_0000_0000;
/// The end of what programs can have (`TASK_SIZE`), on processors with four levels of tables.
pub const TOP: u64 = 0x7fff_ffff_f000;

/// Returns an address at which so many bytes are free, which neither the program nor the kernel takes for them unless asked for: a program may count on
/// what it has given back, or what a child has not got (`MADV_DONTFORK`), to be free.
pub fn place(mappings: &[Mapping], length: u64) -> u64 {
    const STEP: usize = 1 << 24;
    let taken =
        |at: u64| mappings.iter().any(|one| one.range.start < at + length && at < one.range.end);
    (FIRST..TOP).step_by(STEP).find(|&at| !taken(at)).unwrap_or(FIRST)
}
