//! A process by a descriptor, which names no other one when it has ended: pidfd_open(2) (5.3).
//!
//! Its end can be waited for beside other things: the descriptor polls readable then ([`Pidfd::as_fd`]).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::ioctl::{Opcode, opcode};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

/// `PIDFD_GET_INFO` (`linux/pidfd.h`).
const INFO: Opcode = opcode::read_write::<Info>(0xff, 11);
/// Numbers are told (`PIDFD_INFO_PID`).
const NUMBERS: u64 = 1;

/// `struct pidfd_info`, as it was first.
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

/// A process, or a thread.
#[derive(Debug)]
pub struct Pidfd {
    fd: OwnedFd,
}

/// What is done to pages of another process, whatever they hold: nothing is lost by any of it (madvise(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// They are not used soon (5.10).
    Cold,
    /// They go to swap, or back to their file, now (5.10).
    PageOut,
    /// They are used soon: they are read in (5.10).
    WillNeed,
    /// They are made huge pages, as far as they fill some (6.1).
    Collapse,
}

impl Pidfd {
    /// The process with this number.
    ///
    /// # Errors
    /// `ESRCH`: there is none. `EINVAL`: it is a thread, or no number of one.
    pub fn open(process: u32) -> io::Result<Self> {
        Ok(Self { fd: rustix::process::pidfd_open(number(process)?, PidfdFlags::empty())? })
    }

    /// The thread with this number (6.9).
    ///
    /// # Errors
    /// As [`open`](Self::open); `EINVAL` also on an earlier kernel.
    pub fn open_thread(thread: u32) -> io::Result<Self> {
        const PIDFD_THREAD: u32 = libc::O_EXCL.cast_unsigned();
        let flags = PidfdFlags::from_bits_retain(PIDFD_THREAD);
        Ok(Self { fd: rustix::process::pidfd_open(number(thread)?, flags)? })
    }

    /// The process that it belongs to (6.13).
    ///
    /// # Errors
    /// `ENOTTY`: an earlier kernel. `ESRCH`: it is no more.
    pub fn process(&self) -> io::Result<u32> {
        let mut info = Info { mask: NUMBERS, ..Info::default() };
        // SAFETY: the structure is the one of the request, which the kernel fills.
        unsafe { crate::ioctl::ask(self.fd.as_fd(), INFO, &mut info) }?;
        Ok(info.process)
    }

    /// A descriptor for the open file that the process has under `number` (5.6): the same one, with its position and locks.
    /// It is closed on `exec`.
    ///
    /// # Errors
    /// `EBADF`: it has none such. `EPERM`: the caller may not trace it. `ESRCH`: it has ended.
    pub fn get_fd(&self, number: u32) -> io::Result<OwnedFd> {
        let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_getfd(&self.fd, number, PidfdGetfdFlags::empty())?)
    }

    /// Sends a signal; 0 sends none, but tells whether one could be sent.
    ///
    /// # Errors
    /// `ESRCH`: it has ended and been waited for. `EPERM`: it is somebody else's. `EINVAL`: no such signal.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open; no memory is passed.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), signal, none, 0)
        };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for its end, for as long as `limit`; whether it has ended. Who its parent is does not matter.
    ///
    /// # Errors
    /// `EINTR`: a signal came. What poll(2) says.
    pub fn wait_for_end(&self, limit: Duration) -> io::Result<bool> {
        let limit = rustix::time::Timespec::try_from(limit).ok();
        let mut asked = [PollFd::new(&self.fd, PollFlags::IN)];
        Ok(poll(&mut asked, limit.as_ref())? > 0)
    }

    /// Gives advice about ranges of its memory, whole pages of it, in order; how many bytes of them it was given for.
    ///
    /// # Errors
    /// `EPERM`: the caller may not (it needs `CAP_SYS_NICE`, and to read it as a tracer). `EINVAL`: not for this memory,
    /// not whole pages, or more than 1024 ranges. `ENOMEM`: the first is not mapped. `ESRCH`: it has ended.
    pub fn advise(&self, ranges: &[Range<u64>], advice: Advice) -> io::Result<u64> {
        let places: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: range.start as *mut libc::c_void,
                iov_len: range.end.saturating_sub(range.start) as usize,
            })
            .collect();
        // SAFETY: `places` holds as many as are told, and names memory of the other process; this advice changes no
        // contents, so that it may be this process as well.
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

    /// Frees the memory of a process that has been killed, before it gets to do so itself (process_mrelease(2), 5.15).
    ///
    /// # Errors
    /// `EINVAL`: it has not been killed. `ESRCH`: its memory is gone already. `EAGAIN`: not all of it could be freed now;
    /// `EINTR`: a signal came; ask again.
    pub fn release_memory(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open; no memory is passed. A process that is not being killed is refused.
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

/// Closes a descriptor; what the file system says to that, which may be that something could not be written earlier (close(2)). The descriptor is gone
/// either way.
///
/// # Errors
/// What it says.
pub fn close(descriptor: OwnedFd) -> io::Result<()> {
    // SAFETY: it is ours, and nobody has it any more.
    match unsafe { libc::close(descriptor.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(id: u32) -> io::Result<Pid> {
    let number = i32::try_from(id).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
