//! One way to make an `ioctl` whose argument is a structure.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::Opcode;

/// Asks `fd` for `request`; the kernel reads `argument`, and may write it also when it fails. What it returns.
///
/// # Errors
/// What the kernel says.
///
/// # Safety
/// `request` takes a pointer to a `T`, and what it does breaks nothing that the compiler counts on.
pub(crate) unsafe fn ask<T>(
    fd: BorrowedFd<'_>,
    request: Opcode,
    argument: &mut T,
) -> io::Result<u32> {
    // SAFETY: `argument` is a valid place for what the kernel reads and writes; the rest is the caller's duty.
    let answer = unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(request), std::ptr::from_mut(argument))
    };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}
