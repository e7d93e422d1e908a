//! The release of inodes when descriptors run short (see `pressure`): the kernel is made to drop
//! names of files that are not open.

use crate::inode::Inode;
use crate::server::Server;
use crate::table::ROOT;
use fuser::{INodeNo, Notifier};
use rustix::fs::FileType;
use std::sync::Arc;

impl Server {
    /// Runs the thread that releases inodes until the mount ends.
    pub(crate) fn release_loop(&self, notifier: &Notifier) {
        self.pressure.run(|| self.descriptors(), |excess| self.let_go(excess, notifier));
    }

    /// Makes the kernel drop the names of up to `excess` inodes. Returns whether no more can be
    /// released.
    fn let_go(&self, excess: u64, notifier: &Notifier) -> bool {
        self.queue.hurry();
        let idle = |inode: &Arc<Inode>| {
            inode.node != ROOT && !inode.is_open() && inode.record.lookups() > 0
        };
        let mut victims: Vec<_> = self.table.all().into_iter().filter(idle).collect();
        // Directories come last: their names can be dropped only together with everything below
        // them.
        victims.sort_by_key(|inode| inode.kind == FileType::Directory);
        let mut requests = 0;
        for inode in victims.iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            let place = self.table.place(inode);
            if notifier.inval_entry(INodeNo(place.parent), &place.name).is_ok() {
                requests += 1;
            }
        }
        requests == 0
    }
}
