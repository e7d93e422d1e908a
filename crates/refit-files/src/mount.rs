//! Mounting a directory.

use crate::backing_files::BackingFiles;
use crate::check::{self, ValidOptions};
use crate::composition::{MountObjects, compose};
use crate::data::Memory;
use crate::error::MountError;
use crate::flusher::Queue;
use crate::host::HostFile;
use crate::image::Image;
use crate::image::header::Negotiation;
use crate::jobs::{Jobs, job_queue};
use crate::journal::{Journal, MountStats, RequestEvent};
use crate::kernel_mount::{KernelMount, MountParameters, UnattachedMount, allows_others};
use crate::modes::{CacheMode, Modes};
use crate::mount_table;
use crate::negotiation;
use crate::options::{MountOptions, Users};
use crate::pressure::Pressure;
use crate::refused_opens::RefusedOpens;
use crate::requests::Requests;
use crate::server::Server;
use crate::source_lock::SourceLock;
use crate::space::Space;
use crate::table::Table;
use crate::unstored::Unstored;
use crate::wakefulness::Wakefulness;
use crate::workers::{RunningWorkers, Workers};
use fuser::{INodeNo, Notifier, SessionACL};
use parking_lot::Mutex;
use refit_memory::FramePool;
use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::{glob, printable};
use rustix::fs::StatVfsMountFlags;
use rustix::process::{Resource, Rlimit};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tracing::info;

/// A directory that is being served. Dropping it unmounts, but only [`Mount::unmount`] reports
/// errors.
#[derive(Debug)]
pub struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) attached: KernelMount,
    pub(crate) server: Arc<Server>,
    notifier: Notifier,
    /// The thread that ends after the workers; `None` after it was waited for.
    pub(crate) workers: Option<JoinHandle<()>>,
    pub(crate) helpers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Serves a directory. Returns when the mount answers requests.
///
/// # Errors
///
/// See [`MountError`]. Nothing is left behind after an error.
pub fn mount(options: MountOptions) -> Result<Mount, MountError> {
    let ValidOptions { source, mountpoint, root, stat } = check::check(&options)?;
    info!(?source, ?mountpoint, frames = options.frames_bytes, "mounts");
    let lock = SourceLock::new(&source)
        .map_err(|holder| MountError::Served { source_directory: source.clone(), holder })?;
    let inherited = rustix::fs::fstatvfs(&root).map_or(StatVfsMountFlags::empty(), |s| s.f_flag);
    let image = new_image(&mountpoint)?;
    let table = Table::new(&image, HostFile::new(root), &stat);
    let requests = Requests::new(&image);
    let known = KnownState { image, table, requests, lock };
    let (server, jobs) = new_server(&options, &mountpoint, known)?;
    let started = try_implementation(&server).and_then(|()| {
        let parameters = MountParameters {
            mountpoint: &mountpoint,
            source_name: mount_table::display_name(&source),
            users: options.users,
            read_only: options.read_only,
            inherited,
        };
        start(&server, source.clone(), &parameters, worker_count(&options), jobs)
    });
    if let Err(error) = &started {
        info!(%error, "could not mount");
        // No file was served, so there is nothing to write, and the objects can be dropped.
        let _ = server.finish();
    }
    started
}

/// Creates the image of a mount.
pub(crate) fn new_image(mountpoint: &Path) -> Result<Arc<Image>, MountError> {
    Image::new(raise_open_files())
        .map_err(|error| MountError::System { mountpoint: mountpoint.to_owned(), error })
}

/// The state with which a server begins: empty, or that of another server.
pub(crate) struct KnownState {
    pub(crate) image: Arc<Image>,
    pub(crate) table: Table,
    pub(crate) requests: Requests,
    pub(crate) lock: SourceLock,
}

/// Creates a server and the objects that its files share.
pub(crate) fn new_server(
    options: &MountOptions,
    mountpoint: &Path,
    known: KnownState,
) -> Result<(Arc<Server>, Jobs<Server>), MountError> {
    let KnownState { image, table, requests, lock } = known;
    let wakefulness = options.awake.then(Wakefulness::new).transpose();
    let wakefulness = wakefulness.map_err(|error| MountError::Awake { error })?;
    let frames = FramePool::new(options.frames_bytes)
        .map_err(|error| MountError::NoMemory { bytes: options.frames_bytes, error })?;
    image.set_frames(frames.memfds().map(|memfd| memfd.as_raw_fd()));
    image.set_locks(&lock.descriptors());
    let name = printable::name(mountpoint.as_os_str().as_bytes());
    let MountObjects { physical, caches, policies, objects } =
        compose(&options.composition, &name, &frames)?;
    let (job_queue, jobs) = job_queue();
    let capacity = image.capacity() as u64;
    let server = Server {
        table: Arc::new(table),
        memory: Memory { physical, frames, part: part(options.frames_bytes) },
        caches,
        shared: Mutex::new(Some(objects)),
        _policies: policies,
        queue: Queue::default(),
        journal: Journal::default(),
        requests,
        modes: Modes::new(options.cache),
        backing_files: BackingFiles::default(),
        pressure: Pressure::new(capacity),
        space: Space::new(crate::modes::memory(), held(options)),
        refused: RefusedOpens::new(&image),
        source_lock: Mutex::new(Some(lock)),
        lost: Mutex::new(None),
        jobs: job_queue,
        spin: AdaptiveSpin::default(),
        notifier: OnceLock::new(),
        wakefulness,
        image,
        users: options.users,
        xattrs: options.xattrs,
        reads_only: AtomicBool::new(options.read_only),
        write_back: writes_back(options.cache) && !options.read_only,
        flushes: !writes_back(options.cache) && !options.read_only,
        own: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    Ok((Arc::new(server), jobs))
}

/// Returns the number of bytes that the caches of a mount can hold unstored. Where the kernel
/// caches writes, they are stored when it sends them.
fn held(options: &MountOptions) -> u64 {
    if writes_back(options.cache) { 0 } else { options.frames_bytes }
}

/// Returns whether the kernel caches writes. It does so for all files of a mount or for none.
fn writes_back(cache: CacheMode) -> bool {
    // The kernel refuses to pass files through in a mount for which it caches writes.
    !matches!(cache, CacheMode::Direct | CacheMode::Passthrough)
}

/// The number of bytes that the kernel reads ahead if root mounts. A larger value avoids more
/// waits, but the program then finds less of the data in the processor's cache.
const READ_AHEAD: u32 = 256 << 10;

/// Makes the kernel read further ahead. A server can negotiate no more than the default of block
/// devices (128 KiB) when it is mounted, which is a round trip for every 32 pages of a file that is
/// read sequentially. Without the right to change the value, the default remains.
fn read_ahead(device: u64) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(file, (READ_AHEAD / 1024).to_string());
}

/// Creates a cache and destroys it, so that an unusable implementation is found before the first
/// file is opened.
fn try_implementation(server: &Server) -> Result<(), MountError> {
    let root = server.table.root();
    let data = server.new_data(|| "/".into(), root.host.clone(), 0).map_err(MountError::NoCache)?;
    server.end(&data);
    Ok(())
}

fn start(
    server: &Arc<Server>,
    source: PathBuf,
    parameters: &MountParameters<'_>,
    workers: usize,
    jobs: Jobs<Server>,
) -> Result<Mount, MountError> {
    let mountpoint = parameters.mountpoint.to_owned();
    let failed = |error| MountError::System { mountpoint: mountpoint.clone(), error };
    let (device, detached) = UnattachedMount::new(parameters)
        .map_err(|error| mount_failed(error, &mountpoint, server.own.0 == 0))?
        .into_parts();
    let ours = device.try_clone().map_err(failed)?;
    let acl = acl(parameters.users);
    let (workers, agreed) = Workers::begin(server, device, acl, workers).map_err(failed)?;
    if server.modes.default == CacheMode::Passthrough {
        let failed = |reason| MountError::NoPassthrough { reason };
        server.backing_files.begin(&ours, negotiation::passes_through(&agreed)).map_err(failed)?;
    }
    let threads = spawn(server, workers, jobs).map_err(failed)?;
    let attached = UnattachedMount::attach(detached.as_ref(), &mountpoint, ours).map_err(failed)?;
    // The mount counts as in use until it is dropped.
    drop(detached);
    record_connection(&server.image, &attached, &agreed);
    let mount = threads.serve(source, mountpoint, attached, server);
    // The first reply: from now on the mount works.
    let top = std::fs::metadata(&mount.mountpoint)
        .map_err(|error| MountError::System { mountpoint: mount.mountpoint.clone(), error })?;
    read_ahead(top.dev());
    info!(mountpoint = ?mount.mountpoint, device = top.dev(), "serves");
    Ok(mount)
}

/// Returns the rule by which the library checks users.
pub(crate) fn acl(users: Users) -> SessionACL {
    if allows_others(users) { SessionACL::All } else { SessionACL::Owner }
}

/// Records the connection of an attached mount for the next server. Another one can continue the
/// mount from then on, if the kernel can send requests again.
pub(crate) fn record_connection(image: &Image, attached: &KernelMount, agreed: &Negotiation) {
    if negotiation::offers_resend(agreed) && image.set_negotiation(agreed) {
        image.set_device(attached.device_number());
        image.set_mount(attached.identity());
    }
}

/// The threads of a server.
pub(crate) struct Threads {
    workers: RunningWorkers,
    helpers: Vec<JoinHandle<()>>,
}

/// Starts the threads of a server.
pub(crate) fn spawn(
    server: &Arc<Server>,
    workers: Workers,
    jobs: Jobs<Server>,
) -> io::Result<Threads> {
    server.spin.at(workers.device()?);
    let workers = workers.start()?;
    let _ = server.notifier.set(workers.notifier.clone());
    let helper = |name: &str, body: Box<dyn FnOnce(&Server) + Send>| {
        let server = server.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || body(&server))
    };
    let letting_go = workers.notifier.clone();
    let mut helpers = vec![
        helper("write-back", Box::new(Server::write_back_loop))?,
        helper("let-go", Box::new(move |server| server.release_loop(&letting_go)))?,
        helper("jobs", Box::new(|server| jobs.run(server)))?,
    ];
    if server.wakefulness.is_some() {
        helpers.push(helper("awake", Box::new(Server::keep_awake))?);
    }
    Ok(Threads { workers, helpers })
}

impl Threads {
    /// Returns the mount that they serve.
    pub(crate) fn serve(
        self,
        source: PathBuf,
        mountpoint: PathBuf,
        attached: KernelMount,
        server: &Arc<Server>,
    ) -> Mount {
        let Self { workers: RunningWorkers { guard, notifier }, helpers } = self;
        let (server, workers) = (Arc::clone(server), Some(guard));
        Mount { source, mountpoint, attached, server, notifier, workers, helpers }
    }
}

/// Returns the number of bytes for which one call of a cache may need frames: an eighth of the
/// budget, so that several workers find frames at once. It is limited, so that a call stays short.
fn part(frames_bytes: u64) -> usize {
    let pages = frames_bytes / 4096 / 8;
    usize::try_from(pages.clamp(8, 64) * 4096).unwrap_or(64 * 4096)
}

/// Returns the number of threads that execute requests.
pub(crate) fn worker_count(options: &MountOptions) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.workers.unwrap_or_else(processors).max(1)
}

fn mount_failed(error: io::Error, mountpoint: &Path, root: bool) -> MountError {
    let mountpoint = mountpoint.to_owned();
    let denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    let said = error.to_string();
    if error.raw_os_error() == Some(libc::ENODEV) {
        return MountError::NoFuse;
    }
    if denied || !root {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let reason =
            if missing { "fusermount3 is not installed".into() } else { said.trim().to_owned() };
        return MountError::NotPermitted { mountpoint, reason };
    }
    MountError::System { mountpoint, error }
}

/// Raises the limit on open files as far as permitted, since each inode that the kernel knows needs
/// a descriptor. Returns the new limit.
fn raise_open_files() -> u64 {
    let allowed = rustix::process::getrlimit(Resource::Nofile);
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most = most.and_then(|most| most.trim().parse::<u64>().ok());
    for limit in [most, allowed.maximum] {
        let wanted = Rlimit { current: limit, maximum: limit.max(allowed.maximum) };
        if limit.is_some() && rustix::process::setrlimit(Resource::Nofile, wanted).is_ok() {
            break;
        }
    }
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

impl Mount {
    /// Returns the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Returns the directory that is served.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Returns whether the mount has ended because of an `umount` by another process.
    pub fn ended(&self) -> bool {
        self.workers.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns whether programs may only read: the mount was mounted so, or its servers have
    /// crashed too often.
    pub fn is_read_only(&self) -> bool {
        self.server.reads_only.load(Relaxed)
    }

    /// Returns the counters of the mount.
    pub fn stats(&self) -> MountStats {
        self.server.stats()
    }

    /// Sets the mode in which files are opened if their path in the mount (beginning with `/`)
    /// matches `path_glob`. A `*` matches any characters. Where the kernel caches writes, it writes
    /// back and drops the pages of these files. Files that are open keep the mode in which they
    /// were opened. Returns the number of known files that match; `None`: files of this mount
    /// cannot get this mode, and nothing was changed.
    ///
    /// Must not be called by a thread that serves requests.
    pub fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> Option<usize> {
        let has_it = match mode {
            CacheMode::Passthrough => self.server.backing_files.available(),
            CacheMode::Exclusive => false,
            CacheMode::Kernel | CacheMode::Direct | CacheMode::Auto => true,
        };
        if !has_it || !self.server.sees_opens() {
            return None;
        }
        self.server.modes.add(path_glob, mode);
        let path_glob = printable::bytes(path_glob);
        let mut files = 0;
        for inode in self.server.table.all() {
            let regular = inode.kind == rustix::fs::FileType::RegularFile;
            let path = self.server.table.path(&inode);
            if regular && glob::matches(&path_glob, &path) {
                files += 1;
                if self.server.write_back {
                    // The kernel writes its dirty pages to the server before it drops them. Where
                    // it has none, it may drop a page between a write to the page and its request
                    // to the server, read the page again, and keep what was there before the
                    // write.
                    let _ = self.notifier.inval_inode(INodeNo(inode.node), 0, 0);
                }
            }
        }
        Some(files)
    }

    /// Starts recording requests as pairs of ID and event, up to `capacity` of them. For tests.
    pub fn start_request_journal(&self, capacity: usize) {
        self.server.journal.start(capacity);
    }

    /// Stops recording requests. Returns the events in order and the number of those that did not
    /// fit. For tests.
    pub fn stop_request_journal(&self) -> (Vec<(u64, RequestEvent)>, u64) {
        self.server.journal.stop()
    }

    /// Makes the next request that looks up or creates a name panic. For tests.
    #[doc(hidden)]
    pub fn panic_in_next_request(&self) {
        self.server.journal.panic_next.store(true, Relaxed);
    }

    /// Writes all data to the host, as `sync` does, without waiting for the disk.
    ///
    /// # Errors
    ///
    /// Returns the files that could not be stored. Their data is kept and written again later.
    pub fn write_back(&self) -> Result<(), Unstored> {
        let files = self.server.write_back_all();
        if files.is_empty() { Ok(()) } else { Err(files) }
    }
}
