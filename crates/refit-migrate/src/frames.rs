//! The frames of a group: one memfd, in which a page's offset is its address.

use std::ffi::CStr;
use std::io;
use std::ops::Range;

use refit_sys::maps::{self, Kind, Mapping};

/// The name of the memfd.
pub(crate) const NAME: &CStr = c"refit-frames";

/// Returns whether a mapping shows frames at the addresses where they belong.
pub(crate) fn is_frames(mapping: &Mapping) -> bool {
    mapping.shared
        && mapping.kind() == Kind::Memfd
        && mapping.name.as_os_str() == "/memfd:refit-frames"
        && mapping.offset == mapping.range.start
}

/// Returns the mappings of frames in a range of a process, cut to the range.
pub(crate) fn within(process: u32, range: &Range<u64>) -> io::Result<Vec<Mapping>> {
    let cut = |mut mapping: Mapping| {
        mapping.range.start = mapping.range.start.max(range.start);
        mapping.range.end = mapping.range.end.min(range.end);
        mapping
    };
    let all = maps::of(process)?.into_iter().filter(is_frames).map(cut);
    Ok(all.filter(|mapping| !mapping.range.is_empty()).collect())
}

/// Returns the access that a mapping permits (`PROT_*`).
pub(crate) fn access(mapping: &Mapping) -> u32 {
    let bit = |permitted: bool, bit: i32| if permitted { bit.cast_unsigned() } else { 0 };
    bit(mapping.readable, libc::PROT_READ)
        | bit(mapping.writable, libc::PROT_WRITE)
        | bit(mapping.executable, libc::PROT_EXEC)
}
