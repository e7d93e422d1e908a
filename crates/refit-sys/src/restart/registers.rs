//! The registers of a thread that was stopped in a system call: the arguments of the call, and the
//! results by which the kernel reports that it was interrupted.

use super::table::{Restart, of};
use crate::trace::Registers;

/// The kernel's own error numbers for calls that a signal has interrupted (`linux/errno.h`): a
/// program never sees them, a tracer does, negative as results are.
///
/// The call is made again, unless a handler without `SA_RESTART` has run.
pub const ERESTARTSYS: i64 = 512;
/// The call is made again in any case.
pub const ERESTARTNOINTR: i64 = 513;
/// The call is made again if no handler has run.
pub const ERESTARTNOHAND: i64 = 514;
/// `restart_syscall` continues the call, of which only the kernel knows how much is left.
pub const ERESTART_RESTARTBLOCK: i64 = 516;
/// The results by which the kernel says that nothing was done, and that the call has to be made
/// again.
pub const RESTARTS: [i64; 4] =
    [-ERESTARTSYS, -ERESTARTNOINTR, -ERESTARTNOHAND, -ERESTART_RESTARTBLOCK];

/// Returns the arguments of a call from the registers of its thread.
pub fn arguments(registers: &Registers) -> [u64; 6] {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    [rdi, rsi, rdx, r10, r8, r9]
}

/// Sets the registers that [`arguments`] reads.
pub fn set_arguments(registers: &mut Registers, arguments: [u64; 6]) {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = registers;
    [*rdi, *rsi, *rdx, *r10, *r8, *r9] = arguments;
}

/// Returns whether the registers of a thread that was stopped in the call with this number show
/// that the kernel has ended the call with `EINTR`, with nothing done.
pub fn is_redone(registers: &Registers, number: u64) -> bool {
    let interrupted = registers.rax.cast_signed() == -i64::from(libc::EINTR);
    interrupted && !matches!(of(number), None | Some(Restart::Kernel))
}

/// Returns the registers with which a thread that is in an event stop within such a call repeats
/// the call, unless a signal handler runs first. `None`: it is in no such call.
pub fn redo(registers: &Registers) -> Option<Registers> {
    is_redone(registers, registers.orig_rax)
        .then(|| Registers { rax: (-ERESTARTNOHAND).cast_unsigned(), ..*registers })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::restart) fn stopped(number: i64, answer: i64, arguments: [u64; 6]) -> Registers {
        // SAFETY: all zeros are a value of this plain structure of integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.orig_rax, registers.rax) = (number.cast_unsigned(), answer.cast_unsigned());
        set_arguments(&mut registers, arguments);
        registers
    }

    #[test]
    fn what_ended_for_the_stop_is_made_again_unless_a_handler_runs() {
        let again = redo(&stopped(libc::SYS_epoll_wait, -4, [0; 6])).expect("it is made again");
        assert_eq!(again.rax.cast_signed(), -ERESTARTNOHAND);
        assert!(redo(&stopped(libc::SYS_epoll_wait, 1, [0; 6])).is_none(), "it has an event");
        assert!(redo(&stopped(libc::SYS_close, -4, [0; 6])).is_none());
        assert!(redo(&stopped(-1, -4, [0; 6])).is_none(), "it is in no call");
    }
}
