//! Memory of another process, from outside: `/proc/PID/mem` (proc_pid_mem(5)).
//!
//! Reading and writing here never waits for a page whose faults user space serves, as `process_vm_readv` does: such a page is
//! [`Refused::Missing`], to be resolved first. Writing does not ask for permission to write either: read-only code is
//! copied first, where it is private. Addresses are those of the process.

use std::fmt;
use std::fs::File;
use std::io;
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
