//! The use that programs make of a file.

use crate::modes::CacheMode;
use crate::mount::Mount;
use refit_memory::FileCacheInterface;
use refit_objects::{Interface, ObjectId};
use rustix::fs::FileType;

/// The use of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// Its path in the mount, beginning with `/`. Of a file with several names, one of them.
    pub path: Vec<u8>,
    /// The number of opens that have not been closed.
    pub opens: u64,
    /// The number of these that may write.
    pub writers: u64,
    /// Whether the kernel accesses the file on the host for these opens.
    pub passed_through: bool,
    /// The mode in which it is opened next.
    pub cache: CacheMode,
    /// Its cache, if it has one.
    pub object: Option<ObjectId>,
}

impl Mount {
    /// Returns the use of the file that programs see under this inode number; `None` if the kernel
    /// does not know it, or it is no regular file.
    pub fn file_use(&self, inode: u64) -> Option<FileUse> {
        let (table, modes) = (&self.server.table, &self.server.modes);
        let inode = table.get(inode).filter(|inode| inode.kind == FileType::RegularFile)?;
        let (uses, path) = (inode.record.uses(), table.path(&inode));
        Some(FileUse {
            opens: uses.opens(),
            writers: uses.writers(),
            passed_through: inode.is_passed_through(),
            cache: modes.mode(|| path.clone()),
            object: inode.data.read().as_ref().map(|data| FileCacheInterface::id(data.cache)),
            path,
        })
    }
}
