//! The descriptors of a FUSE connection.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::credentials::{CAP_FSETID, without_capability};
use rustix::ioctl::{Opcode, opcode};

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);
/// `FUSE_DEV_IOC_BACKING_OPEN`.
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(229, 1);
/// `FUSE_DEV_IOC_BACKING_CLOSE`.
const BACKING_CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Opens another descriptor of the connection of `device`, with a list of its own of requests that
/// have been read and not answered. Two threads that read from the same descriptor would contend
/// for that list.
///
/// # Errors
/// Those of open(2) for `/dev/fuse`; `EINVAL`: `device` is not a descriptor of a connection.
pub fn clone(device: impl AsFd) -> io::Result<OwnedFd> {
    let clone = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut number = device.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the request takes a pointer to the number of a descriptor, and has no effect on
    // memory.
    unsafe { crate::ioctl::ask(clone.as_fd(), CLONE, &mut number) }?;
    Ok(clone.into())
}

/// Registers `file` with the connection of `device` as a file that the kernel can read and write
/// itself (`FUSE_PASSTHROUGH`). Returns its number, which is valid until [`close_backing`] or the
/// end of the connection; it does not depend on any descriptor.
///
/// The kernel accesses the file with the credentials that this thread has now. They are used
/// without `CAP_FSETID`, so that the host clears set-user-ID bits at each write, whoever writes.
///
/// # Errors
/// `EPERM`: passthrough was not negotiated, or the thread lacks `CAP_SYS_ADMIN`. `ELOOP`: the file
/// system of `file` is itself stacked on another one.
pub fn open_backing(device: impl AsFd, file: impl AsFd) -> io::Result<u32> {
    let mut map = BackingMap { fd: file.as_fd().as_raw_fd(), flags: 0, padding: 0 };
    without_capability(CAP_FSETID, || {
        // SAFETY: the request takes a pointer to this structure, and has no effect on memory.
        unsafe { crate::ioctl::ask(device.as_fd(), BACKING_OPEN, &mut map) }
    })
}

/// Ends the validity of a number that [`open_backing`] has returned. Files that were opened with it
/// stay open.
///
/// # Errors
/// `ENOENT`: there is no such number.
pub fn close_backing(device: impl AsFd, mut number: u32) -> io::Result<()> {
    // SAFETY: the request takes a pointer to a number, and has no effect on memory.
    unsafe { crate::ioctl::ask(device.as_fd(), BACKING_CLOSE, &mut number) }.map(drop)
}
