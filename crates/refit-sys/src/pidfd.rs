//! A descriptor of a process, which never refers to another process after this one has ended:
//! pidfd_open(2) (5.3).
//!
//! The descriptor polls readable once the process has ended ([`Pidfd::as_fd`]), so a caller can
//! wait for that along with other events.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::ioctl::{Opcode, opcode};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

/// `PIDFD_GET_INFO` (`linux/pidfd.h`).
const INFO: Opcode = opcode::read_write::<Info>(0xff, 11);
/// The request for process numbers (`PIDFD_INFO_PID`).
const NUMBERS: u64 = 1;

/// `struct pidfd_info`, in its first version.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    group: u64,
    thread: u32,
    process: u32,
    parent: u32,
    users: [u32; 8],
    code: i32,
}

/// A descriptor of a process or of a thread.
#[derive(Debug)]
pub struct Pidfd {
    fd: OwnedFd,
}

/// Advice about pages of another process. None of it loses data (madvise(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The pages are not used soon (5.10).
    Cold,
    /// The pages go to swap, or back to their file, now (5.10).
    PageOut,
    /// The pages are used soon, and are read in (5.10).
    WillNeed,
    /// The pages are collapsed into huge pages, as far as they fill some (6.1).
    Collapse,
}

impl Pidfd {
    /// Opens the process with this number.
    ///
    /// # Errors
    /// `ESRCH`: no such process. `EINVAL`: the number is that of a thread other than the first, or
    /// not valid.
    pub fn open(process: u32) -> io::Result<Self> {
        Ok(Self { fd: rustix::process::pidfd_open(number(process)?, PidfdFlags::empty())? })
    }

    /// Opens the thread with this number (6.9).
    ///
    /// # Errors
    /// As [`open`](Self::open); `EINVAL` also on earlier kernels.
    pub fn open_thread(thread: u32) -> io::Result<Self> {
        const PIDFD_THREAD: u32 = libc::O_EXCL.cast_unsigned();
        let flags = PidfdFlags::from_bits_retain(PIDFD_THREAD);
        Ok(Self { fd: rustix::process::pidfd_open(number(thread)?, flags)? })
    }

    /// Returns the number of the process that the thread belongs to (6.13).
    ///
    /// # Errors
    /// `ENOTTY`: the kernel is too old. `ESRCH`: the thread has been reaped.
    pub fn process(&self) -> io::Result<u32> {
        let mut info = Info { mask: NUMBERS, ..Info::default() };
        // SAFETY: the structure is the one of the request, which the kernel fills.
        unsafe { crate::ioctl::ask(self.fd.as_fd(), INFO, &mut info) }?;
        Ok(info.process)
    }

    /// Returns a descriptor of the open file that the process has under `number` (5.6): the same
    /// open file description, with its position and locks. The descriptor is closed on `exec`.
    ///
    /// # Errors
    /// `EBADF`: the process has no such descriptor. `EPERM`: the caller may not trace it. `ESRCH`:
    /// it has ended.
    pub fn get_fd(&self, number: u32) -> io::Result<OwnedFd> {
        let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_getfd(&self.fd, number, PidfdGetfdFlags::empty())?)
    }

    /// Sends a signal; 0 sends none, but checks whether one could be sent.
    ///
    /// # Errors
    /// `ESRCH`: the process has ended and been reaped. `EPERM`: it belongs to another user.
    /// `EINVAL`: no such signal.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open; no memory is passed.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), signal, none, 0)
        };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for the end of the process, but no longer than `limit`. Returns whether it has ended.
    /// The process need not be a child of this one.
    ///
    /// # Errors
    /// `EINTR`: a signal arrived. The other errors of poll(2).
    pub fn wait_for_end(&self, limit: Duration) -> io::Result<bool> {
        let limit = rustix::time::Timespec::try_from(limit).ok();
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        Ok(poll(&mut polled, limit.as_ref())? > 0)
    }

    /// Gives advice about ranges of the process's memory, which are whole pages, in order. Returns
    /// the number of bytes that were advised.
    ///
    /// # Errors
    /// `EPERM`: the caller needs `CAP_SYS_NICE`, and the right to read the process as a tracer.
    /// `EINVAL`: the advice does not apply to this memory, the ranges are not whole pages, or there
    /// are more than 1024. `ENOMEM`: the first range is not mapped. `ESRCH`: the process has ended.
    pub fn advise(&self, ranges: &[Range<u64>], advice: Advice) -> io::Result<u64> {
        let places: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: range.start as *mut libc::c_void,
                iov_len: range.end.saturating_sub(range.start) as usize,
            })
            .collect();
        // SAFETY: `places` has the length that is passed, and names memory of the other process.
        // This advice changes no contents, so the process may also be this one.
        let advised = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.fd.as_raw_fd(),
                places.as_ptr(),
                places.len(),
                advice.number(),
                0,
            )
        };
        u64::try_from(advised).map_err(|_| io::Error::last_os_error())
    }

    /// Frees the memory of a process that has been killed, before it gets to do so itself
    /// (process_mrelease(2), 5.15).
    ///
    /// # Errors
    /// `EINVAL`: the process has not been killed. `ESRCH`: its memory is gone already. `EAGAIN`:
    /// not all of it could be freed now. `EINTR`: a signal arrived. After the last two, the caller
    /// may try again.
    pub fn release_memory(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open; no memory is passed. The kernel refuses a process that is
        // not being killed.
        let done = unsafe { libc::syscall(libc::SYS_process_mrelease, self.fd.as_raw_fd(), 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Advice {
    fn number(self) -> i32 {
        match self {
            Advice::Cold => libc::MADV_COLD,
            Advice::PageOut => libc::MADV_PAGEOUT,
            Advice::WillNeed => libc::MADV_WILLNEED,
            Advice::Collapse => libc::MADV_COLLAPSE,
        }
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Closes a descriptor and reports the error of close(2), which may be that of an earlier write.
/// The descriptor is closed in any case.
///
/// # Errors
/// The error of close(2).
pub fn close(descriptor: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is owned by this function, and no longer used.
    match unsafe { libc::close(descriptor.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(id: u32) -> io::Result<Pid> {
    let number = i32::try_from(id).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
