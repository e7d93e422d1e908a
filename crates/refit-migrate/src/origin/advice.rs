//! Advice (madvise(2)) about private memory that has become frames. The call returns what it would
//! return for private memory, and has the same effect on the frames.
//!
//! | advice | result for frames | effect |
//! |---|---|---|
//! | `DONTNEED`, `DONTNEED_LOCKED` | the kernel's | frames are as before the first write |
//! | `FREE` | as for `DONTNEED`; `EINVAL` if they were a file's | the same |
//! | `REMOVE` | `EINVAL`; `EACCES` if they were a file's | none: frames would be lost |
//! | `WIPEONFORK`, `KEEPONFORK` | they become private memory first | the kernel's |
//! | `DONTFORK`, `DOFORK` | the kernel's | the kernel's, kept with the mapping |
//! | `DONTDUMP`, `DODUMP` | the kernel's | the kernel's, kept with the mapping |
//! | `NOHUGEPAGE`, `HUGEPAGE` | the kernel's | the kernel's, kept with the mapping |
//! | any other | the kernel's | the kernel's |
//!
//! *Kept with the mapping*: refit repeats the advice when it replaces the mapping. `FREE` may drop
//! the contents of frames at once.
//!
//! The kernel visits the mappings of the range in order. It skips unmapped addresses (and returns
//! `ENOMEM` in the end), and stops at the first mapping that refuses the advice. This module's
//! callers do the same, with one call for each part that is frames, and one for the memory between
//! two such parts.

use std::ops::Range;

use crate::page::PAGE_SIZE;
use crate::syscalls::DONTNEED_LOCKED;

/// The effect of an advice on frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The advice concerns the mapping, and not what is in the frames.
    OfMapping,
    /// The advice drops the contents, if the kernel permits this advice.
    Drops(i32),
    /// The kernel refuses it for private memory.
    Refused,
}

/// Returns the effect of an advice, by its number. Whether the mapping was one of a file matters
/// only for the error.
pub(crate) fn effect(advice: i32) -> Effect {
    match advice {
        libc::MADV_DONTNEED | DONTNEED_LOCKED => Effect::Drops(advice),
        libc::MADV_FREE => Effect::Drops(libc::MADV_DONTNEED),
        libc::MADV_REMOVE => Effect::Refused,
        _ => Effect::OfMapping,
    }
}

/// Returns the error for a private mapping of a file, where that differs.
pub(crate) fn error_of_file(advice: i32) -> Option<i32> {
    match advice {
        libc::MADV_FREE => Some(libc::EINVAL),
        libc::MADV_REMOVE => Some(libc::EACCES),
        _ => None,
    }
}

/// Returns the whole pages of a call, or `None` if the kernel refuses its arguments, or has nothing
/// to do.
pub(crate) fn pages(start: u64, length: u64) -> Option<Range<u64>> {
    let length = length.checked_next_multiple_of(PAGE_SIZE)?;
    let end = start.checked_add(length)?;
    (start.is_multiple_of(PAGE_SIZE) && start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_at_once_is_no_range() {
        assert_eq!(pages(0x1000, 1), Some(0x1000..0x2000));
        assert_eq!(pages(0x1000, 0x1001), Some(0x1000..0x3000));
        for (start, length) in
            [(0x1001, 4096), (0x1000, 0), (0x1000, u64::MAX), (0x3000, 0u64.wrapping_sub(0x3000))]
        {
            assert_eq!(pages(start, length), None, "{start:#x}, {length:#x}");
        }
    }

    #[test]
    fn only_what_drops_contents_drops_frames() {
        let drops: Vec<i32> =
            (0..200).filter(|&one| matches!(effect(one), Effect::Drops(_))).collect();
        assert_eq!(drops, [libc::MADV_DONTNEED, libc::MADV_FREE, DONTNEED_LOCKED]);
        assert_eq!(effect(libc::MADV_REMOVE), Effect::Refused);
    }
}
