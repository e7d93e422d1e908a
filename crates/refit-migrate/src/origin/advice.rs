//! What advice about memory does where private memory has become frames: the kernel is to say what it would say of private memory, and refit
//! follows what it did.
//!
//! | advice | of frames | effect |
//! |---|---|---|
//! | `DONTNEED`, `DONTNEED_LOCKED` | judged by the kernel as it is | frames show again what nobody has written to |
//! | `FREE` | judged as `DONTNEED`; `EINVAL` where they were a file's | the same: the contents may go at once |
//! | `REMOVE` | `EINVAL`; `EACCES` where they were a file's | none: the kernel would take frames away |
//! | `WIPEONFORK`, `KEEPONFORK` | they become private memory before | the kernel's |
//! | `DONTFORK`, `DOFORK`, `DONTDUMP`, `DODUMP`, `NOHUGEPAGE`, `HUGEPAGE` | as it is | the kernel's, and given again where the mapping is replaced |
//! | any other | as it is | the kernel's |
//!
//! The kernel goes from mapping to mapping, in order, passes over what is not mapped (`ENOMEM` in the end), and stops at the first that
//! refuses (madvise(2)). So does this, with a call for each part that is frames, and one for what is between two.

use std::ops::Range;

use crate::syscalls::DONTNEED_LOCKED;

/// What an advice does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// What it does to the mapping; nothing to what is in the frames.
    OfMapping,
    /// The contents go, if the kernel permits this advice.
    Drops(i32),
    /// Private memory is refused it.
    Refused,
}

/// By its number; whether that is of a mapping of a file does not matter but for the error.
pub(crate) fn effect(advice: i32) -> Effect {
    match advice {
        libc::MADV_DONTNEED | DONTNEED_LOCKED => Effect::Drops(advice),
        libc::MADV_FREE => Effect::Drops(libc::MADV_DONTNEED),
        libc::MADV_REMOVE => Effect::Refused,
        _ => Effect::OfMapping,
    }
}

/// What a mapping of a file that was private says to an advice that it has another answer to.
pub(crate) fn error_of_file(advice: i32) -> Option<i32> {
    match advice {
        libc::MADV_FREE => Some(libc::EINVAL),
        libc::MADV_REMOVE => Some(libc::EACCES),
        _ => None,
    }
}

/// The whole pages of a call that the kernel does not refuse for its arguments alone; `None`: it does, or has nothing to do.
pub(crate) fn pages(start: u64, length: u64) -> Option<Range<u64>> {
    const PAGE: u64 = 4096;
    let length = length.checked_next_multiple_of(PAGE)?;
    let end = start.checked_add(length)?;
    (start.is_multiple_of(PAGE) && start < end).then_some(start..end)
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
