//! Detection of files that were changed on the host beside the mount, whose cached data and
//! attributes are then dropped here and in the kernel.
//!
//! The server checks the host when a file is opened and whenever it asks the host for the file's
//! status in a look-up. Another thread notifies the kernel, since dropping pages makes the kernel
//! send requests and wait for the replies. An open that finds the notification in progress is
//! queued after it on the same thread.
//!
//! Where the kernel caches writes, it relies on its own size and times for as long as it knows the
//! file, whatever the server replies. The kernel is therefore made to forget the file: its name is
//! invalidated and the open refused with `ESTALE`, upon which the kernel looks up the name and
//! opens the file that it finds. A file that is in use elsewhere cannot be forgotten. It is opened
//! for direct access until it can be, since direct reads do not use the kernel's size.
//!
//! Ordering: a thread that finds a change increments `Inode::telling_kernel` before it records the
//! new version; a thread that opens a file checks the version before `telling_kernel`. An open that
//! finds nothing new therefore finds that the kernel has been notified, or is queued after the
//! notification.

use crate::inode::Inode;
use crate::open_mode::OpenMode;
use crate::refused_opens::OpenTarget;
use crate::server::{Caller, Server};
use crate::values::HostKey;
use fuser::INodeNo;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Server {
    /// Checks the host before a file is opened, and drops the cached data if the file was changed
    /// there. Returns whether the open must be queued after the notification of the kernel, with
    /// [`Self::open_behind`].
    pub(crate) fn look_before_open(&self, caller: Caller, node: u64) -> Result<bool, Errno> {
        let inode = self.inode(node)?;
        if inode.kind != FileType::RegularFile {
            return Ok(false);
        }
        let stat = self.stat_by_name(caller, &inode)?;
        if inode.may_be_outdated(&stat, true) {
            // Data that cannot be stored first is kept, as is data older than the host's.
            let _ = self.drop_outdated(&inode);
        }
        Ok(inode.telling_kernel.load(Acquire) > 0 || self.to_be_forgotten(&inode))
    }

    /// Returns whether the kernel must and can forget a file before it shows the file as it is. An
    /// open file is not forgotten; a file counts as open until the kernel has received the reply to
    /// its close.
    fn to_be_forgotten(&self, inode: &Inode) -> bool {
        self.write_back && inode.record.outdated_lookups() > 0 && !inode.is_open()
    }

    /// Returns the status of a file that is opened by the name under which it was last seen. If the
    /// name leads to another file now, the open is refused once, and the kernel looks up the name.
    fn stat_by_name(&self, caller: Caller, inode: &Inode) -> Result<Stat, Errno> {
        let opened = self.open_target(inode);
        if !inode.is_gone()
            && let Some(parent) = self.table.get(opened.place.parent)
        {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::statat(&*parent.fd(), &opened.place.name, flags) {
                Ok(stat) if inode.is(&stat) => return Ok(stat),
                Ok(_) | Err(Errno::NOENT) if self.refused.refuse(caller.pid, &opened) => {
                    return Err(Errno::STALE);
                }
                _ => {}
            }
        }
        rustix::fs::fstat(&*inode.fd())
    }

    /// Returns the identity under which an open of the inode is remembered, since the kernel does
    /// not say which name was opened.
    pub(crate) fn open_target(&self, inode: &Inode) -> OpenTarget {
        OpenTarget { node: inode.node, place: self.table.place(inode) }
    }

    /// Opens a file after the kernel has been notified that it was changed.
    pub(crate) fn open_behind(
        &self,
        caller: Caller,
        node: u64,
        flags: i32,
    ) -> Result<OpenMode, Errno> {
        let inode = self.inode(node)?;
        let opened = self.open_target(&inode);
        if self.to_be_forgotten(&inode) && self.refused.refuse(caller.pid, &opened) {
            let place = opened.place;
            if let Some(notifier) = self.notifier.get() {
                let _ = notifier.inval_entry(INodeNo(place.parent), &place.name);
            }
            return Err(Errno::STALE);
        }
        self.open(caller, node, flags)
    }

    /// Checks the status of a file that a look-up received from the host. If the file was changed
    /// there, drops its cached data and returns its status after that.
    pub(crate) fn noticed(&self, inode: &Arc<Inode>, stat: Stat) -> Result<Stat, Errno> {
        if inode.kind != FileType::RegularFile || !inode.may_be_outdated(&stat, false) {
            return Ok(stat);
        }
        let _ = self.drop_outdated(inode);
        rustix::fs::fstat(&*inode.fd())
    }

    /// Drops the cached data of a file that was changed by others: its pages, its known status and,
    /// on another thread, the kernel's pages. Dirty pages are stored first and overwrite what
    /// others wrote there.
    fn drop_outdated(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        // Locked exclusively: a thread that opens the file meanwhile waits here and finds the work
        // done.
        let slot = inode.data.write();
        if !inode.host.changed_by_others()? {
            return Ok(());
        }
        self.journal.changed_beside.fetch_add(1, Relaxed);
        match &*slot {
            Some(data) if data.cache.is_dirty() => {
                self.journal.written_over.fetch_add(1, Relaxed);
                self.memory.flush(data, 0, u64::MAX)?;
            }
            // The time of a write that waited for the lock is older than the change.
            _ => inode.times.lock().as_on_host(),
        }
        // The status is taken before the pages are dropped, so that later changes are found the
        // next time.
        let stat = rustix::fs::fstat(&*inode.fd())?;
        if let Some(data) = &*slot {
            self.memory.with_frames(|| data.cache.invalidate(0, u64::MAX))?;
        }
        inode.record.set_mode(stat.st_mode);
        inode.capability.set();
        inode.access_noted.store(false, Relaxed);
        self.table.outdated(inode);
        inode.telling_kernel.fetch_add(1, Release);
        inode.host.caches_know(&stat);
        drop(slot);
        let outdated = Arc::clone(inode);
        self.jobs.submit(move |server| {
            if let Some(notifier) = server.notifier.get() {
                let _ = notifier.inval_inode(INodeNo(outdated.node), 0, 0);
            }
            outdated.telling_kernel.fetch_sub(1, Release);
        });
        Ok(())
    }
}

impl Inode {
    /// Returns whether data may be cached that is older than the host's file with the status
    /// `stat`. Of a file that is passed through, none is cached. While the server changes the file,
    /// the result is `surely`.
    fn may_be_outdated(&self, stat: &Stat, surely: bool) -> bool {
        !self.is_passed_through() && self.host.may_have_changed(stat, surely)
    }

    fn is(&self, stat: &Stat) -> bool {
        self.key == HostKey::of(stat)
    }
}
