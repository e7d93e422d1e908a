//! The table of blocking system calls (x86-64): how each continues after a stop.

/// The continuation of a call after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The kernel continues the call, or the call does not block where a stop reaches it. Its
    /// return value is its result.
    Kernel,
    /// The call fails with `EINTR` and has to be made again.
    Again(Limit),
    /// The call can return a count that is less than the requested one, or `EINTR` if nothing was
    /// done.
    Short(Rest),
    /// As [`Restart::Short`], for memory in several pieces.
    Pieces(Pieces),
}

/// The argument that limits how long a call of kind [`Restart::Again`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No argument; or the limit is a property of a socket, and starts over.
    None,
    /// This argument, in milliseconds; negative for no limit. The call returns 0 when the time is
    /// over.
    Milliseconds(usize),
    /// An argument that is the address of a `struct timespec`; 0 for no limit.
    Timespec {
        /// The number of the argument.
        argument: usize,
        /// The value that the call returns when the time is over.
        late: i64,
    },
}

/// The arguments of the call that does the rest. Arguments are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The argument that is an address: it advances by as many units as were done.
    pub address: Option<usize>,
    /// The argument that is a position: it advances by as much as was done.
    pub position: Option<usize>,
    /// The argument that holds the amount left.
    pub left: usize,
    /// Bytes that the address advances by for each unit done: 64 for messages (`struct mmsghdr`).
    pub unit: u64,
    /// The condition under which the call continues until all is done.
    pub all: All,
}

/// The condition under which a call that has returned a count was meant to continue until all is
/// done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum All {
    /// Always.
    Always,
    /// If this argument has `MSG_WAITALL`.
    WaitAll(usize),
    /// If this argument lacks `MSG_WAITFORONE`, and the next one is not a time limit.
    Messages(usize),
}

/// Where a call finds the pieces of memory (`struct iovec`) that it transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// The second argument is their address, the third their number: `writev`.
    Array,
    /// As [`Pieces::Array`], for a call with a position and flags. It continues, as `writev` does,
    /// only if it has neither.
    ArrayAt,
    /// The second argument is a `struct msghdr`, the third holds flags: `sendmsg`.
    Sent,
    /// As [`Pieces::Sent`], for `recvmsg`, which continues until all is done only with
    /// `MSG_WAITALL`. A call that has requested control messages does not continue, since the room
    /// left for them is not known.
    Received,
}

const fn bytes(address: usize, left: usize) -> Restart {
    let all = All::Always;
    Restart::Short(Rest { address: Some(address), position: None, left, unit: 1, all })
}

const fn rest(left: usize) -> Rest {
    Rest { address: None, position: None, left, unit: 1, all: All::Always }
}

/// Not in `libc`; from the kernel's `syscall_64.tbl`.
const IO_PGETEVENTS: i64 = 333;
/// The highest call number that this table has considered.
const LAST: i64 = 470;

/// The calls that are not [`Restart::Kernel`].
const TABLE: &[(i64, Restart)] = {
    use Limit::{Milliseconds, None as Unlimited};
    use Restart::{Again, Pieces as Several, Short};
    /// A limit after which the call returns 0 if none of its events has occurred.
    const fn timespec(argument: usize) -> Restart {
        Again(Limit::Timespec { argument, late: 0 })
    }
    /// A limit after which the call fails.
    const fn timespec_or_again(argument: usize) -> Restart {
        Again(Limit::Timespec { argument, late: -(libc::EAGAIN as i64) })
    }
    &[
        // A read returns as soon as there is something: it fails with EINTR only if the socket has
        // a time limit.
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
        // These get here only if the kernel cannot write the remaining time.
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

/// Returns how the call with this number continues after a stop; `None` for a number that no kernel
/// had when the table was written.
pub fn of(number: u64) -> Option<Restart> {
    let number = i64::try_from(number).ok().filter(|number| *number <= LAST)?;
    let found = TABLE.iter().find(|(known, _)| *known == number);
    Some(found.map_or(Restart::Kernel, |(_, restart)| *restart))
}

/// Returns the numbers of all calls that are not [`Restart::Kernel`].
pub fn rows() -> impl Iterator<Item = u64> {
    TABLE.iter().map(|(number, _)| number.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_there_once() {
        for (at, (number, restart)) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|(other, _)| other != number), "{number}");
            assert!(*number <= LAST && *restart != Restart::Kernel, "{number}");
        }
        assert_eq!(of(u64::MAX), None);
        assert_eq!(of(libc::SYS_close as u64), Some(Restart::Kernel), "what it closes is closed");
    }
}
