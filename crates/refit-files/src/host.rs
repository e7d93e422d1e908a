//! The file representative: the host's file behind a cache.

use refit_memory::FileRepresentative;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::sync::{Arc, OnceLock};

/// What a file has to be open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// An open host file. It starts with what is asked for and is opened for writing when a write comes, so that a
/// program that is only run or read is never "text file busy" on the host.
#[derive(Debug)]
pub(crate) struct HostFile {
    inode: Arc<OwnedFd>,
    reading: OnceLock<OwnedFd>,
    writing: OnceLock<Arc<OwnedFd>>,
}

impl HostFile {
    /// The file that `inode` (usually an `O_PATH` descriptor) stands for; nothing is opened yet.
    pub(crate) fn new(inode: Arc<OwnedFd>) -> Self {
        Self { inode, reading: OnceLock::new(), writing: OnceLock::new() }
    }

    /// A file that was opened for reading and writing when it was created.
    pub(crate) fn opened(inode: Arc<OwnedFd>) -> Self {
        let file = Self::new(inode.clone());
        let _ = file.writing.set(inode);
        file
    }

    /// Opens the file for `access` unless it is.
    pub(crate) fn ensure(&self, access: Access) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(fd) = self.writing.get() {
            return Ok(fd.as_fd());
        }
        match access {
            Access::Write => {
                let fd = Arc::new(reopen(&self.inode, OFlags::RDWR)?);
                Ok(self.writing.get_or_init(|| fd).as_fd())
            }
            Access::Read => {
                if let Some(fd) = self.reading.get() {
                    return Ok(fd.as_fd());
                }
                let fd = reopen(&self.inode, OFlags::RDONLY)?;
                Ok(self.reading.get_or_init(|| fd).as_fd())
            }
        }
    }
}

impl HostFile {
    /// The file was read, perhaps from its cache only. A small read lets the host keep the time of access by its own
    /// rules (`relatime`, `noatime`); setting the time would change the change time too.
    pub(crate) fn note_access(&self) {
        if let Ok(fd) = self.ensure(Access::Read) {
            let _ = rustix::io::pread(fd, &mut [0; 1], 0);
        }
    }
}

/// Opens what a descriptor stands for once more; never goes through a name.
pub(crate) fn reopen(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(proc_path(fd), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// The path by which the kernel reaches what `fd` stands for.
pub(crate) fn proc_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl FileRepresentative for HostFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        let fd = self.ensure(Access::Read).map_err(Errno::raw_os_error)?;
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(fd, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(fd, &data[done..], offset + done as u64) {
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        rustix::fs::ftruncate(fd, size).map_err(Errno::raw_os_error)
    }

    fn size(&self) -> Result<u64, i32> {
        let stat = rustix::fs::fstat(&*self.inode).map_err(Errno::raw_os_error)?;
        Ok(stat.st_size as u64)
    }

    fn sync(&self, data_only: bool) -> Result<(), i32> {
        let fd = self.ensure(Access::Read).map_err(Errno::raw_os_error)?;
        let done = if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
        done.map_err(Errno::raw_os_error)
    }

    fn punch(&self, start: u64, end: u64) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = end.saturating_sub(start);
        rustix::fs::fallocate(fd, flags, start, length).map_err(Errno::raw_os_error)
    }
}
