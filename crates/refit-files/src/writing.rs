//! The ways of a write: into the cache, to be stored later; into the cache and stored at once; past the cache.
//!
//! What is stored later may not be storable then, after the program has been told that it is written. So:
//!
//! * What the kernel has collected is stored before it is answered. The kernel reports a failure at `close`, `fsync` and
//!   `msync`, and has forgotten the data by then; so the data is kept and tried again, as long as there is room for it.
//! * Where the kernel collects writes, it does not tell of `close`; so writes of a file that is direct there are stored
//!   before they are answered, too.
//! * On a direct mount a write is stored when the file is closed, or two seconds later.
//! * Where the host is short of room, and while something cannot be stored, writes go past the cache: the program gets
//!   the host's own answer, a part of the bytes included.

use crate::data::Data;
use crate::host::Access;
use crate::inode::Inode;
use crate::server::Server;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A write that makes a file larger than this asks the host first whether it can be that large.
const PROBED_SIZE: u64 = 1 << 40;

/// How long the kernel may take to tell that a file that was removed is closed and forgotten.
const FORGETTING: Duration = Duration::from_millis(500);

/// What becomes of dirty pages under a write that goes past them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// They are stored before.
    Stored,
    /// They are given up: they hold bytes of this very write, which could not be stored.
    GivenUp,
}

impl Server {
    /// A write of a program that may be stored later, where the program can be told of it later.
    pub(crate) fn write_cached(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let data = self.data(inode, Access::Write)?;
        let put = self.put(&data, offset, bytes);
        // Where the kernel tells of no close, there is nothing to report a failure at.
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
                // Nothing of it is kept, but the next one is to know.
                let _ = self.note_stored(inode, Err(errno));
                self.write_past_cache(inode, offset, bytes, Dirty::GivenUp)
            }
            (Err(Errno::FBIG), _) => Err(Errno::FBIG),
            // It found no frames, or the host could not be read.
            (Err(_), _) => self.write_past_cache(inode, offset, bytes, Dirty::Stored),
        }
    }

    /// A write of what the kernel has collected: stored when this returns, or kept to be tried again.
    pub(crate) fn write_collected(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let outcome = {
            let data = self.data(inode, Access::Write)?;
            let end = offset + bytes.len() as u64;
            self.put_all(&data, offset, bytes)
                .and_then(|()| self.memory.flush(&data, offset, end))
                .map(|()| bytes.len())
        };
        self.written(inode, true);
        let Err(errno) = outcome else { return outcome };
        let _ = self.note_stored(inode, Err(errno));
        if self.may_keep(errno) {
            return Err(errno);
        }
        // Programs need the frames: the kernel has been told, and tells the program.
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let write = self.write_past_cache(inode, at, &bytes[done..], Dirty::GivenUp);
            // The kernel goes on showing what it has collected, and the size that this had.
            done += write.inspect_err(|_| inode.stale_in_kernel.store(true, Relaxed))?;
        }
        Ok(bytes.len())
    }

    /// Whether data that could not be stored is kept: not if it never can be, and not if it takes the frames away that
    /// others need.
    fn may_keep(&self, errno: Errno) -> bool {
        let frames = &self.memory.frames;
        errno != Errno::FBIG && frames.dirty_frames() < frames.frames() / 2
    }

    /// Puts bytes into the cache; how many, if that is something.
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

    /// Writes to the host's file and not to the cache, which knows the outcome afterwards.
    pub(crate) fn write_past_cache(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
        dirty: Dirty,
    ) -> Result<usize, Errno> {
        drop(self.data(inode, Access::Write)?);
        // Alone: nobody else may have written to these pages and not stored it yet.
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

    /// Waits for files that were removed a moment ago; whether there were any. Their blocks are free once the kernel has
    /// told that they are closed and forgotten, which comes by itself soon after.
    fn room_was_made(&self) -> bool {
        let removed = *self.space.removed.lock();
        let recent = || removed.is_some_and(|removed| removed.elapsed() < FORGETTING);
        // In this order: a file that has left the table is ending until it is closed.
        let pending =
            || self.table.all().iter().any(|inode| inode.is_gone()) || self.space.any_ends();
        if !recent() {
            return false;
        }
        while recent() && pending() {
            std::thread::sleep(FORGETTING / 50);
        }
        true
    }
}
