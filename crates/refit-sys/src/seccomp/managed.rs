//! The filter of programs whose memory refit serves or moves. It reports or refuses calls, from the
//! beginning of the program or from the moment at which refit attaches to it.
//!
//! | call | effect |
//! |---|---|
//! | `clone` with `CLONE_UNTRACED`, `clone3` | reported to the tracer ([`MAKES`]) |
//! | `seccomp` and `PR_SET_SECCOMP` | reported to the tracer ([`LIMITS`]) before it is made |
//! | `MADV_GUARD_INSTALL` | `EINVAL`, as on kernels before 6.13 |
//!
//! The tracer clears `CLONE_UNTRACED`, so that no task escapes. `seccomp` and `PR_SET_SECCOMP` are
//! the calls by which a program filters its own calls. The kernel does not report guards, and a
//! page that refit puts in would replace one.
//!
//! C libraries and allocators that cannot have guards protect pages with `mprotect` instead.

use super::{Action, Condition, Filter};

/// The message for a call that may make an untraced task.
pub const MAKES: u16 = 0x6d74;
/// The message for a call that gives its thread a filter, or strict mode.
pub const LIMITS: u16 = 0x736c;
/// The message of the filter that stands for strict mode, for a call that strict mode forbids.
pub const KILLS: u16 = 0x736b;
/// `MADV_GUARD_INSTALL` from `asm-generic/mman-common.h`.
const GUARD_INSTALL: u64 = 102;
/// `SECCOMP_SET_MODE_STRICT` and `SECCOMP_SET_MODE_FILTER` from `linux/seccomp.h`; the option of
/// `prctl`.
const STRICT: u64 = 0;
const FILTER: u64 = 1;
const SET_SECCOMP: u64 = libc::PR_SET_SECCOMP as u64;
/// The half of a number, as opposed to an address, that the kernel looks at.
const LOW: u64 = u32::MAX as u64;

/// Adds the rules of this module to `filter`.
#[must_use]
pub fn rules(filter: Filter) -> Filter {
    let is = |argument, mask, value| Condition { argument, mask, value };
    let untraced = libc::CLONE_UNTRACED as u64;
    let none = Action::Errno(libc::EINVAL as u16);
    filter
        .rule_if(libc::SYS_clone, &[is(0, untraced, untraced)], Action::Trace(MAKES))
        // Its flags are in memory, which filters cannot read.
        .rule(libc::SYS_clone3, Action::Trace(MAKES))
        .rule_if(libc::SYS_seccomp, &[is(0, LOW, STRICT)], Action::Trace(LIMITS))
        .rule_if(libc::SYS_seccomp, &[is(0, LOW, FILTER)], Action::Trace(LIMITS))
        .rule_if(libc::SYS_prctl, &[is(0, LOW, SET_SECCOMP)], Action::Trace(LIMITS))
        .rule_if(libc::SYS_madvise, &[is(2, LOW, GUARD_INSTALL)], none)
        .rule_if(libc::SYS_process_madvise, &[is(3, LOW, GUARD_INSTALL)], none)
}

/// Returns the whole filter, for a program that has no other of refit's.
pub fn filter() -> Filter {
    rules(Filter::new(Action::Allow).foreign(Action::Allow))
}
