//! What the parts of the server share, and the life of a file's data.

use crate::aside::Aside;
use crate::data::{Data, Flush, Memory};
use crate::flusher::Queue;
use crate::host::{Access, HostFile};
use crate::inode::Inode;
use crate::journal::{Journal, MountStats};
use crate::modes::Modes;
use crate::outdated::Refused;
use crate::pressure::Pressure;
use crate::representative;
use crate::source_lock::SourceLock;
use crate::space::Space;
use crate::table::Table;
use crate::times;
use crate::unstored::{NotStored, Unstored};
use fuser::Notifier;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLockReadGuard};
use refit_memory::{CacheParts, FileCacheFactory, ReplacementPolicyFactory};
use refit_objects::composition::Composition;
use refit_objects::{CreateError, Name};
use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::credentials::{self, ActingAs};
use refit_sys::printable;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

thread_local! {
    /// The thread's file creation mask; none until the thread has been prepared.
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
    /// The thread shares its mask with others and must leave it alone.
    static MASK_SHARED: Cell<bool> = const { Cell::new(false) };
}

/// One mount's server.
pub(crate) struct Server {
    pub(crate) table: Arc<Table>,
    pub(crate) memory: Memory,
    /// Makes the files' caches.
    pub(crate) caches: FileCacheFactory,
    /// The objects that all files share; taken when the mount ends.
    pub(crate) shared: Mutex<Option<Composition>>,
    /// Lives as long as the mount, so that the policy is one of a class.
    pub(crate) _policies: Arc<OnceLock<ReplacementPolicyFactory>>,
    pub(crate) queue: Queue,
    pub(crate) journal: Journal,
    pub(crate) modes: Modes,
    pub(crate) pressure: Pressure,
    pub(crate) aside: Aside,
    pub(crate) spin: AdaptiveSpin,
    /// Set when the mount is there.
    pub(crate) notifier: OnceLock<Notifier>,
    /// The kernel collects writes.
    pub(crate) write_back: bool,
    pub(crate) space: Space,
    pub(crate) refused: Refused,
    /// Held until everything is stored.
    pub(crate) source_lock: Mutex<Option<SourceLock>>,
    /// What could not be stored when the mount ended; `None` until then.
    pub(crate) lost: Mutex<Option<Unstored>>,
    /// The server's own user and group.
    pub(crate) own: (u32, u32),
}

/// Who made a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// What the caller does not grant to what it makes, unless a default ACL says what is granted.
    pub(crate) umask: u32,
}

impl Caller {
    /// The one that the kernel names; what it does not grant is not known for most requests.
    pub(crate) fn of(request: &fuser::Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), pid: request.pid(), umask: 0 }
    }

    /// Returns whether the caller is in `group`, with its own group or a supplementary one.
    pub(crate) fn in_group(&self, group: u32) -> bool {
        credentials::in_group(self.pid, group).unwrap_or(self.gid == group)
    }
}

pub(crate) type DataGuard<'a> = MappedRwLockReadGuard<'a, Data>;

impl Server {
    /// The inode that the kernel means.
    pub(crate) fn inode(&self, node: u64) -> Result<Arc<Inode>, Errno> {
        self.table.get(node).ok_or(Errno::STALE)
    }

    /// What the thread makes on the host belongs to the caller while the guard lives.
    pub(crate) fn act_as(&self, caller: Caller) -> Result<Option<ActingAs>, Errno> {
        if UMASK.get().is_none() {
            MASK_SHARED.set(!credentials::prepare_thread().own_umask);
            UMASK.set(Some(0));
        }
        if !MASK_SHARED.get() && UMASK.replace(Some(caller.umask)) != Some(caller.umask) {
            credentials::set_umask(caller.umask);
        }
        if self.own.0 != 0 {
            // Without privileges there is nobody else to be.
            return Ok(None);
        }
        ActingAs::new(self.own, caller.uid, caller.gid)
            .map(Some)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))
    }

    /// The data of a regular file, ready for `access`. The guard keeps those out that change the host's file
    /// underneath the cache.
    pub(crate) fn data<'a>(
        &self,
        inode: &'a Arc<Inode>,
        access: Access,
    ) -> Result<DataGuard<'a>, Errno> {
        loop {
            let guard = inode.data.read();
            if let Ok(data) = RwLockReadGuard::try_map(guard, Option::as_ref) {
                self.open_host(&data.host, access)?;
                return Ok(data);
            }
            let host = inode.host.clone();
            self.open_host(&host, access)?;
            let size = rustix::fs::fstat(&*inode.fd())?.st_size as u64;
            self.make_data(inode, host, size)?;
        }
    }

    fn open_host(&self, host: &HostFile, access: Access) -> Result<(), Errno> {
        self.with_descriptors(|| host.ensure(access).map(|_| ()))
    }

    /// About how many descriptors the mount has in use: one for each inode.
    pub(crate) fn descriptors(&self) -> u64 {
        self.table.len()
    }

    /// Makes the cache and the file representative of a regular file of `size` bytes, unless they are there.
    pub(crate) fn make_data(
        &self,
        inode: &Arc<Inode>,
        host: Arc<HostFile>,
        size: u64,
    ) -> Result<(), Errno> {
        match inode.kind {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let mut slot = inode.data.write();
        if slot.is_some() {
            return Ok(());
        }
        let data = self.new_data(|| self.name(inode), host, size).map_err(|_| Errno::IO)?;
        *slot = Some(data);
        Ok(())
    }

    /// The objects for a file of `size` bytes.
    pub(crate) fn new_data(
        &self,
        name: impl Fn() -> Name,
        host: Arc<HostFile>,
        size: u64,
    ) -> Result<Data, CreateError> {
        let fr = representative::create(name(), host.clone());
        let (pm, frames) = (self.memory.physical, self.memory.frames.clone());
        let parts = CacheParts { pm, frames, fr };
        match refit_memory::create_file_cache(&self.caches, name(), parts, size) {
            Ok(cache) => Ok(Data { cache, representative: fr, host }),
            Err(error) => {
                representative::destroy(fr);
                Err(error)
            }
        }
    }

    /// The name of a file's objects; worked out when somebody asks, since files are renamed.
    fn name(&self, inode: &Arc<Inode>) -> Name {
        let (table, inode) = (Arc::downgrade(&self.table), Arc::downgrade(inode));
        Name::lazy(move || {
            let (Some(table), Some(inode)) = (table.upgrade(), inode.upgrade()) else {
                return "?".to_owned();
            };
            let path = table.path(&inode);
            let deleted = if inode.is_gone() { " (deleted)" } else { "" };
            format!("{}{deleted}", printable::name(&path))
        })
    }

    /// The file was written: remembers when, and that it has to reach the host.
    pub(crate) fn written(&self, inode: &Arc<Inode>, by_kernel_cache: bool) {
        inode.times.lock().written(times::now(), by_kernel_cache);
        if inode.access_noted.load(Relaxed) {
            inode.access_noted.store(false, Relaxed);
        }
        self.queue.add(inode);
    }

    /// Stores a file: writes what is dirty to the host, and puts the times on the host. Notes
    /// whether that could be done.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        let outcome = self.write_back_parts(inode);
        self.note_stored(inode, outcome)
    }

    /// Notes whether a file could be stored. The data of one that could not stays, and is tried again.
    pub(crate) fn note_stored(
        &self,
        inode: &Arc<Inode>,
        outcome: Result<(), Errno>,
    ) -> Result<(), Errno> {
        match outcome {
            Ok(()) => self.space.stored(inode),
            Err(errno) => {
                self.space.failed(inode, errno);
                self.journal.write_back_errors.fetch_add(1, Relaxed);
                self.queue.add(inode);
            }
        }
        outcome
    }

    fn write_back_parts(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        let mut flush = Flush::new(0, u64::MAX);
        loop {
            // Taken anew for each part: whoever needs the file alone does not wait for all of it.
            let slot = inode.data.read();
            let Some(data) = slot.as_ref().filter(|_| !inode.is_gone()) else { return Ok(()) };
            if !self.memory.flush_part(data, &mut flush)? {
                return self.settle(inode, data);
            }
        }
    }

    /// Puts the modification time on the host, if no data is on its way any more.
    pub(crate) fn settle(&self, inode: &Inode, data: &Data) -> Result<(), Errno> {
        // A write makes the cache dirty first and then takes this lock: whoever wrote before is seen in the test,
        // whoever writes after notes a new time after this.
        let mut times = inode.times.lock();
        let Some((tv_sec, tv_nsec)) = times.waiting() else { return Ok(()) };
        if data.cache.is_dirty() {
            return Ok(());
        }
        let times_for_host = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec, tv_nsec },
        };
        let set =
            |fd: &OwnedFd| rustix::fs::utimensat(fd, c"", &times_for_host, AtFlags::EMPTY_PATH);
        match inode.change_on_host(set) {
            // Somebody else's file, which this user may write: the host's own time has to do.
            Err(Errno::PERM | Errno::ACCESS) => {
                times.as_on_host();
                return Ok(());
            }
            outcome => outcome?,
        }
        times.settled(&rustix::fs::fstat(&*inode.fd())?);
        Ok(())
    }

    /// The kernel has forgotten an inode. With nothing on its way to the host it goes at once, else when that has
    /// been written.
    pub(crate) fn forgotten(&self, inode: &Arc<Inode>) {
        if !inode.is_gone() && rustix::fs::fstat(&*inode.fd()).is_ok_and(|stat| stat.st_nlink == 0)
        {
            inode.gone.store(true, Relaxed);
        }
        if self.waits(inode) {
            self.queue.add(inode);
        } else {
            self.retire(inode);
        }
    }

    /// Whether something of a file is not on the host yet, and has to get there.
    fn waits(&self, inode: &Inode) -> bool {
        !inode.is_gone()
            && (inode.times.lock().waiting().is_some()
                || inode.data.read().as_ref().is_some_and(|data| data.cache.is_dirty()))
    }

    /// Takes an inode that nobody knows out of the table and ends its objects.
    pub(crate) fn retire(&self, inode: &Arc<Inode>) {
        // Before it leaves the table: whoever does not find it there takes its blocks for free.
        let _ending = self.space.ending();
        if self.table.remove(inode) {
            self.space.stored(inode);
            let data = inode.data.write().take();
            if let Some(data) = data {
                self.end(&data);
                inode.host.close(self.table.root().fd());
            }
        }
    }

    /// Ends the objects of a file. What can still be wanted has been written back before.
    pub(crate) fn end(&self, data: &Data) {
        refit_memory::destroy_file_cache(data.cache, &self.memory.frames);
        representative::destroy(data.representative);
    }

    /// Stores every file; those that could not be stored, whose data stays.
    pub(crate) fn write_back_all(&self) -> Unstored {
        self.queue.clear();
        let mut unstored = Unstored::default();
        // Not only what was in the queue: the background thread may have taken one out, and not be done with it.
        for inode in self.table.all() {
            if !self.waits(&inode) {
                continue;
            }
            if let Err(errno) = self.write_back(&inode) {
                let path = PathBuf::from(OsString::from_vec(self.table.path(&inode)));
                unstored.0.push(NotStored { path, errno: errno.raw_os_error() });
            } else if inode.lookups.load(Relaxed) == 0 {
                self.retire(&inode);
            }
        }
        unstored
    }

    /// The loop of the background thread.
    pub(crate) fn write_back_loop(&self) {
        while let Some(inode) = self.queue.next() {
            if self.write_back(&inode).is_ok() && inode.lookups.load(Relaxed) == 0 {
                self.retire(&inode);
            }
        }
    }

    /// The mount is over: everything to the host, every object ended, and the next server let in. Returns what could
    /// not be stored, which is lost; the same however often it is called.
    pub(crate) fn finish(&self) -> Unstored {
        let mut lost = self.lost.lock();
        if let Some(lost) = &*lost {
            return lost.clone();
        }
        self.queue.close();
        self.pressure.close();
        self.aside.close();
        let unstored = self.write_back_all();
        for inode in self.table.all() {
            let data = inode.data.write().take();
            if let Some(data) = data {
                self.end(&data);
            }
        }
        if let Some(shared) = self.shared.lock().take() {
            shared.destroy();
        }
        self.source_lock.lock().take();
        lost.insert(unstored).clone()
    }

    pub(crate) fn stats(&self) -> MountStats {
        let journal = &self.journal;
        MountStats {
            requests: journal.requests.load(Relaxed),
            replies: journal.replies.load(Relaxed),
            errors: journal.errors.load(Relaxed),
            panics: journal.panics.load(Relaxed),
            reads: journal.reads.load(Relaxed),
            writes: journal.writes.load(Relaxed),
            bytes_read: journal.bytes_read.load(Relaxed),
            bytes_written: journal.bytes_written.load(Relaxed),
            inodes: self.table.len(),
            opens: journal.opens.load(Relaxed),
            waiting_for_write_back: self.queue.len() as u64,
            write_back_errors: journal.write_back_errors.load(Relaxed),
            changed_beside: journal.changed_beside.load(Relaxed),
            written_over: journal.written_over.load(Relaxed),
        }
    }
}
