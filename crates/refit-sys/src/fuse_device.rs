//! The descriptors of a FUSE connection.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::ioctl::{Opcode, opcode};

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

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
