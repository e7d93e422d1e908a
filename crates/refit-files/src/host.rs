//! The file representative: the host's file behind a cache.

use parking_lot::RwLock;
use refit_memory::FileRepresentative;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// What a file has to be open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// An inode of the host, held by one descriptor, so that a mount needs no more of them than it has inodes.
///
/// It begins as what is asked for, mostly `O_PATH`, and is opened for reading when it is read and for writing when a
/// write comes: a program that is only run or read is never "text file busy" on the host. The descriptor that was
/// there before is closed when the last one who uses it is done.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// Protects which descriptor it is; held for no system call.
    held: RwLock<Held>,
}

#[derive(Debug)]
struct Held {
    /// What `fd` is open for; `None` for `O_PATH`.
    access: Option<Access>,
    closed: bool,
    fd: Arc<OwnedFd>,
}

impl HostFile {
    /// The inode that `fd` stands for; nothing is opened yet.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { held: RwLock::new(Held { access: None, closed: false, fd: Arc::new(fd) }) }
    }

    /// A file that was opened for reading and writing when it was created.
    pub(crate) fn opened(fd: OwnedFd) -> Self {
        Self {
            held: RwLock::new(Held {
                access: Some(Access::Write),
                closed: false,
                fd: Arc::new(fd),
            }),
        }
    }

    /// The descriptor that there is now. It may be closed as soon as what this returns is dropped.
    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        self.held.read().fd.clone()
    }

    /// A descriptor that is open for `access`.
    pub(crate) fn ensure(&self, access: Access) -> Result<Arc<OwnedFd>, Errno> {
        let before = {
            let held = self.held.read();
            if held.closed {
                return Err(Errno::STALE);
            }
            if held.access >= Some(access) {
                return Ok(held.fd.clone());
            }
            held.fd.clone()
        };
        let flags = if access == Access::Write { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = Arc::new(reopen(&before, flags)?);
        let mut held = self.held.write();
        if held.access < Some(access) && !held.closed {
            (held.access, held.fd) = (Some(access), fd.clone());
        }
        Ok(fd)
    }

    /// Closes the descriptor of a file that nobody knows any more: the blocks of one that was removed become free now,
    /// and not when the last object that refers to it is gone. `other` stands in its place.
    pub(crate) fn close(&self, other: Arc<OwnedFd>) {
        *self.held.write() = Held { access: None, closed: true, fd: other };
    }
}

impl HostFile {
    /// The file was read, perhaps from its cache only. A small read lets the host keep the time of access by its own
    /// rules (`relatime`, `noatime`); setting the time would change the change time too.
    pub(crate) fn note_access(&self) {
        if let Ok(fd) = self.ensure(Access::Read) {
            let _ = rustix::io::pread(&fd, &mut [0; 1], 0);
        }
    }

    /// Writes as much of `bytes` as the host takes; how many, or the error if it takes none.
    pub(crate) fn write_some(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match self.store(offset, bytes)? {
            (0, Some(errno)) => Err(errno),
            (done, _) => Ok(done),
        }
    }

    /// Writes as much of `bytes` as the host takes: how many, and why not all of them.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(usize, Option<Errno>), Errno> {
        let fd = self.ensure(Access::Write)?;
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&fd, &bytes[done..], offset + done as u64) {
                // POSIX gives no reason for it.
                Ok(0) => return Ok((done, Some(Errno::IO))),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Ok((done, Some(errno))),
            }
        }
        Ok((done, None))
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
            match rustix::io::pread(&fd, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        let (_, why) = self.store(offset, data).map_err(Errno::raw_os_error)?;
        why.map_or(Ok(()), |errno| Err(errno.raw_os_error()))
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        rustix::fs::ftruncate(fd, size).map_err(Errno::raw_os_error)
    }

    fn size(&self) -> Result<u64, i32> {
        let stat = rustix::fs::fstat(self.fd()).map_err(Errno::raw_os_error)?;
        Ok(stat.st_size as u64)
    }

    fn sync(&self, data_only: bool) -> Result<(), i32> {
        let fd = self.ensure(Access::Read).map_err(Errno::raw_os_error)?;
        let done = if data_only { rustix::fs::fdatasync(&fd) } else { rustix::fs::fsync(&fd) };
        done.map_err(Errno::raw_os_error)
    }

    fn punch(&self, start: u64, end: u64) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = end.saturating_sub(start);
        rustix::fs::fallocate(fd, flags, start, length).map_err(Errno::raw_os_error)
    }
}
