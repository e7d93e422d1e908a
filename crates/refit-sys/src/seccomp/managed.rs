//! The filter of programs whose memory refit serves or moves: what it has to be told of, or has to refuse, from their beginning or from the
//! moment on that refit has hold of them.
//!
//! | call | what becomes of it |
//! |---|---|
//! | `clone` with `CLONE_UNTRACED`, `clone3` | the tracer is told ([`MAKES`]), and takes the flag out: no task escapes |
//! | what limits the program's own calls (`seccomp`, `PR_SET_SECCOMP`) | the tracer is told ([`LIMITS`]), before it is made |
//! | `MADV_GUARD_INSTALL` | `EINVAL`, as on kernels before 6.13: the kernel tells nobody of guards, and whoever puts a page in replaces one |
//!
//! C libraries and allocators that find no guards protect pages with `mprotect`.

use super::{Action, Condition, Filter};

/// What the filter says of a call that may make a task which is not traced.
pub const MAKES: u16 = 0x6d74;
/// The filter says this of a call that gives its thread a filter, or strict mode.
pub const LIMITS: u16 = 0x736c;
/// The filter that stands for strict mode says this of a call that strict mode forbids.
pub const KILLS: u16 = 0x736b;
/// `MADV_GUARD_INSTALL` of `asm-generic/mman-common.h`.
const GUARD_INSTALL: u64 = 102;
/// `SECCOMP_SET_MODE_STRICT` and `SECCOMP_SET_MODE_FILTER` of `linux/seccomp.h`; of `prctl`.
const STRICT: u64 = 0;
const FILTER: u64 = 1;
const SET_SECCOMP: u64 = libc::PR_SET_SECCOMP as u64;
/// What the kernel looks at of a number that is no address.
const LOW: u64 = u32::MAX as u64;

/// Adds those rules.
#[must_use]
pub fn rules(filter: Filter) -> Filter {
    let is = |argument, mask, value| Condition { argument, mask, value };
    let untraced = libc::CLONE_UNTRACED as u64;
    let none = Action::Errno(libc::EINVAL as u16);
    filter
        .rule_if(libc::SYS_clone, &[is(0, untraced, untraced)], Action::Trace(MAKES))
        // Its flags are in memory, where no filter looks.
        .rule(libc::SYS_clone3, Action::Trace(MAKES))
        .rule_if(libc::SYS_seccomp, &[is(0, LOW, STRICT)], Action::Trace(LIMITS))
        .rule_if(libc::SYS_seccomp, &[is(0, LOW, FILTER)], Action::Trace(LIMITS))
        .rule_if(libc::SYS_prctl, &[is(0, LOW, SET_SECCOMP)], Action::Trace(LIMITS))
        .rule_if(libc::SYS_madvise, &[is(2, LOW, GUARD_INSTALL)], none)
        .rule_if(libc::SYS_process_madvise, &[is(3, LOW, GUARD_INSTALL)], none)
}

/// The whole filter, for a program that has none of refit's.
pub fn filter() -> Filter {
    rules(Filter::new(Action::Allow).foreign(Action::Allow))
}
