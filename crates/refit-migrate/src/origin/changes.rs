//! What a call that changes the memory means to those who have some of it mapped (Katz 2014, §5.7.5).

use std::io;
use std::ops::Range;

use refit_tracer::placement::TOP;

use crate::origin::advice::{Effect, effect};
use crate::syscalls::MAPPED;

/// What has to be done before a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Others forget it.
    pub(crate) forget: Vec<Range<u64>>,
    /// It becomes private memory again: only so the kernel can move it.
    pub(crate) keep: Vec<Range<u64>>,
    /// There is advice about memory from now on.
    pub(crate) advised: bool,
}

/// What a call, by its number and arguments, asks for; `heap_end` tells where the heap ends.
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
                plan.forget.push(range);
            }
            // Of what grows, or may be dropped, only the kernel tells.
            let kinds = MAPPED.iter().filter(|(_, kind)| *kind != libc::MAP_FIXED as u64);
            plan.advised = kinds.into_iter().any(|(mask, kind)| arguments[3] & mask == *kind);
        }
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => plan.forget.push(range),
        libc::SYS_mremap => {
            plan.forget.push(range.clone());
            if arguments[3] & libc::MREMAP_FIXED as u64 != 0 {
                plan.forget.push(self::range(arguments[4], arguments[2]));
            }
            plan.keep.push(range);
        }
        libc::SYS_brk => {
            let (wanted, end) = (arguments[0].min(TOP).div_ceil(4096) * 4096, heap_end()?);
            if wanted > 0 && wanted < end {
                plan.forget.push(wanted..end.div_ceil(4096) * 4096);
            }
        }
        libc::SYS_madvise => match (arguments[2] as u32).cast_signed() {
            // Of private memory only.
            libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => {
                plan.forget.push(range.clone());
                plan.keep.push(range);
                plan.advised = true;
            }
            advice => plan.advised = effect(advice) == Effect::OfMapping,
        },
        // It is made of several of those, or not about this memory.
        libc::SYS_process_madvise => {}
        // Whoever asks for it says of which memory.
        libc::SYS_ioctl => plan.advised = true,
        // What is sealed stays what it is.
        libc::SYS_mseal => {
            plan.forget.push(range.clone());
            plan.keep.push(range);
        }
        _ => plan.forget.push(0..TOP),
    }
    Ok(plan)
}

/// Where nothing is mapped any more once a call was made, or something else.
pub(crate) fn unused(number: i64, arguments: &[u64; 6]) -> Option<Range<u64>> {
    (number == libc::SYS_munmap).then(|| range(arguments[0], arguments[1]))
}

/// Whether a call can be made only by the thread: it names a descriptor.
pub(crate) fn by_shadow(number: i64, arguments: &[u64; 6]) -> bool {
    match number {
        libc::SYS_mmap => arguments[3] & libc::MAP_ANONYMOUS as u64 == 0,
        libc::SYS_process_madvise | libc::SYS_ioctl => true,
        _ => false,
    }
}

/// Whole pages.
fn range(start: u64, length: u64) -> Range<u64> {
    let end = start.saturating_add(length).min(TOP);
    start.min(TOP)..end.div_ceil(4096) * 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_there_is_forgotten() {
        let end = || Ok(0x9000);
        let plan = |number, arguments| plan(number, &arguments, end).expect("a plan");
        assert_eq!(plan(libc::SYS_brk, [0; 6]), Plan::default());
        assert_eq!(plan(libc::SYS_brk, [0xa000, 0, 0, 0, 0, 0]), Plan::default());
        let forgotten = |number, arguments| {
            let plan = plan(number, arguments);
            plan.forget.first().cloned().filter(|_| plan.forget.len() == 1)
        };
        let at = |first, second| [first, second, 0, 0, 0, 0];
        assert_eq!(forgotten(libc::SYS_brk, at(0x4000, 0)), Some(0x4000..0x9000));
        assert_eq!(forgotten(libc::SYS_munmap, at(0x4000, 1)), Some(0x4000..0x5000));
        assert_eq!(forgotten(libc::SYS_shmdt, at(0x4000, 0)), Some(0..TOP));
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
