//! Answering the system calls of other threads: seccomp_unotify(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use linux_raw_sys::ptrace as raw;
use rustix::ioctl::{Opcode, opcode};

const RECEIVE: Opcode = opcode::read_write::<raw::seccomp_notif>(raw::SECCOMP_IOC_MAGIC, 0);
const SEND: Opcode = opcode::read_write::<raw::seccomp_notif_resp>(raw::SECCOMP_IOC_MAGIC, 1);
const ID_VALID: Opcode = opcode::write::<u64>(raw::SECCOMP_IOC_MAGIC, 2);
const ADD_FD: Opcode = opcode::write::<raw::seccomp_notif_addfd>(raw::SECCOMP_IOC_MAGIC, 3);
const SET_FLAGS: Opcode = opcode::write::<u64>(raw::SECCOMP_IOC_MAGIC, 4);

/// The receiver of a filter's notifications. Its descriptor polls readable when a call waits, and
/// hangs up when no task has the filter any more.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Identifies the call in the answer.
    pub id: u64,
    /// The calling thread, as numbered in the namespace of the listener's reader; 0 if the thread
    /// is not visible there.
    pub thread: u32,
    /// The number of the call.
    pub number: i32,
    /// The arguments of the call.
    pub arguments: [u64; 6],
    /// The address at which the thread continues: after its `syscall` instruction.
    pub instruction: u64,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this error (`E*`, positive).
    Errno(i32),
    /// The call is made after all. Another thread may by now have changed the memory that its
    /// arguments point to.
    Continue,
}

/// A descriptor that the calling process receives.
#[derive(Clone, Copy, Debug)]
pub struct AddFd<'a> {
    /// The file.
    pub fd: BorrowedFd<'a>,
    /// The number it gets there, in the place of any descriptor with that number; `None`: the
    /// lowest free one.
    pub number: Option<u32>,
    /// Whether it is closed on `exec`.
    pub close_on_exec: bool,
    /// Whether the new number answers the call at once (5.14).
    pub answer: bool,
}

impl Listener {
    /// Wraps a descriptor that [`install`](super::install) has returned, here or in another
    /// process.
    ///
    /// # Errors
    /// `ENOTSUP`: this kernel's notifications are larger than the structure known here. `ENOSYS`:
    /// it has no listeners.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut sizes =
            raw::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
        let place = &raw mut sizes;
        // SAFETY: `sizes` is valid for the answer.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, raw::SECCOMP_GET_NOTIF_SIZES, 0_u32, place) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if usize::from(sizes.seccomp_notif) > size_of::<raw::seccomp_notif>() {
            return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
        }
        Ok(Self { fd })
    }

    /// Waits for the next call. `None`: its thread has gone already, or (6.11) no task has the
    /// filter any more.
    ///
    /// # Errors
    /// `EINTR`: a signal arrived.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        // SAFETY: all zeros, which the kernel requires, are a valid value of this plain structure.
        let mut event: raw::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is that of the request, of the size that the kernel fills.
        let answer = unsafe { self.ask(RECEIVE, &mut event) };
        Ok(there(answer)?.map(|_| Notification {
            id: event.id,
            thread: event.pid,
            number: event.data.nr,
            arguments: event.data.args,
            instruction: event.data.instruction_pointer,
        }))
    }

    /// Answers a call. Returns whether it still waited: its thread may have been killed, or
    /// interrupted by a signal.
    ///
    /// # Errors
    /// `EINPROGRESS`: it is answered already. `EINVAL`: the answer is invalid.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<bool> {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Errno(errno) => (0, errno.checked_neg().unwrap_or(0), 0),
            Answer::Continue => (0, 0, raw::SECCOMP_USER_NOTIF_FLAG_CONTINUE),
        };
        let mut response = raw::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the structure is that of the request. If the call is one of this process, the
        // code that installed the filter is responsible for the answer.
        Ok(there(unsafe { self.ask(SEND, &mut response) })?.is_some())
    }

    /// Returns whether a call still waits. If so, whatever was read from its thread's memory before
    /// was that of its thread, and not of a later one with the same number.
    ///
    /// # Errors
    /// The errors of the request, but that the call does not wait.
    pub fn waits(&self, id: u64) -> io::Result<bool> {
        let mut id = id;
        // SAFETY: the request takes the address of a number.
        Ok(there(unsafe { self.ask(ID_VALID, &mut id) })?.is_some())
    }

    /// Adds a descriptor to the calling process. Returns its number there, or `None` if the call
    /// does not wait any more.
    ///
    /// # Errors
    /// `EMFILE`: the process has too many. `EBADF`: the number is beyond its limit. `EINPROGRESS`:
    /// the call is answered already.
    pub fn add_fd(&self, id: u64, add: AddFd<'_>) -> io::Result<Option<u32>> {
        let mut flags = 0;
        if add.number.is_some() {
            flags |= raw::SECCOMP_ADDFD_FLAG_SETFD;
        }
        if add.answer {
            flags |= raw::SECCOMP_ADDFD_FLAG_SEND;
        }
        let mut request = raw::seccomp_notif_addfd {
            id,
            flags,
            srcfd: add.fd.as_raw_fd().cast_unsigned(),
            newfd: add.number.unwrap_or(0),
            newfd_flags: if add.close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        // SAFETY: the structure is that of the request. It changes descriptors of this process only
        // if the code that installed the filter allows that.
        there(unsafe { self.ask(ADD_FD, &mut request) })
    }

    /// Makes each side wake up on the processor of the other, as if they were one thread (6.6).
    ///
    /// # Errors
    /// `EINVAL`, `ENOTTY`: the kernel is too old.
    pub fn wake_on_same_processor(&self) -> io::Result<()> {
        // SAFETY: this request takes a number in the place of an address, which the kernel does not
        // dereference.
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
        // SAFETY: guaranteed by the caller.
        unsafe { crate::ioctl::ask(self.fd.as_fd(), request, argument) }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Maps `ENOENT`, the error for calls that do not wait any more, to `None`.
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
