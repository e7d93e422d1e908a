//! Reading directories without opening them.
//!
//! The server answers `opendir` with `ENOSYS`, upon which the kernel no longer sends it; this saves
//! two round trips per listing. A request to read a directory then carries only the position to
//! continue from, which is the host's own cookie. The host's stream is kept open with the inode and
//! remains at the position of the last request. A request for another position seeks, which the
//! host's file systems do by hash or tree and not by counting.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The number of bytes of entries that are read from the host at once.
const BATCH: usize = 32 * 1024;

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) number: u64,
    pub(crate) kind: FileType,
    /// The position after this entry.
    pub(crate) next: u64,
}

/// A stream of the entries of a directory on the host.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: Arc<OwnedFd>,
    position: u64,
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), position: 0 }
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Passes the entries from `position` on to `take` until it returns `false` or there are no
    /// more.
    pub(crate) fn read(
        &mut self,
        position: u64,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Result<(), Errno> {
        // From the beginning the stream is always read anew: the host may have read ahead entries
        // that have changed since.
        if position != self.position || position == 0 {
            rustix::fs::seek(&self.fd, SeekFrom::Start(position))?;
            self.position = position;
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); BATCH];
        let mut host_position = self.position;
        let mut entries = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let next = entry.next_entry_cookie();
            host_position = next;
            let taken = take(Entry {
                name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                number: entry.ino(),
                kind: entry.file_type(),
                next,
            });
            if !taken {
                // The host's stream is positioned after the whole batch; the next request seeks
                // back.
                self.position = u64::MAX;
                return Ok(());
            }
        }
        self.position = host_position;
        Ok(())
    }
}
