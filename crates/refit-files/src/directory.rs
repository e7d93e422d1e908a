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
    /// Whether nothing has been read from it yet.
    unread: bool,
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), position: 0, unread: true }
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
        if std::mem::take(&mut self.unread) && position != 0 {
            // A stream of ext4 whose first position is the end stays at the end, even if it is
            // rewound (Linux 6.18): its first position is the beginning.
            let mut buffer = [MaybeUninit::<u8>::uninit(); 512];
            let _ = RawDir::new(&self.fd, &mut buffer).next();
            self.position = u64::MAX;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    fn names(stream: &mut Stream, position: u64) -> (usize, u64) {
        let (mut count, mut end) = (0, position);
        let read = stream.read(position, |entry| {
            (count, end) = (count + 1, entry.next);
            true
        });
        read.unwrap();
        (count, end)
    }

    #[test]
    fn a_stream_that_begins_at_the_end_can_be_rewound() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let stream = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            Stream::new(rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap())
        };
        let (count, end) = names(&mut stream(), 0);
        assert_eq!(count, 3);
        let mut other = stream();
        assert_eq!(names(&mut other, end).0, 0);
        assert_eq!(names(&mut other, 0).0, 3);
    }
}
