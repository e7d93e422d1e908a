//! The paths of a write: into the cache, to be stored later; into the cache and stored at once;
//! past the cache.
//!
//! Storing data later can fail after the program has been told that the data is written. Therefore:
//!
//! * Data that the kernel has cached is stored before it is answered. The kernel reports a failure
//!   at `close`, `fsync` and `msync` and has forgotten the data by then, so the data is kept and
//!   written again later, as long as there is room for it.
//! * Where the kernel caches writes it does not report `close`, so writes to a file with direct
//!   access are stored before they are answered, too.
//! * On a direct mount a write is stored when the file is closed, or two seconds later.
//! * Where the host is short of space, and while some data cannot be stored, writes bypass the
//!   cache: the program receives the host's own result, including a short write.

use crate::data::Data;
use crate::inode::Inode;
use crate::server::Server;
use crate::values::Access;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// A write that makes a file larger than this first asks the host whether the file can be that
/// large.
const PROBED_SIZE: u64 = 1 << 40;

/// The time within which the kernel reports that a removed file is closed and forgotten.
const FORGET_TIMEOUT: Duration = Duration::from_millis(500);

/// The treatment of dirty pages in the range of a write that bypasses the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// They are stored first.
    Stored,
    /// They are discarded: they hold bytes of this very write, which could not be stored.
    GivenUp,
}

impl Server {
    /// Writes data that may be stored later, provided that the program can be told of a later
    /// failure.
    pub(crate) fn write_cached(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let data = self.data(inode, Access::Write)?;
        let put = self.put(&data, offset, bytes);
        inode.record.grow(data.cache.size());
        // Where the kernel does not report a close, there is no occasion to report a failure.
        let stored = match put {
            Ok(n) if self.write_back => self.memory.flush(&data, offset, offset + n as u64),
            _ => Ok(()),
        };
        drop(data);
        match (put, stored) {
            (Ok(n), Ok(())) => {
                self.written(inode, false);
                Ok(n)
            }
            (Ok(_), Err(errno)) => {
                // None of it is kept, but the next write must know.
                let _ = self.note_stored(inode, Err(errno));
                self.write_past_cache(inode, offset, bytes, Dirty::GivenUp)
            }
            (Err(Errno::FBIG), _) => Err(Errno::FBIG),
            // The cache found no frames, or the host could not be read.
            (Err(_), _) => self.write_past_cache(inode, offset, bytes, Dirty::Stored),
        }
    }

    /// Writes data that the kernel has cached. It is stored when this returns, or kept to be
    /// written again later.
    pub(crate) fn write_collected(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let outcome = {
            let data = self.data(inode, Access::Write)?;
            let end = offset + bytes.len() as u64;
            let put = self.put_all(&data, offset, bytes);
            inode.record.grow(data.cache.size());
            put.and_then(|()| self.memory.flush(&data, offset, end)).map(|()| bytes.len())
        };
        self.written(inode, true);
        let Err(errno) = outcome else { return outcome };
        let _ = self.note_stored(inode, Err(errno));
        if self.may_keep(errno) {
            return Err(errno);
        }
        // The data does not stay in the cache: it is written past the cache, and the kernel gets
        // the host's error and reports it to the program.
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let write = self.write_past_cache(inode, at, &bytes[done..], Dirty::GivenUp);
            // The kernel keeps showing the data that it has cached, and the size that came with it.
            done += write.inspect_err(|_| inode.set_stale_in_kernel())?;
        }
        Ok(bytes.len())
    }

    /// Returns whether data that could not be stored is kept. It is not if it can never be stored
    /// or if it occupies frames that others need.
    fn may_keep(&self, errno: Errno) -> bool {
        let frames = &self.memory.frames;
        errno != Errno::FBIG && frames.dirty_frames() < frames.frames() / 2
    }

    /// Puts bytes into the cache. Returns how many, or the error if there are none.
    fn put(&self, data: &Data, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let end = offset + bytes.len() as u64;
        if end > PROBED_SIZE && end > data.cache.size() {
            self.memory.with_frames(|| data.cache.truncate(end))?;
        }
        self.memory.write(data, offset, bytes)
    }

    fn put_all(&self, data: &Data, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.put(data, offset + done as u64, &bytes[done..])?;
        }
        Ok(())
    }

    /// Writes to the host's file and not to the cache, which learns the result afterwards.
    pub(crate) fn write_past_cache(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
        dirty: Dirty,
    ) -> Result<usize, Errno> {
        drop(self.data(inode, Access::Write)?);
        // Locked exclusively: no other thread may have unstored data in these pages.
        let slot = inode.data.write();
        let data = slot.as_ref().ok_or(Errno::IO)?;
        let end = offset + bytes.len() as u64;
        if dirty == Dirty::Stored {
            self.memory.flush(data, offset, end)?;
        }
        if dirty == Dirty::GivenUp {
            self.memory.with_frames(|| data.cache.forget(offset, end))?;
        }
        self.memory.with_frames(|| data.cache.invalidate(offset, end))?;
        let mut outcome = data.host.write_some(offset, bytes);
        if matches!(outcome, Err(Errno::NOSPC | Errno::DQUOT)) && self.room_was_made() {
            outcome = data.host.write_some(offset, bytes);
        }
        self.memory.with_frames(|| data.cache.invalidate(offset, end))?;
        self.changed_on_host(inode, data);
        outcome
    }

    /// Waits for recently removed files, and returns whether there were any. Their blocks become
    /// free once the kernel has reported them as closed and forgotten, which happens shortly after
    /// the removal.
    fn room_was_made(&self) -> bool {
        let removed = *self.space.removed.lock();
        let recent = || removed.is_some_and(|removed| removed.elapsed() < FORGET_TIMEOUT);
        // In this order: a file that has left the table counts as ending until it is closed.
        let pending =
            || self.table.all().iter().any(|inode| inode.is_gone()) || self.space.any_ends();
        if !recent() {
            return false;
        }
        while recent() && pending() {
            // Polled: closing a file, which happens all the time, would have to wake this thread,
            // which exists only on a full disk. `FORGET_TIMEOUT` after the removal bounds it.
            std::thread::sleep(FORGET_TIMEOUT / 50);
        }
        true
    }
}
