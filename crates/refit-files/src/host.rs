//! The file representative: the host's file behind a cache.

use crate::image::record::Record;
use crate::image::recorded::RecordedInode;
use crate::values::Access;
use crate::version::KnownVersion;
use parking_lot::RwLock;
use refit_memory::{DiskWork, FileRepresentative, may_wait};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::sync::{Arc, OnceLock};

/// An inode of the host, held by one descriptor, so that a mount needs no more descriptors than it
/// has inodes.
///
/// The descriptor is created as the caller asks, usually with `O_PATH`. It is reopened for reading
/// at the first read and for writing at the first write, so that a program that is only run or read
/// never causes `ETXTBSY` on the host. The previous descriptor is closed when its last user has
/// finished.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// The current descriptor. The lock is not held during system calls.
    held: RwLock<Descriptor>,
    version: KnownVersion,
    /// Determined at the first read that must not wait.
    reads: OnceLock<Reads>,
}

#[derive(Debug)]
struct Descriptor {
    /// Where the descriptor is recorded for the next server; `None` for a file without an inode.
    record: Option<Arc<Record>>,
    /// The access for which `fd` is open; `None` for `O_PATH`.
    access: Option<Access>,
    closed: bool,
    fd: Arc<OwnedFd>,
}

impl HostFile {
    /// Creates the host file of the inode that `fd` refers to, without opening it.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self::with(Arc::new(fd), None)
    }

    /// Creates the host file of a file that was opened for reading and writing when it was created.
    pub(crate) fn opened(fd: OwnedFd) -> Self {
        Self::with(Arc::new(fd), Some(Access::Write))
    }

    fn with(fd: Arc<OwnedFd>, access: Option<Access>) -> Self {
        let held = Descriptor { record: None, access, closed: false, fd };
        let held = RwLock::new(held);
        Self { held, version: KnownVersion::default(), reads: OnceLock::new() }
    }

    /// Creates the host file of an inode that another server has served.
    pub(crate) fn continued(fd: Arc<OwnedFd>, inode: &RecordedInode) -> Self {
        let file = Self::with(fd, inode.access());
        file.version.continued(inode);
        file
    }

    /// Records the descriptor and the version in the record of the inode from now on.
    pub(crate) fn keep_in(&self, record: &Arc<Record>) {
        let mut held = self.held.write();
        record.set_descriptor(held.fd.as_raw_fd(), held.access);
        held.record = Some(Arc::clone(record));
        drop(held);
        self.version.keep_in(record);
    }

    /// Returns the current descriptor. It may be closed as soon as the returned reference is
    /// dropped.
    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        self.held.read().fd.clone()
    }

    /// Returns a descriptor that is open for `access`, and reopens the file if necessary.
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
            let replaced = std::mem::replace(&mut held.fd, fd.clone());
            held.access = Some(access);
            if let Some(record) = &held.record {
                record.set_descriptor(fd.as_raw_fd(), held.access);
            }
            drop(replaced);
        }
        Ok(fd)
    }

    /// Closes the descriptor of a file that the kernel has forgotten, and puts `other` in its
    /// place. The blocks of a removed file become free now and not when the last object that refers
    /// to it is dropped.
    pub(crate) fn close(&self, other: Arc<OwnedFd>) {
        let mut held = self.held.write();
        if let Some(record) = &held.record {
            record.clear_descriptor();
        }
        *held = Descriptor { record: None, access: None, closed: true, fd: other };
    }
}

/// The version that the caches know; see [`KnownVersion`].
impl HostFile {
    /// Makes a change to the host's file that the caches know of.
    pub(crate) fn changing<T>(&self, change: impl FnOnce() -> T) -> T {
        self.version.changing(|| rustix::fs::fstat(self.fd()), change)
    }

    /// Returns whether the file, whose status is `stat`, may have been changed by others. While the
    /// server changes the file only [`changed_by_others`](Self::changed_by_others) can tell; the
    /// result is then `surely`.
    pub(crate) fn may_have_changed(&self, stat: &Stat, surely: bool) -> bool {
        self.version.may_have_changed(stat, surely)
    }

    /// Returns whether the file has been changed by others since the version that the caches know.
    pub(crate) fn changed_by_others(&self) -> Result<bool, Errno> {
        self.version.changed_by_others(|| rustix::fs::fstat(self.fd()))
    }

    /// Records that the caches hold nothing older than `stat`, which was read before they dropped
    /// their data.
    pub(crate) fn caches_know(&self, stat: &Stat) {
        self.version.caches_know(stat);
    }
}

impl HostFile {
    /// Updates the access time of a file that was read, perhaps only from its cache. A small read
    /// lets the host apply its own rules (`relatime`, `noatime`); setting the time would also
    /// change the change time.
    pub(crate) fn note_access(&self) {
        if let Ok(fd) = self.ensure(Access::Read) {
            let _ = rustix::io::pread(&fd, &mut [0; 1], 0);
        }
    }

    /// Writes as much of `bytes` as the host accepts, and returns how much that was; returns the
    /// error if the host accepts nothing.
    pub(crate) fn write_some(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match self.store(offset, bytes)? {
            (0, Some(errno)) => Err(errno),
            (done, _) => Ok(done),
        }
    }

    /// Writes as much of `bytes` as the host accepts. Returns how much that was, and the reason for
    /// a short write.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(usize, Option<Errno>), Errno> {
        let fd = self.ensure(Access::Write)?;
        self.changing(|| {
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
        })
    }
}

/// Opens the file that a descriptor refers to once more, without resolving a name.
pub(crate) fn reopen(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(proc_path(fd), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Returns the path under which the kernel reaches the file that `fd` refers to.
pub(crate) fn proc_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Fills `buf` with `read`, which is given the destination and the offset. Returns the number of
/// bytes before the end of the file.
pub(crate) fn read_all(
    offset: u64,
    buf: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match read(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Whether reads of a file system can be prevented from waiting for its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Reads never wait, because the file system is in memory.
    Never,
    /// The file system supports `RWF_NOWAIT`, or reports that it does not.
    Reported,
    /// Reads may wait without notice: FUSE accepts the flag and waits anyway.
    Unknown,
}

impl Reads {
    /// Returns the kind of reads of the file system of `fd`.
    fn of(fd: &OwnedFd) -> Self {
        match rustix::fs::fstatfs(fd).map(|figures| figures.f_type) {
            Ok(libc::TMPFS_MAGIC | RAMFS_MAGIC) => Self::Never,
            Ok(libc::FUSE_SUPER_MAGIC) => Self::Unknown,
            _ => Self::Reported,
        }
    }
}

/// `f_type` of ramfs.
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// The maximum number of bytes that are fetched at once.
const FETCH_SIZE: u64 = 128 << 10;

/// Makes the host read the data into its cache, and discards it.
fn fetch(fd: &OwnedFd, offset: u64, len: u64) -> Result<(), i32> {
    let mut buf = vec![0; usize::try_from(len.min(FETCH_SIZE)).unwrap_or(usize::MAX)];
    let mut done = 0;
    while done < len {
        let part = usize::try_from(len - done).map_or(buf.len(), |left| left.min(buf.len()));
        let pread = |buf: &mut [u8], at| rustix::io::pread(fd, buf, at);
        let n = read_all(offset + done, &mut buf[..part], pread).map_err(Errno::raw_os_error)?;
        if n < part {
            break;
        }
        done += n as u64;
    }
    Ok(())
}

impl Drop for HostFile {
    fn drop(&mut self) {
        // The record must not name a descriptor that is closed, and perhaps reused.
        if let Some(record) = &self.held.get_mut().record {
            record.clear_descriptor();
        }
    }
}

impl FileRepresentative for HostFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        let fd = self.ensure(Access::Read).map_err(Errno::raw_os_error)?;
        let waiting = |buf: &mut [u8], at| rustix::io::pread(&fd, buf, at);
        let not_waiting = |buf: &mut [u8], at| {
            let mut buf = [IoSliceMut::new(buf)];
            rustix::io::preadv2(&fd, &mut buf, at, ReadWriteFlags::NOWAIT)
        };
        if may_wait() {
            return read_all(offset, buf, waiting).map_err(Errno::raw_os_error);
        }
        match *self.reads.get_or_init(|| Reads::of(&fd)) {
            Reads::Never => read_all(offset, buf, waiting),
            Reads::Unknown => Err(Errno::AGAIN),
            Reads::Reported => read_all(offset, buf, not_waiting).map_err(|errno| match errno {
                Errno::OPNOTSUPP => Errno::AGAIN,
                errno => errno,
            }),
        }
        .map_err(Errno::raw_os_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        let (_, why) = self.store(offset, data).map_err(Errno::raw_os_error)?;
        why.map_or(Ok(()), |errno| Err(errno.raw_os_error()))
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        self.changing(|| rustix::fs::ftruncate(fd, size)).map_err(Errno::raw_os_error)
    }

    fn size(&self) -> Result<u64, i32> {
        let stat = rustix::fs::fstat(self.fd()).map_err(Errno::raw_os_error)?;
        Ok(stat.st_size as u64)
    }

    fn sync(&self, data_only: bool) -> Result<(), i32> {
        self.sync_work(data_only)?.run()
    }

    fn punch(&self, start: u64, end: u64) -> Result<(), i32> {
        let fd = self.ensure(Access::Write).map_err(Errno::raw_os_error)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = end.saturating_sub(start);
        self.changing(|| rustix::fs::fallocate(fd, flags, start, length))
            .map_err(Errno::raw_os_error)
    }

    fn sync_work(&self, data_only: bool) -> Result<DiskWork, i32> {
        let fd = self.ensure(Access::Read).map_err(Errno::raw_os_error)?;
        Ok(DiskWork::new(move || {
            let done = if data_only { rustix::fs::fdatasync(&fd) } else { rustix::fs::fsync(&fd) };
            done.map_err(Errno::raw_os_error)
        }))
    }

    fn fetch_work(&self, offset: u64, len: u64) -> Result<DiskWork, i32> {
        let fd = self.ensure(Access::Read).map_err(Errno::raw_os_error)?;
        Ok(DiskWork::new(move || fetch(&fd, offset, len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_memory::without_waiting;
    use std::fs::File;
    use std::io::Write;

    /// Creates a file of `bytes` that is on the host's disk and not in its cache, where the host
    /// permits that.
    fn cold(bytes: &[u8]) -> HostFile {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        HostFile::opened(file.into())
    }

    #[test]
    fn what_is_not_in_memory_is_fetched_first() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let host = cold(&bytes);
        let mut read = vec![0; bytes.len() + 10];
        if let Err(errno) = without_waiting(|| host.read(0, &mut read)) {
            assert_eq!(errno, libc::EAGAIN);
        }
        host.fetch_work(0, read.len() as u64).unwrap().run().unwrap();
        assert_eq!(host.read(0, &mut read), Ok(bytes.len()));
        assert!(read[..bytes.len()] == bytes);
    }

    #[test]
    fn a_file_system_in_memory_is_read_at_once() {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(memory);
        file.write_all(b"bytes").unwrap();
        let host = HostFile::opened(file.into());
        let mut read = [0; 5];
        assert_eq!(without_waiting(|| host.read(0, &mut read)), Ok(5));
        assert_eq!(&read, b"bytes");
    }

    #[test]
    fn the_work_outlives_the_file() {
        let host = cold(b"bytes");
        let works = [host.sync_work(false).unwrap(), host.fetch_work(0, 1 << 20).unwrap()];
        drop(host);
        assert!(works.into_iter().all(|work| work.run().is_ok()));
    }
}
