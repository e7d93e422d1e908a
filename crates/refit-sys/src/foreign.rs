//! Memory of another process, from outside: `/proc/PID/mem` (proc_pid_mem(5)).
//!
//! Reading and writing here never waits for a page whose faults user space serves, as `process_vm_readv` does: such a page is
//! [`Refused::Missing`], to be resolved first. Writing does not ask for permission to write either: read-only code is
//! copied first, where it is private. Addresses are those of the process.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The memory that a process had when this was opened, until it ends or runs another program.
#[derive(Debug)]
pub struct Memory {
    file: File,
}

/// Why memory could not be read or written.
#[derive(Debug)]
pub enum Refused {
    /// There is no page at this address that could be had without waiting: nothing is mapped, or it is to be resolved, or lies
    /// behind the end of its file (`EIO`). Everything before it was read, or written.
    Missing {
        /// The first such address.
        address: u64,
    },
    /// The process has ended, or runs another program.
    Gone,
    /// Anything else.
    System(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Missing { address } => write!(f, "there is no page at {address:#x}"),
            Refused::Gone => write!(f, "the process whose memory it was is gone"),
            Refused::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Missing { .. } => io::Error::from_raw_os_error(libc::EIO),
            Refused::Gone => io::Error::from_raw_os_error(libc::ESRCH),
            Refused::System(error) => error,
        }
    }
}

impl Memory {
    /// The memory of a process, to be read and written.
    ///
    /// # Errors
    /// `ENOENT`: no such process. `EACCES`, `EPERM`: the caller may not trace it.
    pub fn of(process: u32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
        Ok(Self { file })
    }

    /// Fills `into` with what is at `address`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Refused> {
        let length = into.len();
        each(address, length, |done, at| self.file.read_at(&mut into[done..], at))
    }

    /// Puts `bytes` to `address`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        each(address, bytes.len(), |done, at| self.file.write_at(&bytes[done..], at))
    }

    /// The word of 8 bytes at `address`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn word(&self, address: u64) -> Result<u64, Refused> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Has a process have the page of an address, and waits for it if user space serves it (process_vm_readv(2)). It may be gone again at once.
///
/// # Errors
/// `EFAULT`: there is none. `ESRCH`, `EPERM`: no such process, or the caller may not trace it.
pub fn bring(process: u32, address: u64) -> io::Result<()> {
    let end = address.checked_add(1).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
    match gather(process, std::slice::from_ref(&(address..end)), &mut [0])? {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Copies what a process has at these places, one after the other, as it could read it itself: pages are made, and waited for, and what it
/// may not read is refused (process_vm_readv(2)). How many bytes that are: as far as `into` goes, or the first place where there is nothing.
///
/// # Errors
/// `EFAULT`: there is nothing at the first place. `EINVAL`: more than 1024 places. `ESRCH`, `EPERM`: no such process, or the caller may not
/// trace it.
pub fn gather(process: u32, places: &[Range<u64>], into: &mut [u8]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = remote(places);
    let (process, count) = (process.cast_signed(), there.len() as libc::c_ulong);
    // SAFETY: `here` is `into`, which is ours to write to over the call; the other addresses are of that process.
    let copied =
        unsafe { libc::process_vm_readv(process, &raw const here, 1, there.as_ptr(), count, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// As [`gather`], the other way round: as the process could write it itself (process_vm_writev(2)).
///
/// # Errors
/// As for [`gather`].
pub fn scatter(process: u32, bytes: &[u8], places: &[Range<u64>]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let there = remote(places);
    let (process, count) = (process.cast_signed(), there.len() as libc::c_ulong);
    // SAFETY: `here` is `bytes`, which is only read; the other addresses are of that process, as those that [`Memory::write`] is given.
    let copied =
        unsafe { libc::process_vm_writev(process, &raw const here, 1, there.as_ptr(), count, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

fn remote(places: &[Range<u64>]) -> Vec<libc::iovec> {
    let place = |one: &Range<u64>| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(one.start as usize),
        iov_len: one.end.saturating_sub(one.start) as usize,
    };
    places.iter().map(place).collect()
}

/// Goes on after every part: the kernel comes as far as the first page that it cannot have.
fn each(
    address: u64,
    length: usize,
    mut part: impl FnMut(usize, u64) -> io::Result<usize>,
) -> Result<(), Refused> {
    let mut done = 0;
    while done < length {
        let at = address.wrapping_add(done as u64);
        match part(done, at) {
            Ok(0) => return Err(Refused::Gone),
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                return Err(Refused::Missing { address: at });
            }
            Err(error) => return Err(Refused::System(error)),
        }
    }
    Ok(())
}
