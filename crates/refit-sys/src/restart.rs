//! What becomes of a system call that waits when its thread is stopped without a signal, by number: x86-64.
//!
//! A stop interrupts a call as a signal does, but no handler runs. What the kernel leaves in `rax` then is of four kinds (`signal(7)`,
//! "Interruption of system calls by stop signals", and the sources of 6.18):
//!
//! - `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`: the kernel makes the call again with the same arguments;
//! - `ERESTART_RESTARTBLOCK`: it has it go on, for what remains of its time;
//! - `EINTR`: nothing was done. Whoever has stopped the thread puts `ERESTARTNOHAND` in its place ([`redo`]): the kernel makes the call
//!   again, unless a handler of a signal is to run after all, after which it ends with `EINTR`;
//! - a count: some was done, and the call would have gone on. The rest is to be asked for ([`Restart::Short`]).
//!
//! What a call says of itself in its arguments is left to who asks: `recvfrom` comes back with less than was asked for unless it has
//! `MSG_WAITALL`. Calls that begin to wait only where a file's own driver does so (`ioctl`) are [`Restart::Kernel`]: what it returns has
//! to be believed.

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
}

/// Which argument limits how long a call that is [`Restart::Again`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// None; or the limit is a property of a socket, and begins anew.
    None,
    /// This argument, in milliseconds; below zero, none.
    Milliseconds(usize),
    /// This argument, the address of a `struct timespec`; 0, none.
    Timespec(usize),
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
    use Limit::{Milliseconds, None as Unlimited, Timespec};
    use Restart::{Again, Short};
    &[
        // What reads returns as soon as there is something: EINTR only, with a time limit on the socket.
        (libc::SYS_read, Again(Unlimited)),
        (libc::SYS_readv, Again(Unlimited)),
        (libc::SYS_write, bytes(1, 2)),
        (libc::SYS_pwrite64, Short(Rest { address: Some(1), position: Some(3), ..rest(2) })),
        (libc::SYS_writev, Again(Unlimited)),
        (libc::SYS_sendfile, Short(rest(3))),
        (libc::SYS_splice, Short(rest(4))),
        (libc::SYS_copy_file_range, Short(rest(4))),
        (libc::SYS_getrandom, bytes(0, 1)),
        (libc::SYS_sendto, bytes(1, 2)),
        (libc::SYS_recvfrom, Short(Rest { address: Some(1), all: All::WaitAll(3), ..rest(2) })),
        (libc::SYS_sendmsg, Again(Unlimited)),
        (libc::SYS_recvmsg, Again(Unlimited)),
        (libc::SYS_sendmmsg, Short(Rest { address: Some(1), unit: 64, ..rest(2) })),
        (
            libc::SYS_recvmmsg,
            Short(Rest { address: Some(1), unit: 64, all: All::Messages(3), ..rest(2) }),
        ),
        (libc::SYS_connect, Again(Unlimited)),
        (libc::SYS_accept, Again(Unlimited)),
        (libc::SYS_accept4, Again(Unlimited)),
        (libc::SYS_epoll_wait, Again(Milliseconds(3))),
        (libc::SYS_epoll_pwait, Again(Milliseconds(3))),
        (libc::SYS_epoll_pwait2, Again(Timespec(3))),
        (libc::SYS_semop, Again(Unlimited)),
        (libc::SYS_semtimedop, Again(Timespec(3))),
        (libc::SYS_io_getevents, Again(Timespec(4))),
        (IO_PGETEVENTS, Again(Timespec(4))),
        (libc::SYS_rt_sigtimedwait, Again(Timespec(2))),
        (libc::SYS_io_uring_enter, Short(rest(1))),
    ]
};

/// How a call goes on after a stop, by its number; `None`: a number that no kernel had when this was written.
pub fn of(number: u64) -> Option<Restart> {
    let number = i64::try_from(number).ok().filter(|number| *number <= LAST)?;
    let found = TABLE.iter().find(|(known, _)| *known == number);
    Some(found.map_or(Restart::Kernel, |(_, restart)| *restart))
}

/// The arguments of a call, as registers of a thread tell them.
pub fn arguments(registers: &Registers) -> [u64; 6] {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    [rdi, rsi, rdx, r10, r8, r9]
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

/// What is left of a call that was cut short: its arguments, and what was done. `None`: it is complete, or none that goes on.
pub fn left(registers: &Registers) -> Option<([u64; 6], u64)> {
    let Some(Restart::Short(rest)) = of(registers.orig_rax) else { return None };
    let done = registers.rax;
    let mut arguments = arguments(registers);
    let goes_on = match rest.all {
        All::Always => true,
        All::WaitAll(flags) => arguments[flags] & libc::MSG_WAITALL as u64 != 0,
        All::Messages(flags) => {
            arguments[flags] & libc::MSG_WAITFORONE as u64 == 0 && arguments[flags + 1] == 0
        }
    };
    let whole = arguments[rest.left];
    // The kernel looks at 32 bits of some: what is more than that was not meant to be done.
    let least = if rest.unit == 1 && registers.orig_rax != libc::SYS_io_uring_enter as u64 {
        done < whole
    } else {
        done < whole & 0xffff_ffff || is_waiting(registers)
    };
    if !goes_on || done == 0 || done.cast_signed() < 0 || !least {
        return None;
    }
    arguments[rest.left] = whole.saturating_sub(done);
    if let Some(address) = rest.address {
        arguments[address] = arguments[address].wrapping_add(done.wrapping_mul(rest.unit));
    }
    if let Some(position) = rest.position {
        arguments[position] = arguments[position].wrapping_add(done);
    }
    Some((arguments, done))
}

/// Whether it is `io_uring_enter` that waits for completions: it tells how many requests it took, whether it has waited or not.
fn is_waiting(registers: &Registers) -> bool {
    /// `IORING_ENTER_GETEVENTS` of `linux/io_uring.h`.
    const GET_EVENTS: u64 = 1;
    let waits = registers.r10 & GET_EVENTS != 0 && registers.rdx & 0xffff_ffff != 0;
    registers.orig_rax == libc::SYS_io_uring_enter as u64 && waits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(number: i64, answer: i64, arguments: [u64; 6]) -> Registers {
        // SAFETY: all zeros are a value of this plain structure of integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.orig_rax, registers.rax) = (number.cast_unsigned(), answer.cast_unsigned());
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        Registers { rdi, rsi, rdx, r10, r8, r9, ..registers }
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

    #[test]
    fn the_rest_is_what_was_not_done() {
        let write = stopped(libc::SYS_write, 10, [1, 0x1000, 30, 0, 0, 0]);
        assert_eq!(left(&write), Some(([1, 0x100a, 20, 0, 0, 0], 10)));
        assert_eq!(left(&stopped(libc::SYS_write, 30, [1, 0x1000, 30, 0, 0, 0])), None);
        assert_eq!(left(&stopped(libc::SYS_write, -11, [1, 0x1000, 30, 0, 0, 0])), None);
        assert_eq!(left(&stopped(libc::SYS_read, 10, [1, 0x1000, 30, 0, 0, 0])), None);
        let receive = |flags| stopped(libc::SYS_recvfrom, 10, [1, 0x1000, 30, flags, 0, 0]);
        assert_eq!(left(&receive(0)), None);
        let all = left(&receive(libc::MSG_WAITALL as u64)).expect("it goes on");
        assert_eq!((all.0[1], all.0[2], all.1), (0x100a, 20, 10));
        let messages = stopped(libc::SYS_sendmmsg, 2, [1, 0x1000, 5, 0, 0, 0]);
        assert_eq!(left(&messages), Some(([1, 0x1080, 3, 0, 0, 0], 2)));
        let enter = stopped(libc::SYS_io_uring_enter, 3, [9, 3, 2, 1, 0, 0]);
        assert_eq!(left(&enter), Some(([9, 0, 2, 1, 0, 0], 3)), "it has not waited");
        let submit = stopped(libc::SYS_io_uring_enter, 3, [9, 3, 0, 0, 0, 0]);
        assert_eq!(left(&submit), None);
    }
}
