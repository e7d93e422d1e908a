//! Operations on a file's data.

use crate::capability::Capability;
use crate::data::Data;
use crate::events;
use crate::host::{HostFile, proc_path, reopen};
use crate::image::record::{Flag, Uses};
use crate::inode::Inode;
use crate::modes::CacheMode;
use crate::open_mode::{CACHED, OpenMode, may_write};
use crate::server::{Caller, Server};
use crate::times;
use crate::values::Access;
use crate::writing::Dirty;
use fuser::{FileHandle, INodeNo, WriteFlags};
use refit_sys::credentials::{self, CAP_FSETID};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The maximum number of bytes that one request copies, so that a request stays short.
pub(crate) const COPY_PART: u64 = 16 << 20;

impl Server {
    /// Opens a file. Returns how the kernel accesses its data.
    pub(crate) fn open(&self, caller: Caller, node: u64, flags: i32) -> Result<OpenMode, Errno> {
        let inode = self.inode(node)?;
        let mode = self.open_inode(caller, &inode, flags)?;
        if self.refused.any() {
            self.refused.came_back(caller.pid, &self.open_target(&inode));
        }
        Ok(mode)
    }

    pub(crate) fn open_inode(
        &self,
        caller: Caller,
        inode: &Arc<Inode>,
        flags: i32,
    ) -> Result<OpenMode, Errno> {
        if inode.kind != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let truncates = flags & libc::O_TRUNC != 0;
        if may_write(flags) || truncates {
            self.may_change()?;
        }
        if truncates {
            self.truncate(caller, inode, 0)?;
        }
        let reads_only = !may_write(flags) && !truncates;
        let access = if reads_only { Access::Read } else { Access::Write };
        let cache_mode = self.modes.mode(|| self.table.path(inode));
        let _session = inode.session.write();
        let wanted = cache_mode == CacheMode::Passthrough;
        let mode = match self.backing(inode, access, wanted)? {
            Some(backing) => OpenMode::Passthrough(backing),
            None => self.open_served(inode, access, flags, cache_mode)?,
        };
        if self.sees_opens() {
            self.table.opened(inode, uses(flags, mode == OpenMode::Cached));
            self.journal.opens.fetch_add(1, Relaxed);
        }
        Ok(mode)
    }

    /// Opens a file whose data the server serves.
    fn open_served(
        &self,
        inode: &Arc<Inode>,
        access: Access,
        flags: i32,
        cache_mode: CacheMode,
    ) -> Result<OpenMode, Errno> {
        let data = self.data(inode, access)?;
        let size = data.cache.size();
        if !self.sees_opens() {
            return Ok(OpenMode::Cached);
        }
        // Data that the kernel has already cached can no longer be refused when it is written back.
        let direct = self.modes.direct(cache_mode, flags, size)
            || (self.write_back && may_write(flags) && self.space.short(inode));
        let outdated = self.write_back && inode.record.outdated_lookups() > 0;
        if outdated {
            // The kernel's entry for the name is dropped when the file is closed, so that the
            // kernel looks it up anew.
            inode.set_stale_in_kernel();
        }
        if direct || outdated {
            return Ok(OpenMode::Direct);
        }
        self.send_small(inode, &data, flags);
        Ok(OpenMode::Cached)
    }

    /// Closes a file. [`Self::released`] must follow once the kernel has received the reply.
    pub(crate) fn release(&self, node: u64, flags: i32, handle: FileHandle) -> Result<(), Errno> {
        let inode = self.inode(node)?;
        self.close(&inode, uses(flags, handle == CACHED));
        Ok(())
    }

    /// Ends a close whose reply the kernel has received.
    ///
    /// While the kernel waits for the reply the inode is in use: dropping the name would find the
    /// same inode, with its old time and size. For the kernel to forget these, the name must be
    /// dropped after the reply.
    pub(crate) fn released(&self, node: u64) {
        let Ok(inode) = self.inode(node) else { return };
        self.journal.opens.fetch_sub(1, Release);
        inode.closing.fetch_sub(1, Release);
        if inode.is_open() || !inode.record.take(Flag::StaleInKernel) {
            return;
        }
        let place = self.table.place(&inode);
        self.jobs.submit(move |server| {
            if let Some(notifier) = server.notifier.get() {
                let _ = notifier.inval_entry(INodeNo(place.parent), &place.name);
            }
        });
    }

    pub(crate) fn read(
        &self,
        node: u64,
        offset: u64,
        buf: &mut [u8],
        flags: i32,
    ) -> Result<usize, Errno> {
        let inode = self.inode(node)?;
        if let Some(n) = self.read_ahead(&inode, offset, buf)? {
            return Ok(n);
        }
        let data = self.data(&inode, Access::Read)?;
        let n = {
            let _read = events::READ.span([node, buf.len() as u64]);
            self.memory.read(&data, offset, buf)?
        };
        note_access(&inode, &data, flags);
        self.journal.reads.fetch_add(1, Relaxed);
        self.journal.bytes_read.fetch_add(n as u64, Relaxed);
        Ok(n)
    }

    pub(crate) fn write(
        &self,
        caller: Caller,
        node: u64,
        offset: u64,
        bytes: &[u8],
        how: WriteFlags,
        (flags, direct): (i32, bool),
    ) -> Result<usize, Errno> {
        let inode = self.inode(node)?;
        if direct && self.write_back {
            inode.set_stale_in_kernel();
        }
        offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        let by_kernel_cache = how.contains(WriteFlags::FUSE_WRITE_CACHE);
        if !by_kernel_cache {
            // What the kernel has collected was written before.
            self.may_change()?;
        }
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.drop_set_id(caller, &inode)?;
        }
        self.drop_capability(&inode);
        let write = events::WRITE.span([node, bytes.len() as u64]);
        let n = if by_kernel_cache {
            self.write_collected(&inode, offset, bytes)?
        } else if self.space.short(&inode) {
            self.write_past_cache(&inode, offset, bytes, Dirty::Stored)?
        } else {
            self.write_cached(&inode, offset, bytes)?
        };
        drop(write);
        self.journal.writes.fetch_add(1, Relaxed);
        self.journal.bytes_written.fetch_add(n as u64, Relaxed);
        if !by_kernel_cache && flags & libc::O_DSYNC != 0 {
            self.sync_inode(&inode, flags & libc::O_SYNC != libc::O_SYNC)?;
        }
        Ok(n)
    }

    /// Sets the size of a file.
    pub(crate) fn truncate(
        &self,
        caller: Caller,
        inode: &Arc<Inode>,
        size: u64,
    ) -> Result<(), Errno> {
        let _session = inode.session.read();
        if inode.is_passed_through() {
            let file = self.with_descriptors(|| inode.host.ensure(Access::Write))?;
            inode.host.changing(|| rustix::fs::ftruncate(&*file, size))?;
            return self.drop_privileges(caller, inode);
        }
        let data = self.data(inode, Access::Write)?;
        self.memory.with_frames(|| data.cache.truncate(size))?;
        self.drop_privileges(caller, inode)?;
        self.changed_on_host(inode, &data);
        Ok(())
    }

    /// Records that the host's file was just changed, so that the times of the host are valid
    /// unless more data is waiting.
    pub(crate) fn changed_on_host(&self, inode: &Arc<Inode>, data: &Data) {
        inode.record.set_size(data.cache.size());
        let mut times = inode.times.lock();
        if data.cache.is_dirty() {
            times.written(times::now(), false);
            drop(times);
            self.queue.add(inode);
        } else {
            times.as_on_host();
        }
    }

    pub(crate) fn fsync(&self, node: u64, data_only: bool) -> Result<(), Errno> {
        self.sync_inode(&self.inode(node)?, data_only)
    }

    /// Stores a file and synchronizes it with the disk. No lock of the file is held while the disk
    /// works: the file can be used, and any object can be swapped.
    fn sync_inode(&self, inode: &Arc<Inode>, data_only: bool) -> Result<(), Errno> {
        let stored = {
            let slot = inode.data.read();
            let Some(data) = &*slot else {
                // No data of the file is cached here, but the host may still have to write some to
                // its disk.
                drop(slot);
                return rustix::fs::fsync(reopen(&inode.fd(), OFlags::RDONLY)?);
            };
            self.memory.flush(data, 0, u64::MAX).and_then(|()| self.settle(inode, data)).and_then(
                // The work owns the host's descriptor and completes whatever happens to the file's
                // objects.
                |()| data.representative.sync_work(data_only).map_err(Errno::from_raw_os_error),
            )
        };
        let outcome = stored.and_then(|work| {
            let _sync = events::SYNC.span([inode.node, u64::from(data_only)]);
            work.run().map_err(Errno::from_raw_os_error)
        });
        self.note_stored(inode, outcome)
    }

    /// Clears the set-user-ID and set-group-ID bits for a write by a caller without `CAP_FSETID`.
    /// If the group's execute bit is clear, set-group-ID is kept for a caller in the file's group
    /// (`setattr_should_drop_sgid` of Linux).
    pub(crate) fn drop_set_id(&self, caller: Caller, inode: &Inode) -> Result<(), Errno> {
        if !inode.has_set_id() {
            return Ok(());
        }
        let stat = rustix::fs::fstat(&*inode.fd())?;
        let mut mode = stat.st_mode & 0o7777 & !libc::S_ISUID;
        if mode & libc::S_IXGRP != 0 || !caller.in_group(stat.st_gid) {
            mode &= !libc::S_ISGID;
        }
        if mode == stat.st_mode & 0o7777 {
            return Ok(());
        }
        inode.change_on_host(|fd| rustix::fs::chmod(proc_path(fd), Mode::from_raw_mode(mode)))?;
        inode.record.set_mode(inode.record.mode() & !0o7777 | mode);
        // After a write the kernel asks for size and times again but keeps showing the old mode.
        // Invalidating only the attributes waits for no page and for no other request.
        if let Some(notifier) = self.notifier.get() {
            let _ = notifier.inval_inode(INodeNo(inode.node), -1, 0);
        }
        Ok(())
    }

    /// Removes the file capabilities of a program, as every write does regardless of the writer.
    pub(crate) fn drop_capability(&self, inode: &Inode) {
        if inode.capability.take() {
            let removed = |fd: &OwnedFd| rustix::fs::removexattr(proc_path(fd), Capability::NAME);
            let _ = inode.change_on_host(removed);
        }
    }

    /// Runs `change` on the host's file underneath the cache. The dirty pages are written to the
    /// host before it; `[start, end)` is not cached while it runs; the cache learns the new size
    /// after it. A file that is passed through has no cache.
    fn underneath<T>(
        &self,
        inode: &Arc<Inode>,
        (start, end): (u64, u64),
        change: impl FnOnce(&HostFile) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _session = inode.session.read();
        if inode.is_passed_through() {
            return change(&inode.host);
        }
        drop(self.data(inode, Access::Write)?);
        let slot = inode.data.write();
        let data = slot.as_ref().ok_or(Errno::IO)?;
        self.memory.flush(data, 0, u64::MAX)?;
        self.memory.with_frames(|| data.cache.invalidate(start, end))?;
        let outcome = change(&data.host);
        self.memory.with_frames(|| data.cache.invalidate(start, end))?;
        self.changed_on_host(inode, data);
        outcome
    }

    /// Drops the privileges of a file as a write does, for operations in which the kernel leaves
    /// the check of the caller to the server.
    pub(crate) fn drop_privileges(&self, caller: Caller, inode: &Inode) -> Result<(), Errno> {
        if inode.has_set_id() && !may_keep_set_id(caller) {
            self.drop_set_id(caller, inode)?;
        }
        self.drop_capability(inode);
        Ok(())
    }

    pub(crate) fn fallocate(
        &self,
        caller: Caller,
        node: u64,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let inode = self.inode(node)?;
        let mode = FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        self.may_change()?;
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        // These modes move data up to the end of the file.
        let moves = mode.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE);
        let range = (offset, if moves { u64::MAX } else { end });
        self.drop_privileges(caller, &inode)?;
        self.underneath(&inode, range, |host| {
            let fd = host.ensure(Access::Write)?;
            host.changing(|| rustix::fs::fallocate(&*fd, mode, offset, length))
        })
    }

    /// Returns whether the kernel may know the file to extend to `end` or beyond because of data
    /// that it has not written back yet.
    pub(crate) fn kernel_may_know_more(&self, node: u64, end: u64) -> bool {
        self.write_back
            && self.table.get(node).is_some_and(|inode| {
                if self.sees_opens() && inode.record.uses().collecting() == 0 {
                    return false;
                }
                let cached = inode.data.read().as_ref().map(|data| data.cache.size());
                let on_host =
                    || rustix::fs::fstat(&*inode.fd()).map_or(0, |stat| stat.st_size as u64);
                cached.unwrap_or_else(on_host) < end
            })
    }

    /// Returns whether the kernel may have data of the file that it has not written back yet.
    pub(crate) fn kernel_may_hold_data(&self, node: u64) -> bool {
        let writers = |inode: Arc<Inode>| !self.sees_opens() || inode.record.uses().writers() > 0;
        self.write_back && self.table.get(node).is_some_and(writers)
    }

    pub(crate) fn lseek(&self, node: u64, offset: i64, whence: i32) -> Result<i64, Errno> {
        let inode = self.inode(node)?;
        let _session = inode.session.read();
        if !inode.is_passed_through() {
            let data = self.data(&inode, Access::Read)?;
            self.memory.flush(&data, 0, u64::MAX)?;
        }
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let to = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        // The position of the descriptor is used by nothing else: reads and writes carry their own.
        rustix::fs::seek(&*inode.host.ensure(Access::Read)?, to).map(|at| at as i64)
    }

    /// Copies data on the host, which may share blocks instead of copying them.
    pub(crate) fn copy_file_range(
        &self,
        caller: Caller,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        length: u64,
    ) -> Result<u32, Errno> {
        self.may_change()?;
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        let length = length.min(COPY_PART);
        let from_session = from.session.read();
        if !from.is_passed_through() {
            let data = self.data(&from, Access::Read)?;
            let end = from_offset.saturating_add(length);
            self.memory.flush(&data, from_offset, end)?;
            if (rustix::fs::fstat(&*from.fd())?.st_size as u64) < end.min(data.cache.size()) {
                // The dirty pages that make the file that long lie after the range.
                self.memory.flush(&data, 0, u64::MAX)?;
            }
        }
        drop(from_session);
        self.drop_privileges(caller, &to)?;
        let source = self.with_descriptors(|| from.host.ensure(Access::Read))?;
        let end = to_offset.saturating_add(length);
        let copied = self.underneath(&to, (to_offset, end), |host| {
            let target = host.ensure(Access::Write)?;
            let (mut from_offset, mut to_offset) = (from_offset, to_offset);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            host.changing(|| {
                let (from, to) = (Some(&mut from_offset), Some(&mut to_offset));
                rustix::fs::copy_file_range(&*source, from, &*target, to, length)
            })
        })?;
        Ok(copied as u32)
    }
}

/// Lets the host know of a read of a file opened with `flags`, unless it knows of one since the
/// last write.
pub(crate) fn note_access(inode: &Inode, data: &Data, flags: i32) {
    if !inode.access_noted.load(Relaxed) && flags & libc::O_NOATIME == 0 {
        inode.access_noted.store(true, Relaxed);
        data.host.note_access();
    }
}

/// Returns how an open with these flags uses a file.
fn uses(flags: i32, cached: bool) -> Uses {
    Uses::one(may_write(flags), may_write(flags) && cached)
}

/// Returns whether set-user-ID bits survive a truncation by the caller. The kernel knows but the
/// library does not pass it on; this is called only for a file with such bits.
fn may_keep_set_id(caller: Caller) -> bool {
    credentials::has_capability(caller.pid, CAP_FSETID).unwrap_or(caller.uid == 0)
}
