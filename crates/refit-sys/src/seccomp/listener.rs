//! Answering system calls of other threads: seccomp_unotify(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use linux_raw_sys::ptrace as raw;
use rustix::ioctl::{Opcode, opcode};

const RECEIVE: Opcode = opcode::read_write::<raw::seccomp_notif>(raw::SECCOMP_IOC_MAGIC, 0);
const SEND: Opcode = opcode::read_write::<raw::seccomp_notif_resp>(raw::SECCOMP_IOC_MAGIC, 1);
const ID_VALID: Opcode = opcode::write::<u64>(raw::SECCOMP_IOC_MAGIC, 2);
const ADD_FD: Opcode = opcode::write::<raw::seccomp_notif_addfd>(raw::SECCOMP_IOC_MAGIC, 3);
const SET_FLAGS: Opcode = opcode::write::<u64>(raw::SECCOMP_IOC_MAGIC, 4);

/// Is told of calls. It polls readable when a call waits, and hangs up when nobody has its filter any more.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Names it in the answer.
    pub id: u64,
    /// The thread that makes it, as the listener's reader counts; 0 if that is in a namespace it cannot see.
    pub thread: u32,
    /// The call's number.
    pub number: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Where the thread goes on after it: behind the instruction.
    pub instruction: u64,
}

/// What a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This.
    Value(i64),
    /// This error (`E*`, above 0).
    Errno(i32),
    /// What it returns when it is made after all. Another thread may have changed by now what its arguments point at.
    Continue,
}

/// A descriptor for whoever makes a call.
#[derive(Clone, Copy, Debug)]
pub struct AddFd<'a> {
    /// What they get.
    pub fd: BorrowedFd<'a>,
    /// Under which number, in place of what is there; `None`: the lowest that is free.
    pub number: Option<u32>,
    /// Whether it is closed on `exec`.
    pub close_on_exec: bool,
    /// Whether the number is the answer to the call, at once (5.14).
    pub answer: bool,
}

impl Listener {
    /// The listener of this descriptor, which [`install`](super::install) gave, here or in another process.
    ///
    /// # Errors
    /// `ENOTSUP`: this kernel tells more of a call than is known here. `ENOSYS`: it has no listeners.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut sizes =
            raw::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
        let place = &raw mut sizes;
        // SAFETY: `sizes` is a valid place for the answer.
        let told =
            unsafe { libc::syscall(libc::SYS_seccomp, raw::SECCOMP_GET_NOTIF_SIZES, 0_u32, place) };
        if told != 0 {
            return Err(io::Error::last_os_error());
        }
        if usize::from(sizes.seccomp_notif) > size_of::<raw::seccomp_notif>() {
            return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
        }
        Ok(Self { fd })
    }

    /// The next call; waits for one. `None`: who made it is gone already, or (6.11) nobody has the filter any more.
    ///
    /// # Errors
    /// `EINTR`: a signal came.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        // SAFETY: all zeros, which the kernel asks for, are a value of this plain structure.
        let mut told: raw::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is that of the request, of the size the kernel fills.
        let answer = unsafe { self.ask(RECEIVE, &mut told) };
        Ok(there(answer)?.map(|_| Notification {
            id: told.id,
            thread: told.pid,
            number: told.data.nr,
            arguments: told.data.args,
            instruction: told.data.instruction_pointer,
        }))
    }

    /// Answers a call; whether it still waited: its thread may have been killed, or interrupted by a signal.
    ///
    /// # Errors
    /// `EINPROGRESS`: it is answered already. `EINVAL`: no such answer.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<bool> {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Errno(errno) => (0, errno.checked_neg().unwrap_or(0), 0),
            Answer::Continue => (0, 0, raw::SECCOMP_USER_NOTIF_FLAG_CONTINUE),
        };
        let mut response = raw::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the structure is that of the request. What a call of this process is told, its filter's installer
        // answers for.
        Ok(there(unsafe { self.ask(SEND, &mut response) })?.is_some())
    }

    /// Whether a call still waits: if so, what was read from its thread's memory meanwhile was that of its thread, and not of a
    /// later one with the same number.
    ///
    /// # Errors
    /// What the kernel says, other than that it does not.
    pub fn waits(&self, id: u64) -> io::Result<bool> {
        let mut id = id;
        // SAFETY: the request takes a number by its place.
        Ok(there(unsafe { self.ask(ID_VALID, &mut id) })?.is_some())
    }

    /// Gives who makes a call a descriptor; its number there, or `None` if the call does not wait any more.
    ///
    /// # Errors
    /// `EMFILE`: they have too many. `EBADF`: a number beyond their limit. `EINPROGRESS`: the call is answered already.
    pub fn add_fd(&self, id: u64, add: AddFd<'_>) -> io::Result<Option<u32>> {
        let mut flags = 0;
        if add.number.is_some() {
            flags |= raw::SECCOMP_ADDFD_FLAG_SETFD;
        }
        if add.answer {
            flags |= raw::SECCOMP_ADDFD_FLAG_SEND;
        }
        let mut asked = raw::seccomp_notif_addfd {
            id,
            flags,
            srcfd: add.fd.as_raw_fd().cast_unsigned(),
            newfd: add.number.unwrap_or(0),
            newfd_flags: if add.close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        // SAFETY: the structure is that of the request. Descriptors of this process are changed by it only where its filter's
        // installer has let them.
        there(unsafe { self.ask(ADD_FD, &mut asked) })
    }

    /// From now on the reader is woken on the processor of who makes a call, and the other way round, as if they were one (6.6).
    ///
    /// # Errors
    /// `EINVAL`, `ENOTTY`: an earlier kernel.
    pub fn wake_on_same_processor(&self) -> io::Result<()> {
        // SAFETY: this request takes its number itself in place of an address, which the kernel does not follow.
        let set = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::Ioctl::from(SET_FLAGS),
                u64::from(raw::SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP),
            )
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes a request.
    ///
    /// # Safety
    /// As [`crate::ioctl::ask`].
    unsafe fn ask<T>(&self, request: Opcode, argument: &mut T) -> io::Result<u32> {
        // SAFETY: the caller's duty.
        unsafe { crate::ioctl::ask(self.fd.as_fd(), request, argument) }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Calls that do not wait any more are `ENOENT`.
fn there<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_the_kernels_header() {
        let pairs = [
            (RECEIVE, libc::SECCOMP_IOCTL_NOTIF_RECV),
            (SEND, libc::SECCOMP_IOCTL_NOTIF_SEND),
            (ID_VALID, libc::SECCOMP_IOCTL_NOTIF_ID_VALID),
            (ADD_FD, libc::SECCOMP_IOCTL_NOTIF_ADDFD),
            (SET_FLAGS, libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(libc::Ioctl::from(ours), theirs);
        }
    }
}
