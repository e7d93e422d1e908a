//! Descriptors by their numbers: those that a process takes over from another one, of which it
//! knows only the numbers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;

use crate::pidfd::Pidfd;

/// A process whose descriptors can be taken over.
pub trait Descriptors {
    /// Takes over the descriptor `number`.
    ///
    /// # Errors
    /// `EBADF`: there is no such descriptor, or it was taken before.
    fn take(&self, number: RawFd) -> io::Result<OwnedFd>;
}

/// The descriptors of this process that were opened by a process with which it shares, or shared,
/// its table of descriptors: they are open, but no value of this process owns them.
#[derive(Debug)]
pub struct Inherited {
    /// For each number, whether the descriptor is open and has not been taken.
    left: Mutex<Vec<bool>>,
}

impl Inherited {
    /// Finds the descriptors that are open, except those of `owned`.
    ///
    /// # Safety
    /// Every descriptor that a value of this process owns is in `owned`.
    pub(crate) unsafe fn new(owned: &[RawFd]) -> Self {
        let mut left = vec![false; table_size() as usize];
        for number in Self::open_descriptors() {
            left[number as usize] = !owned.contains(&number);
        }
        Self { left: Mutex::new(left) }
    }

    /// Returns the numbers of the descriptors of this process, in order.
    pub(crate) fn open_descriptors() -> Vec<RawFd> {
        // SAFETY: the call only asks whether the number is that of a descriptor.
        let open = |number: &RawFd| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        (0..table_size()).filter(open).collect()
    }

    /// Closes the descriptors that have not been taken.
    pub fn close_rest(&self) {
        let mut left = self.left.lock();
        let mut number = 0;
        for run in left.chunk_by(|a, b| a == b) {
            let (first, last) = (number, number + run.len() - 1);
            if run[0] {
                // SAFETY: no value of this process owns the descriptors of this run, since none has
                // been taken.
                unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            }
            number = last + 1;
        }
        left.clear();
    }
}

impl Descriptors for Inherited {
    fn take(&self, number: RawFd) -> io::Result<OwnedFd> {
        let mut left = self.left.lock();
        let index = usize::try_from(number).map_err(|_| bad_descriptor())?;
        let left = left.get_mut(index).filter(|left| **left).ok_or_else(bad_descriptor)?;
        *left = false;
        // SAFETY: the descriptor is open, and no value of this process owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// Another process, whose descriptors are copied.
#[derive(Debug)]
pub struct OtherProcess {
    process: Pidfd,
}

impl OtherProcess {
    /// Opens the process with this number.
    ///
    /// # Errors
    /// As for [`Pidfd::open`].
    pub fn open(process: u32) -> io::Result<Self> {
        Ok(Self { process: Pidfd::open(process)? })
    }
}

impl Descriptors for OtherProcess {
    /// Copies the descriptor `number`; the process keeps its own. See [`Pidfd::get_fd`].
    fn take(&self, number: RawFd) -> io::Result<OwnedFd> {
        self.process.get_fd(u32::try_from(number).map_err(|_| bad_descriptor())?)
    }
}

fn bad_descriptor() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// Takes over a descriptor that the process that executed this program has passed to it by its
/// number. The descriptor is closed on `exec`.
///
/// # Errors
/// `EBADF`: there is no such descriptor.
pub(crate) fn passed(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call has no effect on memory.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and whoever passed it left it to this function.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns a number that is greater than that of any descriptor of this process.
fn table_size() -> RawFd {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    // Without /proc nothing is known of the table, and it is searched as far as is usual.
    size.and_then(|size| size.trim().parse().ok()).unwrap_or(1 << 16)
}

/// A file at the number of a descriptor that another file is going to take.
#[derive(Debug)]
pub struct Placeholder {
    number: RawFd,
    file: (u64, u64),
}

impl Placeholder {
    /// Makes the number of `replaced` refer to `file`, and closes what it referred to. The owner of
    /// `replaced` uses `file` from then on, and keeps the descriptor for as long as this value
    /// exists.
    ///
    /// # Errors
    /// The errors of fstat(2) and dup3(2).
    pub fn put(file: impl AsFd, replaced: BorrowedFd<'_>) -> io::Result<Self> {
        let number = replaced.as_raw_fd();
        let identity = identity(file.as_fd())?;
        replace(number, file.as_fd())?;
        Ok(Self { number, file: identity })
    }

    /// Makes the number refer to `by`, and closes the placeholder. The descriptor is closed on
    /// `exec`.
    ///
    /// # Errors
    /// `EBADF`: the owner of the descriptor has closed it. The errors of dup3(2).
    pub fn give_way(self, by: impl AsFd) -> io::Result<()> {
        // SAFETY: the descriptor is only borrowed for the question about its file; if it has been
        // closed, the question fails.
        let now = identity(unsafe { BorrowedFd::borrow_raw(self.number) })?;
        if now != self.file {
            return Err(bad_descriptor());
        }
        replace(self.number, by.as_fd())
    }
}

/// Returns the device and the inode number of an open file.
fn identity(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn replace(number: RawFd, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call has no effect on memory. The number stays valid for its owner, which has
    // lent it, so no descriptor is closed that another value relies on.
    if unsafe { libc::dup3(by.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_placeholder_gives_way_only_while_its_owner_has_it() {
        let file = || crate::memfd::create(c"test", 4, crate::memfd::Pages::Base).unwrap();
        let (replaced, mut other) = UnixStream::pair().unwrap();
        let mut owner = File::from(OwnedFd::from(replaced));
        let placeholder = Placeholder::put(file(), owner.as_fd()).unwrap();
        assert_eq!(owner.read(&mut [1; 8]).unwrap(), 4);
        let (mut far, near) = UnixStream::pair().unwrap();
        placeholder.give_way(&near).unwrap();
        far.write_all(b"x").unwrap();
        assert_eq!(owner.read(&mut [0; 8]).unwrap(), 1);
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0, "what it referred to was closed");

        let placeholder = Placeholder::put(file(), owner.as_fd()).unwrap();
        // Its number may be that of another descriptor now.
        drop(owner);
        let error = placeholder.give_way(&near).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
