//! Small files travel with their first open (Soules 2003, §6.3): the server passes the data to the
//! kernel's cache before it replies to the open, so that the program's reads send no request.
//!
//! No page that a program has written is overwritten. A page is dirty in the kernel's cache only
//! between an open for writing, or through its cache, and the close; mappings keep a file open, and
//! the kernel sends what it has collected before it sends the close. When the server stores the
//! data, no open of the file has been replied to that is not closed, and none is replied to before
//! the data is stored, since `Inode::session` is locked exclusively. This also keeps requests that
//! change the size without an open (`truncate(2)`) from being executed meanwhile. If the kernel
//! receives the reply to such a request after the data, it adjusts its pages to the new size.

use crate::data::Data;
use crate::files::note_access;
use crate::image::record::Flag;
use crate::inode::Inode;
use crate::open_mode::may_write;
use crate::server::Server;
use fuser::INodeNo;

/// The size in bytes up to which a file is small. A larger one takes the kernel more time to store
/// than the reply to a read, and may not be read at all.
const MAX_SIZE: usize = 16 << 10;

impl Server {
    /// Passes the data of a small file to the kernel's cache, for an open with `flags` through that
    /// cache, unless the kernel may have the data from an open before.
    pub(crate) fn send_small(&self, inode: &Inode, data: &Data, flags: i32) {
        let first = !inode.record.has(Flag::Opened);
        if first {
            inode.record.set(Flag::Opened, true);
        }
        let size = data.cache.size() as usize;
        let wanted = first && !may_write(flags) && (1..=MAX_SIZE).contains(&size);
        if !wanted || inode.record.uses().opens() > 0 {
            return;
        }
        let mut bytes = [0; MAX_SIZE];
        let bytes = &mut bytes[..size];
        if let Some(notifier) = self.notifier.get()
            && self.memory.read(data, 0, bytes) == Ok(size)
        {
            note_access(inode, data, flags);
            // If the kernel does not take it, it asks.
            let _ = notifier.store(INodeNo(inode.node), 0, bytes);
        }
    }
}
