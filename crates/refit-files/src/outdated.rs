//! Files that were changed on the host beside the mount: what is held of them, here and in the
//! kernel, is dropped.
//!
//! The host is looked at when a file is opened, and whenever its status is asked of it for a
//! look-up. The kernel is told by another thread, since dropping pages makes it send requests and
//! wait for the answers; an open that finds that the kernel is being told goes on behind that, on
//! the same thread.
//!
//! Where the kernel collects writes it believes in the size and the times that it has for as long
//! as it knows the file, whatever the server says. So it is made to forget the file: its name is
//! dropped and the open refused with `ESTALE`, upon which the kernel looks the name up and opens
//! what it finds. A file that is in use otherwise cannot be forgotten. It is opened direct until it
//! is, since direct reads do not ask for the kernel's size.
//!
//! Ordering: who finds a change raises `Inode::telling_kernel` before it notes the new version; who
//! opens a file looks at the version before `telling_kernel`. So whoever finds nothing new finds
//! the kernel told, or goes on behind.

use crate::inode::{HostKey, Inode, Place};
use crate::server::{Caller, Server};
use fuser::INodeNo;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

impl Server {
    /// Looks at the host before a file is opened, and drops what is held of it if it was changed
    /// there. Whether the open has to go on behind what tells the kernel, by [`Self::open_behind`].
    pub(crate) fn look_before_open(&self, caller: Caller, node: u64) -> Result<bool, Errno> {
        let inode = self.inode(node)?;
        if inode.kind != FileType::RegularFile {
            return Ok(false);
        }
        let stat = self.stat_by_name(caller, &inode)?;
        if inode.host.may_have_changed(&stat, true) {
            // What cannot be stored first is kept, and so is what is older than the host's.
            let _ = self.drop_outdated(&inode);
        }
        Ok(inode.telling_kernel.load(Acquire) > 0 || self.to_be_forgotten(&inode))
    }

    /// Whether the kernel has to forget a file before it shows it as it is, and can: what is open
    /// is not forgotten. A file counts as open here until the kernel has heard that its close has
    /// come here.
    fn to_be_forgotten(&self, inode: &Inode) -> bool {
        self.write_back
            && inode.outdated_lookups.load(Relaxed) > 0
            && inode.opens.load(Acquire) == 0
    }

    /// The status of a file that is opened by the name under which it was seen last. If the name
    /// leads elsewhere by now, the open is refused once, and the kernel looks the name up.
    fn stat_by_name(&self, caller: Caller, inode: &Inode) -> Result<Stat, Errno> {
        let opened = inode.opened();
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

    /// Opens a file once the kernel has been told that it was changed.
    pub(crate) fn open_behind(&self, caller: Caller, node: u64, flags: i32) -> Result<bool, Errno> {
        let inode = self.inode(node)?;
        let opened = inode.opened();
        if self.to_be_forgotten(&inode) && self.refused.refuse(caller.pid, &opened) {
            let place = opened.place;
            if let Some(notifier) = self.notifier.get() {
                let _ = notifier.inval_entry(INodeNo(place.parent), &place.name);
            }
            return Err(Errno::STALE);
        }
        self.open(caller, node, flags)
    }

    /// The host says `stat` of a file on the occasion of a look-up: if the file was changed there,
    /// what is held of it is dropped, and the answer says how it is now.
    pub(crate) fn noticed(&self, inode: &Arc<Inode>, stat: Stat) -> Result<Stat, Errno> {
        let regular = inode.kind == FileType::RegularFile;
        if !regular || !inode.host.may_have_changed(&stat, false) {
            return Ok(stat);
        }
        let _ = self.drop_outdated(inode);
        rustix::fs::fstat(&*inode.fd())
    }

    /// Drops what is held of a file if it was changed by others: pages, what is known of its
    /// status, and, on another thread, what the kernel holds. Pages that are not stored yet are
    /// stored first, over what others wrote there.
    fn drop_outdated(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        // Alone: who opens the file meanwhile waits here, and finds that it is done.
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
            // The time of a write that waited for its turn is older than the change.
            _ => inode.times.lock().as_on_host(),
        }
        // Before the pages go: what is changed after this is found the next time.
        let stat = rustix::fs::fstat(&*inode.fd())?;
        if let Some(data) = &*slot {
            self.memory.with_frames(|| data.cache.invalidate(0, u64::MAX))?;
        }
        inode.mode.store(stat.st_mode, Relaxed);
        inode.capability.set();
        inode.access_noted.store(false, Relaxed);
        self.table.outdated(inode);
        inode.telling_kernel.fetch_add(1, Release);
        inode.host.caches_know(&stat);
        drop(slot);
        let told = Arc::clone(inode);
        self.aside.hand(move |server| {
            if let Some(notifier) = server.notifier.get() {
                let _ = notifier.inval_inode(INodeNo(told.node), 0, 0);
            }
            told.telling_kernel.fetch_sub(1, Release);
        });
        Ok(())
    }
}

impl Inode {
    /// What an open of it is taken for: the kernel does not say by which name.
    pub(crate) fn opened(&self) -> Opened {
        Opened { node: self.node, place: self.place.lock().clone() }
    }

    fn is(&self, stat: &Stat) -> bool {
        self.key == HostKey::of(stat)
    }
}

/// Threads whose open was refused with `ESTALE`, upon which the kernel looks the name up and opens
/// once more. A second refusal would reach the program.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// What each of them opens, the latest last.
    threads: Mutex<Vec<(u32, Opened)>>,
    /// How many they are: mostly none, and an open need not look.
    count: AtomicUsize,
}

/// What a thread opens. The second try can be of another inode by the same name, or by the name
/// that was looked up of the same inode, which has several.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) node: u64,
    pub(crate) place: Place,
}

/// The most threads that are remembered. What did not come back is forgotten first.
const MOST_REFUSED: usize = 256;

impl Refused {
    /// Whether to refuse this thread's open: not if it was just refused.
    fn refuse(&self, thread: u32, opened: &Opened) -> bool {
        // 0 is any thread of another namespace.
        if thread == 0 || self.came_back(thread, opened) {
            return false;
        }
        let mut threads = self.threads.lock();
        if threads.len() == MOST_REFUSED {
            threads.remove(0);
        }
        threads.push((thread, opened.clone()));
        self.count.store(threads.len(), Relaxed);
        true
    }

    /// Whether a thread is on the way back.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// A thread opens a file, or finds that there is none; whether it was refused before.
    pub(crate) fn came_back(&self, thread: u32, opened: &Opened) -> bool {
        if !self.any() {
            return false;
        }
        let mut threads = self.threads.lock();
        let found = threads.iter().position(|(refused, _)| *refused == thread);
        // If it was refused another file, it has not opened that one again.
        let same = found.is_some_and(|at| {
            let (_, before) = threads.remove(at);
            before.node == opened.node || before.place == opened.place
        });
        self.count.store(threads.len(), Relaxed);
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_not_refused_twice_in_a_row() {
        let refused = Refused::default();
        let opened = |node, name: &str| {
            let place = Place { parent: 1, name: name.into() };
            Opened { node, place }
        };
        let (a, b) = (opened(10, "a"), opened(20, "b"));
        assert!(refused.refuse(7, &a) && refused.refuse(8, &a));
        assert!(!refused.refuse(7, &a));
        assert!(refused.refuse(7, &a) && !refused.refuse(7, &opened(30, "a")));
        assert!(refused.refuse(7, &a) && !refused.refuse(7, &opened(10, "other name")));
        assert!(refused.refuse(7, &a) && refused.refuse(7, &b));
        assert!(refused.came_back(7, &b) && !refused.came_back(7, &b));
        assert!(!refused.refuse(8, &a) && !refused.refuse(0, &a));
        for thread in 1..1000 {
            assert!(refused.refuse(thread, &a));
        }
        assert_eq!(refused.threads.lock().len(), MOST_REFUSED);
    }
}
