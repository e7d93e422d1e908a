//! `ioctl` requests whose argument is a structure.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::Opcode;

/// Makes `request` on `fd`. The kernel reads `argument`, and may write it even if the request
/// fails. Returns the result of the call.
///
/// # Errors
/// The error of the request.
///
/// # Safety
/// `request` takes a pointer to a `T`, and has no effect that breaks the assumptions of the
/// compiler.
pub(crate) unsafe fn ask<T>(
    fd: BorrowedFd<'_>,
    request: Opcode,
    argument: &mut T,
) -> io::Result<u32> {
    // SAFETY: the kernel may read and write `argument`, which is valid; the caller guarantees the
    // rest.
    let answer = unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(request), std::ptr::from_mut(argument))
    };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}
