//! Files that are passed through: the kernel carries out their reads, writes and mappings on the
//! host's file, without the server (`FUSE_PASSTHROUGH`, Linux 6.9).
//!
//! A file is passed through from an open until the last close, if its cache mode says so at that
//! open and no program has it open. The kernel insists that all opens of a file at the same time
//! agree, so an open file stays as it is, whatever its cache mode becomes.
//!
//! While a file is passed through it has no cache here: its dirty pages are stored and its
//! objects destroyed before. The kernel drops its own pages at an open without
//! `FOPEN_KEEP_CACHE`; those that a program has had it read ahead, which it does not use, it
//! drops after the last close. Operations that the kernel still sends (truncations, holes,
//! copies) are carried out on the host's file. `Inode::session` keeps an inode from changing
//! sides meanwhile: opens and closes lock it exclusively, those operations shared.
//!
//! The number by which the kernel knows the host's file is in the inode's record. It belongs to the
//! connection, so that the server that continues a mount uses it, too; and a program reads and
//! writes such a file even while there is no server.

use crate::answer::{GENERATION, TTL};
use crate::host::read_all;
use crate::image::record::{Flag, Uses};
use crate::inode::Inode;
use crate::open_mode::{Backing, OpenMode};
use crate::server::Server;
use crate::values::Access;
use fuser::{FileAttr, INodeNo, ReplyCreate, ReplyOpen};
use rustix::io::Errno;
use std::sync::Arc;

impl Server {
    /// Returns the host's file for an open of `inode`, whose session is locked exclusively; `None`
    /// if the server serves its data. `wanted`: it may be passed through from now on.
    pub(crate) fn backing(
        &self,
        inode: &Arc<Inode>,
        access: Access,
        wanted: bool,
    ) -> Result<Option<Backing>, Errno> {
        if let Some(backing) = inode.record.backing() {
            self.with_descriptors(|| inode.host.ensure(access))?;
            return Ok(Some(backing));
        }
        // The kernel does not tell the host who writes, so the host would clear the set-user-ID and
        // set-group-ID bits for those, too, who may keep them.
        if !wanted || inode.record.uses().opens() > 0 || inode.has_set_id() {
            return Ok(None);
        }
        let file = self.with_descriptors(|| inode.host.ensure(access))?;
        let Some(backing) = self.backing_files.open(&file) else { return Ok(None) };
        if self.drop_data(inode).is_err() {
            // What cannot be stored on the host is served from the cache.
            self.backing_files.close(backing);
            return Ok(None);
        }
        inode.record.set_backing(Some(backing));
        Ok(Some(backing))
    }

    /// Stores the data of a file and destroys its objects.
    fn drop_data(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        let mut slot = inode.data.write();
        let Some(data) = &*slot else { return Ok(()) };
        self.memory.flush(data, 0, u64::MAX)?;
        self.settle(inode, data)?;
        inode.record.set_cache(0, 0);
        if let Some(data) = slot.take() {
            self.end(&data);
        }
        Ok(())
    }

    /// Reads a file that is passed through; `None` if it is not. The kernel fills its cache with
    /// the data when a program asks for read-ahead (`readahead`, `posix_fadvise`), and does not use
    /// it.
    pub(crate) fn read_ahead(
        &self,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        if !inode.is_passed_through() {
            return Ok(None);
        }
        let file = self.with_descriptors(|| inode.host.ensure(Access::Read))?;
        inode.record.set(Flag::PagesInKernel, true);
        read_all(offset, buf, |buf, at| rustix::io::pread(&file, buf, at)).map(Some)
    }

    /// Counts a close. The last one ends the passing through of a file.
    pub(crate) fn close(&self, inode: &Inode, uses: Uses) {
        let _session = inode.session.write();
        self.table.closed(inode, uses);
        if inode.record.uses().opens() == 0 {
            self.end_passthrough(inode);
        }
    }

    /// Serves the data of a file again that no program has open.
    pub(crate) fn end_passthrough(&self, inode: &Inode) {
        let Some(backing) = inode.record.backing() else { return };
        debug_assert!(inode.data.read().is_none(), "nothing of the file is cached");
        if let Ok(stat) = rustix::fs::fstat(&*inode.fd()) {
            let changed = inode.host.may_have_changed(&stat, true);
            inode.host.caches_know(&stat);
            let pages = inode.record.take(Flag::PagesInKernel);
            if (changed || pages)
                && let Some(notifier) = self.notifier.get()
            {
                // The kernel changes its own times for writes, but not for stores through mappings.
                // A negative offset means no pages. No read is under way for which the kernel would
                // wait, since it keeps the file open meanwhile.
                let _ = notifier.inval_inode(INodeNo(inode.node), if pages { 0 } else { -1 }, 0);
            }
        }
        // In this order: a server that continues the mount uses a number that is recorded.
        inode.record.set_backing(None);
        self.backing_files.close(backing);
    }
}

/// Replies to an open.
pub(crate) fn reply_open(reply: ReplyOpen, mode: OpenMode, flags: i32) {
    let (handle, open_flags) = (mode.handle(), mode.open_flags(flags));
    let OpenMode::Passthrough(backing) = mode else { return reply.opened(handle, open_flags) };
    // SAFETY: the number is open and of this connection, since it is closed only after the last
    // close of the file, and this open has been counted. `into_raw` keeps the library from closing
    // it.
    #[expect(unsafe_code)]
    let id = unsafe { reply.wrap_backing(backing.get()) };
    reply.opened_passthrough(handle, open_flags, &id);
    id.into_raw();
}

/// Replies to a request that has created and opened a file.
pub(crate) fn reply_create(reply: ReplyCreate, attr: &FileAttr, mode: OpenMode, flags: i32) {
    let (handle, open_flags) = (mode.handle(), mode.open_flags(flags));
    let OpenMode::Passthrough(backing) = mode else {
        return reply.created(&TTL, attr, GENERATION, handle, open_flags);
    };
    // SAFETY: as in `reply_open`.
    #[expect(unsafe_code)]
    let id = unsafe { reply.wrap_backing(backing.get()) };
    reply.created_passthrough(&TTL, attr, GENERATION, handle, open_flags, &id);
    id.into_raw();
}
