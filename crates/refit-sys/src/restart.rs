//! What becomes of a system call that waits when its thread is stopped without a signal, by number: x86-64.
//!
//! A stop interrupts a call as a signal does, but no handler runs. What the kernel leaves in `rax`
//! then is of four kinds (`signal(7)`, "Interruption of system calls by stop signals", and the
//! sources of 6.18):
//!
//! - `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`: the kernel makes the call again with the same arguments;
//! - `ERESTART_RESTARTBLOCK`: it has it go on, for what remains of its time;
//! - `EINTR`: nothing was done. Whoever has stopped the thread puts `ERESTARTNOHAND` in its place ([`redo`]): the kernel makes
//!   the call again, unless a handler of a signal is to run after all, after which it ends with `EINTR`. A time limit among its
//!   arguments would begin anew; [`limit`] tells it, so that only what remains of it is asked for;
//! - a count: some was done, and the call would have gone on. The rest is to be asked for ([`left`]).
//!
//! `splice`, `tee` and `vmsplice` return as soon as there is nothing more at hand, so what they
//! return is their result, too. Calls that begin to wait only where a file's own driver does so
//! (`ioctl`) are [`Restart::Kernel`]: what it returns has to be believed.
//!
//! `ppoll`, `pselect6` and `select` are told the remaining time by the kernel, in their argument,
//! and made again by it; only where it cannot write there they end with `EINTR`.

mod left;
mod limit;

pub use left::{Behind, Call, HEADER, Left, left};
pub use limit::{Limit, LimitedCall, limit};

use crate::trace::Registers;

/// `ERESTARTNOHAND` of the kernel's `linux/errno.h`: to be made again, if no handler of a signal has run.
pub const NO_HANDLER: i64 = -514;
/// `ERESTART_RESTARTBLOCK` of it: to be gone on with by `restart_syscall`.
pub const RESTART_BLOCK: i64 = -516;
/// What the kernel keeps to itself (`ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`): nothing was done, and the
/// call is to be made again.
pub const AGAIN: [i64; 4] = [-512, -513, NO_HANDLER, RESTART_BLOCK];

/// How a call goes on after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The kernel sees to it, or it does not wait where a stop reaches it. What it returns is its result.
    Kernel,
    /// It ends with `EINTR` and is to be made again.
    Again(Limit),
    /// It can end with a count that is less than was asked for, or with `EINTR` if nothing was done.
    Short(Rest),
    /// The same, of memory in several pieces.
    Pieces(Pieces),
}

/// How the rest of a call is asked for: arguments are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The argument that is an address: it grows by as many units as were done.
    pub address: Option<usize>,
    /// The argument that is a position: it grows by as much as was done.
    pub position: Option<usize>,
    /// The argument that says how much is left.
    pub left: usize,
    /// Bytes that an address grows by for each that was done: 64 for messages (`struct mmsghdr`).
    pub unit: u64,
    /// When the call means to go on until all is done.
    pub all: All,
}

/// When a call that ends with a count goes on until all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum All {
    /// Always.
    Always,
    /// With `MSG_WAITALL` in this argument.
    WaitAll(usize),
    /// Without `MSG_WAITFORONE` in this argument, and without a time limit in the next.
    Messages(usize),
}

/// Where a call finds the pieces of memory (`struct iovec`) that it is to go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// The second argument is their address, the third how many there are: `writev`.
    Array,
    /// The same, and the call has a position and flags: only one without both goes on, as `writev`.
    ArrayAt,
    /// The second argument is a `struct msghdr`, the third are flags: `sendmsg`.
    Sent,
    /// The same: `recvmsg`, which goes on until all is done with `MSG_WAITALL` only. Where it has
    /// asked for control messages, what was left of the room for them is not known any more, and it
    /// does not go on.
    Received,
}

const fn bytes(address: usize, left: usize) -> Restart {
    let all = All::Always;
    Restart::Short(Rest { address: Some(address), position: None, left, unit: 1, all })
}

const fn rest(left: usize) -> Rest {
    Rest { address: None, position: None, left, unit: 1, all: All::Always }
}

/// Missing in `libc`; from the kernel's `syscall_64.tbl`.
const IO_PGETEVENTS: i64 = 333;
/// The highest number of a call that was looked at.
const LAST: i64 = 470;

/// Calls that are not [`Restart::Kernel`].
const TABLE: &[(i64, Restart)] = {
    use Limit::{Milliseconds, None as Unlimited};
    use Restart::{Again, Pieces as Several, Short};
    /// A limit with which a call that has none of its events returns 0.
    const fn timespec(argument: usize) -> Restart {
        Again(Limit::Timespec { argument, late: 0 })
    }
    /// A limit with which it fails.
    const fn timespec_or_again(argument: usize) -> Restart {
        Again(Limit::Timespec { argument, late: -(libc::EAGAIN as i64) })
    }
    &[
        // What reads returns as soon as there is something: EINTR only, with a time limit on the socket.
        (libc::SYS_read, Again(Unlimited)),
        (libc::SYS_readv, Again(Unlimited)),
        (libc::SYS_preadv2, Again(Unlimited)),
        (libc::SYS_write, bytes(1, 2)),
        (libc::SYS_pwrite64, Short(Rest { address: Some(1), position: Some(3), ..rest(2) })),
        (libc::SYS_writev, Several(Pieces::Array)),
        (libc::SYS_pwritev2, Several(Pieces::ArrayAt)),
        (libc::SYS_sendfile, Short(rest(3))),
        (libc::SYS_copy_file_range, Short(rest(4))),
        (libc::SYS_getrandom, bytes(0, 1)),
        (libc::SYS_sendto, bytes(1, 2)),
        (libc::SYS_recvfrom, Short(Rest { address: Some(1), all: All::WaitAll(3), ..rest(2) })),
        (libc::SYS_sendmsg, Several(Pieces::Sent)),
        (libc::SYS_recvmsg, Several(Pieces::Received)),
        (libc::SYS_sendmmsg, Short(Rest { address: Some(1), unit: 64, ..rest(2) })),
        (
            libc::SYS_recvmmsg,
            Short(Rest { address: Some(1), unit: 64, all: All::Messages(3), ..rest(2) }),
        ),
        (libc::SYS_connect, Again(Unlimited)),
        (libc::SYS_accept, Again(Unlimited)),
        (libc::SYS_accept4, Again(Unlimited)),
        // Where the kernel cannot write what remains of the time.
        (libc::SYS_ppoll, Again(Unlimited)),
        (libc::SYS_pselect6, Again(Unlimited)),
        (libc::SYS_select, Again(Unlimited)),
        (libc::SYS_epoll_wait, Again(Milliseconds(3))),
        (libc::SYS_epoll_pwait, Again(Milliseconds(3))),
        (libc::SYS_epoll_pwait2, timespec(3)),
        (libc::SYS_semop, Again(Unlimited)),
        (libc::SYS_semtimedop, timespec_or_again(3)),
        (libc::SYS_io_getevents, timespec(4)),
        (IO_PGETEVENTS, timespec(4)),
        (libc::SYS_rt_sigtimedwait, timespec_or_again(2)),
        (libc::SYS_io_uring_enter, Short(rest(1))),
    ]
};

/// How a call goes on after a stop, by its number; `None`: a number that no kernel had when this was written.
pub fn of(number: u64) -> Option<Restart> {
    let number = i64::try_from(number).ok().filter(|number| *number <= LAST)?;
    let found = TABLE.iter().find(|(known, _)| *known == number);
    Some(found.map_or(Restart::Kernel, |(_, restart)| *restart))
}

/// The numbers of all calls that are not [`Restart::Kernel`].
pub fn rows() -> impl Iterator<Item = u64> {
    TABLE.iter().map(|(number, _)| number.cast_unsigned())
}

/// The arguments of a call, as registers of a thread tell them.
pub fn arguments(registers: &Registers) -> [u64; 6] {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    [rdi, rsi, rdx, r10, r8, r9]
}

/// Sets what [`arguments`] tells.
pub fn set_arguments(registers: &mut Registers, arguments: [u64; 6]) {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = registers;
    [*rdi, *rsi, *rdx, *r10, *r8, *r9] = arguments;
}

/// Whether a thread that was stopped in the call with this number shows that the kernel has ended it with `EINTR`, nothing being done.
pub fn is_redone(registers: &Registers, number: u64) -> bool {
    let interrupted = registers.rax.cast_signed() == -i64::from(libc::EINTR);
    interrupted && !matches!(of(number), None | Some(Restart::Kernel))
}

/// The registers with which a thread, which stands in an event stop within such a call, has the kernel make the call again, unless a
/// handler of a signal is to run. `None`: it is in no such call.
pub fn redo(registers: &Registers) -> Option<Registers> {
    is_redone(registers, registers.orig_rax)
        .then(|| Registers { rax: NO_HANDLER.cast_unsigned(), ..*registers })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn stopped(number: i64, answer: i64, arguments: [u64; 6]) -> Registers {
        // SAFETY: all zeros are a value of this plain structure of integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.orig_rax, registers.rax) = (number.cast_unsigned(), answer.cast_unsigned());
        set_arguments(&mut registers, arguments);
        registers
    }

    #[test]
    fn each_call_is_there_once() {
        for (at, (number, restart)) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|(other, _)| other != number), "{number}");
            assert!(*number <= LAST && *restart != Restart::Kernel, "{number}");
        }
        assert_eq!(of(u64::MAX), None);
        assert_eq!(of(libc::SYS_close as u64), Some(Restart::Kernel), "what it closes is closed");
    }

    #[test]
    fn what_ended_for_the_stop_is_made_again_unless_a_handler_runs() {
        let again = redo(&stopped(libc::SYS_epoll_wait, -4, [0; 6])).expect("it is made again");
        assert_eq!(again.rax.cast_signed(), NO_HANDLER);
        assert!(redo(&stopped(libc::SYS_epoll_wait, 1, [0; 6])).is_none(), "it has an event");
        assert!(redo(&stopped(libc::SYS_close, -4, [0; 6])).is_none());
        assert!(redo(&stopped(-1, -4, [0; 6])).is_none(), "it is in no call");
    }
}
