//! The consequences of a call that changes the memory for the nodes that have some of it mapped
//! (Katz 2014, §5.7.5).

use std::io;
use std::ops::Range;

use refit_tracer::placement::TOP;

use crate::origin::advice::{Effect, effect};
use crate::page::PAGE_SIZE;
use crate::syscalls::MAPPED;

/// The steps before a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Other nodes invalidate these ranges.
    pub(crate) invalidate: Vec<Range<u64>>,
    /// The ranges that become private memory again: the kernel can move only that.
    pub(crate) make_private: Vec<Range<u64>>,
    /// Whether there may be advice about memory from now on.
    pub(crate) advised: bool,
}

/// Returns what must be done before a call, by its number and arguments; `heap_end` returns where
/// the heap ends.
pub(crate) fn plan(
    number: i64,
    arguments: &[u64; 6],
    heap_end: impl FnOnce() -> io::Result<u64>,
) -> io::Result<Plan> {
    let mut plan = Plan::default();
    let range = range(arguments[0], arguments[1]);
    match number {
        libc::SYS_mmap => {
            if arguments[3] & libc::MAP_FIXED as u64 != 0 {
                plan.invalidate.push(range);
            }
            // Only the kernel knows of mappings that grow, or may be dropped.
            let kinds = MAPPED.iter().filter(|(_, kind)| *kind != libc::MAP_FIXED as u64);
            plan.advised = kinds.into_iter().any(|(mask, kind)| arguments[3] & mask == *kind);
        }
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
            plan.invalidate.push(range)
        }
        libc::SYS_mremap => {
            plan.invalidate.push(range.clone());
            if arguments[3] & libc::MREMAP_FIXED as u64 != 0 {
                plan.invalidate.push(self::range(arguments[4], arguments[2]));
            }
            plan.make_private.push(range);
        }
        libc::SYS_brk => {
            let (wanted, end) =
                (arguments[0].min(TOP).div_ceil(PAGE_SIZE) * PAGE_SIZE, heap_end()?);
            if wanted > 0 && wanted < end {
                plan.invalidate.push(wanted..end.div_ceil(PAGE_SIZE) * PAGE_SIZE);
            }
        }
        libc::SYS_madvise => match (arguments[2] as u32).cast_signed() {
            // Of private memory only.
            libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => {
                plan.invalidate.push(range.clone());
                plan.make_private.push(range);
                plan.advised = true;
            }
            advice => plan.advised = effect(advice) == Effect::OfMapping,
        },
        // It consists of several of those, or is not about this memory.
        libc::SYS_process_madvise => {}
        // The caller names the memory in an argument of its own.
        libc::SYS_ioctl => plan.advised = true,
        // Sealed memory stays what it is.
        libc::SYS_mseal => {
            plan.invalidate.push(range.clone());
            plan.make_private.push(range);
        }
        _ => plan.invalidate.push(0..TOP),
    }
    Ok(plan)
}

/// Returns the range in which nothing is mapped any more after a call, unless something else was
/// mapped there.
pub(crate) fn unused(number: i64, arguments: &[u64; 6]) -> Option<Range<u64>> {
    (number == libc::SYS_munmap).then(|| range(arguments[0], arguments[1]))
}

/// Returns whether only the thread can make a call, since it names a descriptor.
pub(crate) fn by_shadow(number: i64, arguments: &[u64; 6]) -> bool {
    match number {
        libc::SYS_mmap => arguments[3] & libc::MAP_ANONYMOUS as u64 == 0,
        libc::SYS_process_madvise | libc::SYS_ioctl => true,
        _ => false,
    }
}

/// Returns the whole pages of a range.
fn range(start: u64, length: u64) -> Range<u64> {
    let end = start.saturating_add(length).min(TOP);
    start.min(TOP)..end.div_ceil(PAGE_SIZE) * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_there_is_invalidated() {
        let end = || Ok(0x9000);
        let plan = |number, arguments| plan(number, &arguments, end).expect("a plan");
        assert_eq!(plan(libc::SYS_brk, [0; 6]), Plan::default());
        assert_eq!(plan(libc::SYS_brk, [0xa000, 0, 0, 0, 0, 0]), Plan::default());
        let invalidated = |number, arguments| {
            let plan = plan(number, arguments);
            plan.invalidate.first().cloned().filter(|_| plan.invalidate.len() == 1)
        };
        let at = |first, second| [first, second, 0, 0, 0, 0];
        assert_eq!(invalidated(libc::SYS_brk, at(0x4000, 0)), Some(0x4000..0x9000));
        assert_eq!(invalidated(libc::SYS_munmap, at(0x4000, 1)), Some(0x4000..0x5000));
        assert_eq!(invalidated(libc::SYS_shmdt, at(0x4000, 0)), Some(0..TOP));
    }

    #[test]
    fn no_address_is_too_large() {
        let end = || Ok(0);
        let all = [u64::MAX; 6];
        for number in crate::syscalls::CHANGES {
            plan(number, &all, end).expect("a plan");
        }
    }
}
