//! The memory of another process: `/proc/PID/mem` (proc_pid_mem(5)).
//!
//! Unlike `process_vm_readv`, reading and writing here never waits for a page whose faults user
//! space serves: such a page is [`AccessError::Missing`], and the caller has to resolve it first.
//! Writing needs no write permission either: a private read-only page, such as one of code, is
//! copied first. Addresses are those of the process.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The memory that a process had when this was opened, until the process ends or executes another
/// program.
#[derive(Debug)]
pub struct Memory {
    file: File,
}

/// Why memory could not be read or written.
#[derive(Debug)]
pub enum AccessError {
    /// The page at this address is not available without waiting: nothing is mapped there, its
    /// fault has to be resolved, or it lies beyond the end of its file (`EIO`). Everything before
    /// it was read or written.
    Missing {
        /// The first such address.
        address: u64,
    },
    /// The process has ended, or executes another program.
    Gone,
    /// Any other error.
    System(io::Error),
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessError::Missing { address } => write!(f, "there is no page at {address:#x}"),
            AccessError::Gone => write!(f, "the process whose memory it was is gone"),
            AccessError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AccessError {}

impl From<AccessError> for io::Error {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Missing { .. } => io::Error::from_raw_os_error(libc::EIO),
            AccessError::Gone => io::Error::from_raw_os_error(libc::ESRCH),
            AccessError::System(error) => error,
        }
    }
}

impl Memory {
    /// Opens the memory of a process for reading and writing.
    ///
    /// # Errors
    /// `ENOENT`: no such process. `EACCES`, `EPERM`: the caller may not trace it.
    pub fn of(process: u32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
        Ok(Self { file })
    }

    /// Fills `into` with the bytes at `address`.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let length = into.len();
        each(address, length, |done, at| self.file.read_at(&mut into[done..], at))
    }

    /// Writes `bytes` to `address`.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        each(address, bytes.len(), |done, at| self.file.write_at(&bytes[done..], at))
    }

    /// Returns the word of 8 bytes at `address`.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn word(&self, address: u64) -> Result<u64, AccessError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Faults in the page of an address of a process, and waits for it if user space serves it
/// (process_vm_readv(2)). The page may be evicted again at once.
///
/// # Errors
/// `EFAULT`: nothing is mapped there. `ESRCH`: no such process. `EPERM`: the caller may not trace
/// it.
pub fn bring(process: u32, address: u64) -> io::Result<()> {
    let end = address.checked_add(1).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
    match gather(process, std::slice::from_ref(&(address..end)), &mut [0])? {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Copies the contents of these ranges, one after the other, with the process's own permissions
/// (process_vm_readv(2)): pages are faulted in and waited for, and memory that the process may not
/// read is an error. Returns the number of bytes copied: all of `into`, or those up to the first
/// address that is not accessible.
///
/// # Errors
/// `EFAULT`: the first address is not accessible. `EINVAL`: more than 1024 ranges. `ESRCH`: no such
/// process. `EPERM`: the caller may not trace it.
pub fn gather(process: u32, places: &[Range<u64>], into: &mut [u8]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = remote(places);
    let (process, count) = (process.cast_signed(), there.len() as libc::c_ulong);
    // SAFETY: `here` is `into`, which this call may write to; the other addresses are those of that
    // process.
    let copied =
        unsafe { libc::process_vm_readv(process, &raw const here, 1, there.as_ptr(), count, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// As [`gather`], in the other direction: writes with the process's own permissions
/// (process_vm_writev(2)).
///
/// # Errors
/// As [`gather`].
pub fn scatter(process: u32, bytes: &[u8], places: &[Range<u64>]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let there = remote(places);
    let (process, count) = (process.cast_signed(), there.len() as libc::c_ulong);
    // SAFETY: `here` is `bytes`, which is only read; the other addresses are those of that process,
    // as in [`Memory::write`].
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

/// Repeats after each partial transfer: the kernel stops at the first page that is not available.
fn each(
    address: u64,
    length: usize,
    mut part: impl FnMut(usize, u64) -> io::Result<usize>,
) -> Result<(), AccessError> {
    let mut done = 0;
    while done < length {
        let at = address.wrapping_add(done as u64);
        match part(done, at) {
            Ok(0) => return Err(AccessError::Gone),
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                return Err(AccessError::Missing { address: at });
            }
            Err(error) => return Err(AccessError::System(error)),
        }
    }
    Ok(())
}
