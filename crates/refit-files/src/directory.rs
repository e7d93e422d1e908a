//! Reading directories without opening them.
//!
//! The kernel is told not to announce that a directory is opened (`opendir` answers `ENOSYS`), which saves two round
//! trips for each listing. So a request to read a directory carries nothing but the position to go on from: the host's
//! own cookie. The host's stream is kept open with the inode and stands where the last request left it; a request
//! from somewhere else seeks, which the host's file systems do by hash or tree, not by counting.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Bytes of entries read from the host at once.
const BATCH: usize = 32 * 1024;

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) number: u64,
    pub(crate) kind: FileType,
    /// Where to go on after this one.
    pub(crate) next: u64,
}

/// The host's directory stream.
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

    /// Hands the entries from `position` on to `take` until that answers false or there are no more.
    pub(crate) fn read(
        &mut self,
        position: u64,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Result<(), Errno> {
        // From the beginning always anew: the host may have read ahead what has changed since.
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
                // The host's stream stands behind the whole batch; the next request will seek back.
                self.position = u64::MAX;
                return Ok(());
            }
        }
        self.position = host_position;
        Ok(())
    }
}
