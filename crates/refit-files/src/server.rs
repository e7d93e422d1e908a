//! The state that all parts of the server share, and the lifetime of a file's data.
//!
//! # Locks of the server, in the order in which they are taken
//!
//! | lock | protects |
//! |---|---|
//! | `lost` | the end of the mount: held by the first thread that ends it, until all is stored |
//! | locks of an [`Inode`] | see there |
//! | `shared` | the objects that all files share, until the mount ends |
//! | `source_lock` | the lock of the source, until everything is stored |

use crate::backing_files::BackingFiles;
use crate::data::{Data, Flush, Memory};
use crate::flusher::Queue;
use crate::host::HostFile;
use crate::image::{Image, request};
use crate::inode::Inode;
use crate::jobs::JobQueue;
use crate::journal::{Journal, MountStats, OpenFiles};
use crate::modes::{CacheMode, Modes};
use crate::options::Users;
use crate::pressure::Pressure;
use crate::refused_opens::RefusedOpens;
use crate::representative;
use crate::requests::Requests;
use crate::source_lock::SourceLock;
use crate::space::Space;
use crate::table::Table;
use crate::times;
use crate::unstored::{NotStored, Unstored};
use crate::values::Access;
use crate::wakefulness::Wakefulness;
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
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tracing::info;

thread_local! {
    /// The thread's file creation mask; `None` until the thread has been prepared.
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether the thread shares its mask with other threads and must not change it.
    static MASK_SHARED: Cell<bool> = const { Cell::new(false) };
}

/// The server of one mount.
pub(crate) struct Server {
    pub(crate) table: Arc<Table>,
    pub(crate) memory: Memory,
    /// Creates the caches of the files.
    pub(crate) caches: FileCacheFactory,
    /// The objects that all files share; taken when the mount ends.
    pub(crate) shared: Mutex<Option<Composition>>,
    /// Kept for as long as the mount exists, so that the policy belongs to a class.
    pub(crate) _policies: Arc<OnceLock<ReplacementPolicyFactory>>,
    pub(crate) queue: Queue,
    pub(crate) journal: Journal,
    pub(crate) image: Arc<Image>,
    pub(crate) requests: Requests,
    pub(crate) modes: Modes,
    pub(crate) backing_files: BackingFiles,
    pub(crate) pressure: Pressure,
    pub(crate) jobs: JobQueue<Self>,
    pub(crate) spin: AdaptiveSpin,
    /// Set when the mount is attached.
    pub(crate) notifier: OnceLock<Notifier>,
    /// `None`: processors go idle as usual.
    pub(crate) wakefulness: Option<Wakefulness>,
    pub(crate) users: Users,
    /// Whether programs can use extended attributes.
    pub(crate) xattrs: bool,
    /// Whether programs may only read: the mount is read-only, or servers crash at their start.
    pub(crate) reads_only: AtomicBool,
    /// Whether the kernel caches writes.
    pub(crate) write_back: bool,
    /// Whether data may wait to be stored when a file is closed.
    pub(crate) flushes: bool,
    pub(crate) space: Space,
    pub(crate) refused: RefusedOpens,
    /// Held until everything is stored.
    pub(crate) source_lock: Mutex<Option<SourceLock>>,
    /// The files that could not be stored when the mount ended; `None` until then.
    pub(crate) lost: Mutex<Option<Unstored>>,
    /// The user and the group of the server itself.
    pub(crate) own: (u32, u32),
}

/// The thread that made a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// The file creation mask, which applies to new files unless a default ACL does.
    pub(crate) umask: u32,
}

impl Caller {
    /// Returns the caller that the kernel names. For most requests its file creation mask is not
    /// known.
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
    /// Returns the inode with the number `node`.
    pub(crate) fn inode(&self, node: u64) -> Result<Arc<Inode>, Errno> {
        self.table.get(node).ok_or(Errno::STALE)
    }

    /// Returns whether the kernel asks before it opens a file, and says when it has closed it.
    pub(crate) fn sees_opens(&self) -> bool {
        self.modes.default != CacheMode::Exclusive
    }

    /// Lets programs only read from now on. The data that they have written stays in the caches
    /// until the mount ends, or another server continues it.
    pub(crate) fn read_only(&self) {
        self.reads_only.store(true, Relaxed);
        self.queue.close();
    }

    /// Returns `EROFS` if the request that this thread executes may not change anything. One that a
    /// server before has executed may have changed something already, and is executed again.
    pub(crate) fn may_change(&self) -> Result<(), Errno> {
        let refused = self.reads_only.load(Relaxed) && !request::is_repeated();
        if refused { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Makes files created on the host belong to the caller for as long as the guard exists.
    pub(crate) fn act_as(&self, caller: Caller) -> Result<Option<ActingAs>, Errno> {
        if UMASK.get().is_none() {
            MASK_SHARED.set(!credentials::prepare_thread().own_umask);
            UMASK.set(Some(0));
        }
        if !MASK_SHARED.get() && UMASK.replace(Some(caller.umask)) != Some(caller.umask) {
            credentials::set_umask(caller.umask);
        }
        if self.own.0 != 0 {
            // Without privileges no other identity can be taken.
            return Ok(None);
        }
        ActingAs::new(self.own, caller.uid, caller.gid)
            .map(Some)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))
    }

    /// Returns the data of a regular file, ready for `access`. The guard excludes operations that
    /// change the host's file underneath the cache.
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

    /// Returns the approximate number of descriptors that the mount uses, which is one per inode.
    pub(crate) fn descriptors(&self) -> u64 {
        self.table.len()
    }

    /// Creates the cache and the file representative of a regular file of `size` bytes, unless they
    /// exist.
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
        inode.record.set_cache(refit_memory::cache_word(data.cache), size);
        *slot = Some(data);
        Ok(())
    }

    /// Creates the objects of a file of `size` bytes.
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

    /// Returns the name of a file's objects. It is determined on demand, since files are renamed.
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

    /// Records the time of a write to the file, and queues the file for write-back.
    pub(crate) fn written(&self, inode: &Arc<Inode>, by_kernel_cache: bool) {
        inode.times.lock().written(times::now(), by_kernel_cache);
        if inode.access_noted.load(Relaxed) {
            inode.access_noted.store(false, Relaxed);
        }
        self.queue.add(inode);
    }

    /// Stores a file: writes its dirty pages to the host and sets the times there. Records whether
    /// it succeeded.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<(), Errno> {
        let outcome = self.write_back_parts(inode);
        self.note_stored(inode, outcome)
    }

    /// Records whether a file could be stored. The data of a file that could not be is kept and
    /// written again later.
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
            // Locked anew for each part, so that an operation that needs the file exclusively does
            // not wait for the whole file.
            let slot = inode.data.read();
            let Some(data) = slot.as_ref().filter(|_| !inode.is_gone()) else { return Ok(()) };
            if !self.memory.flush_part(data, &mut flush)? {
                return self.settle(inode, data);
            }
        }
    }

    /// Sets the modification time on the host if no data is waiting any more.
    pub(crate) fn settle(&self, inode: &Inode, data: &Data) -> Result<(), Errno> {
        // A write makes the cache dirty first and then takes this lock: the test sees earlier
        // writes, and later writes record a new time after this.
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
            // The file belongs to another user and this one may only write it: the host's own time
            // remains.
            Err(Errno::PERM | Errno::ACCESS) => {
                times.as_on_host();
                return Ok(());
            }
            outcome => outcome?,
        }
        times.settled(&rustix::fs::fstat(&*inode.fd())?);
        Ok(())
    }

    /// Handles the kernel's forgetting of an inode. The inode is removed at once if no data of it
    /// is waiting, and after the write-back otherwise.
    pub(crate) fn forgotten(&self, inode: &Arc<Inode>) {
        if !inode.is_gone() && rustix::fs::fstat(&*inode.fd()).is_ok_and(|stat| stat.st_nlink == 0)
        {
            inode.set_gone(true);
        }
        if self.waits(inode) {
            self.queue.add(inode);
        } else {
            self.retire(inode);
        }
    }

    /// Returns whether some data of a file is not on the host yet and must get there.
    fn waits(&self, inode: &Inode) -> bool {
        !inode.is_gone()
            && (inode.times.lock().waiting().is_some()
                || inode.data.read().as_ref().is_some_and(|data| data.cache.is_dirty()))
    }

    /// Removes an inode that the kernel has forgotten from the table and destroys its objects.
    pub(crate) fn retire(&self, inode: &Arc<Inode>) {
        // Counted before the inode leaves the table: a thread that does not find it there takes its
        // blocks for free.
        let _ending = self.space.ending();
        if self.table.remove(inode) {
            self.space.stored(inode);
            self.end_passthrough(inode);
            let data = inode.data.write().take();
            if let Some(data) = data {
                self.end(&data);
            }
            if inode.kind == FileType::RegularFile {
                inode.host.close(self.table.root().fd());
            }
        }
    }

    /// Destroys the objects of a file. Data that is still needed has been written back before.
    pub(crate) fn end(&self, data: &Data) {
        refit_memory::destroy_file_cache(data.cache, &self.memory.frames);
        representative::destroy(data.representative);
    }

    /// Stores every file. Returns those that could not be stored, whose data is kept.
    pub(crate) fn write_back_all(&self) -> Unstored {
        self.queue.clear();
        let mut unstored = Unstored::default();
        // The queue is not enough: the background thread may have removed a file and still be
        // writing it.
        for inode in self.table.all() {
            if !self.waits(&inode) {
                continue;
            }
            if let Err(errno) = self.write_back(&inode) {
                let path = PathBuf::from(OsString::from_vec(self.table.path(&inode)));
                unstored.0.push(NotStored { path, errno: errno.raw_os_error() });
            } else if inode.record.lookups() == 0 {
                self.retire(&inode);
            }
        }
        unstored
    }

    /// Runs the background thread.
    pub(crate) fn write_back_loop(&self) {
        while let Some(inode) = self.queue.next() {
            if self.write_back(&inode).is_ok() && inode.record.lookups() == 0 {
                self.retire(&inode);
            }
        }
    }

    /// Ends the service of a mount: writes all data to the host, destroys every object, and unlocks
    /// the source. Returns the files that could not be stored, whose data is lost; repeated calls
    /// return the same.
    pub(crate) fn finish(&self) -> Unstored {
        let mut lost = self.lost.lock();
        if let Some(lost) = &*lost {
            return lost.clone();
        }
        self.queue.close();
        self.pressure.close();
        self.jobs.close();
        if let Some(wakefulness) = &self.wakefulness {
            wakefulness.close();
        }
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
        info!(not_stored = unstored.0.len(), "the mount has ended, and its source is unlocked");
        lost.insert(unstored).clone()
    }

    /// Keeps processors awake while requests come, until the server finishes.
    pub(crate) fn keep_awake(&self) {
        if let Some(wakefulness) = &self.wakefulness {
            wakefulness.run(&self.journal.requests);
        }
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
            files: open_files(&self.table),
            waiting_for_write_back: self.queue.len() as u64,
            write_back_errors: journal.write_back_errors.load(Relaxed),
            changed_beside: journal.changed_beside.load(Relaxed),
            written_over: journal.written_over.load(Relaxed),
        }
    }
}

/// Counts the regular files that are open.
fn open_files(table: &Table) -> OpenFiles {
    let mut files = OpenFiles::default();
    table.each(|inode| {
        let opens = inode.record.uses().opens();
        if opens > 0 && inode.kind == FileType::RegularFile {
            files.open += 1;
            files.shared += u64::from(opens > 1);
            files.passed_through += u64::from(inode.is_passed_through());
        }
    });
    files
}

/// Finishes a server on drop.
pub(crate) struct FinishOnDrop(pub(crate) Arc<Server>);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        let _ = self.0.finish();
    }
}
