//! Mounting a directory and unmounting it.

use crate::answer::Fuse;
use crate::check::{self, ValidOptions};
use crate::composition::{MountObjects, compose};
use crate::data::Memory;
use crate::error::{MountError, UnmountError};
use crate::flusher::Queue;
use crate::host::HostFile;
use crate::jobs::{Jobs, job_queue};
use crate::journal::{Journal, MountStats, RequestEvent};
use crate::kernel_mount::{KernelMount, MountParameters, UnattachedMount};
use crate::modes::{CacheMode, Modes};
use crate::outdated::RefusedOpens;
use crate::pressure::Pressure;
use crate::server::Server;
use crate::source_lock::SourceLock;
use crate::space::Space;
use crate::table::Table;
use crate::unstored::Unstored;
use fuser::{BackgroundSession, Config, INodeNo, Notifier, Session, SessionACL};
use parking_lot::Mutex;
use refit_memory::FramePool;
use refit_objects::composition::Plan;
use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::{glob, printable};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::info;

/// The options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory to serve.
    pub source: PathBuf,
    /// The directory at which it appears. It must exist and lie outside of the source.
    pub mountpoint: PathBuf,
    /// The memory for page frames of all files of the mount, in bytes; at least 64 pages.
    pub frames_bytes: u64,
    /// Whether the kernel caches files as well.
    pub cache: CacheMode,
    /// The number of threads that serve requests; `None` means the number of processors.
    pub workers: Option<usize>,
    /// The building blocks of the mount; see [`composition`](crate::composition()).
    pub composition: Plan,
    /// Whether users other than the one who mounts may use it. Implied if root mounts.
    pub allow_other: bool,
    /// Whether nothing can be changed through the mount.
    pub read_only: bool,
}

/// A directory that is being served. Dropping it unmounts, but only [`Mount::unmount`] reports
/// errors.
#[derive(Debug)]
pub struct Mount {
    source: PathBuf,
    mountpoint: PathBuf,
    attached: KernelMount,
    server: Arc<Server>,
    notifier: Notifier,
    session: Option<BackgroundSession>,
    helpers: Vec<JoinHandle<()>>,
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
    let source_lock = SourceLock::new(&source)?;
    let inherited = rustix::fs::fstatvfs(&root).map_or(StatVfsMountFlags::empty(), |s| s.f_flag);
    let frames = FramePool::new(options.frames_bytes)
        .map_err(|error| MountError::NoMemory { bytes: options.frames_bytes, error })?;
    let name = printable::name(mountpoint.as_os_str().as_bytes());
    let MountObjects { physical, caches, policies, objects } =
        compose(&options.composition, &name, &frames)?;
    let (job_queue, jobs) = job_queue();
    let server = Arc::new(Server {
        table: Arc::new(Table::new(HostFile::new(root), &stat)),
        memory: Memory { physical, frames, part: part(options.frames_bytes) },
        caches,
        shared: Mutex::new(Some(objects)),
        _policies: policies,
        queue: Queue::default(),
        journal: Journal::default(),
        modes: Modes::new(options.cache),
        pressure: Pressure::new(raise_open_files()),
        space: Space::new(crate::modes::memory(), held(&options)),
        refused: RefusedOpens::default(),
        source_lock: Mutex::new(Some(source_lock)),
        lost: Mutex::new(None),
        jobs: job_queue,
        spin: AdaptiveSpin::default(),
        notifier: OnceLock::new(),
        write_back: options.cache != CacheMode::Direct && !options.read_only,
        own: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    });
    let started = try_implementation(&server).and_then(|()| {
        let source_name = check::display_name(&source);
        let allow_other = server.own.0 == 0 || options.allow_other;
        let read_only = options.read_only;
        let parameters = MountParameters {
            mountpoint: &mountpoint,
            source_name,
            allow_other,
            read_only,
            inherited,
        };
        start(&server, source.clone(), &parameters, session_config(&options), jobs)
    });
    if started.is_err() {
        // No file was served, so there is nothing to write, and the objects can be dropped.
        let _ = server.finish();
    }
    started
}

/// Returns the number of bytes that the caches of a mount can hold unstored. Where the kernel
/// caches writes, they are stored when it sends them.
fn held(options: &MountOptions) -> u64 {
    if options.cache == CacheMode::Direct { options.frames_bytes } else { 0 }
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
    config: Config,
    jobs: Jobs,
) -> Result<Mount, MountError> {
    let mountpoint = parameters.mountpoint.to_owned();
    let failed = |error| MountError::System { mountpoint: mountpoint.clone(), error };
    let (device, detached) = UnattachedMount::new(parameters)
        .map_err(|error| mount_failed(error, &mountpoint, server.own.0 == 0))?
        .into_parts();
    let ours = device.try_clone().map_err(failed)?;
    let fuse = Fuse { server: server.clone() };
    let acl = if parameters.allow_other { SessionACL::All } else { SessionACL::Owner };
    let session = Session::from_fd(fuse, device, acl, config).map_err(failed)?;
    let notifier = session.notifier();
    let _ = server.notifier.set(notifier.clone());
    server.spin.at(session.as_fd().try_clone_to_owned().map_err(failed)?);
    let session = session.spawn().map_err(failed)?;
    let helper = |name: &str, body: Box<dyn FnOnce(&Server) + Send>| {
        let server = server.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || body(&server))
    };
    let letting_go = notifier.clone();
    let helpers = vec![
        helper("write-back", Box::new(Server::write_back_loop)).map_err(failed)?,
        helper("let-go", Box::new(move |server| server.pressure.run(server, &letting_go)))
            .map_err(failed)?,
        helper("jobs", Box::new(|server| jobs.run(server))).map_err(failed)?,
    ];
    let attached = UnattachedMount::attach(detached.as_ref(), &mountpoint, ours).map_err(failed)?;
    // The mount counts as in use until it is dropped.
    drop(detached);
    let server = server.clone();
    let session = Some(session);
    let mount = Mount { source, attached, mountpoint, server, notifier, session, helpers };
    // The first reply: from now on the mount works.
    let top = std::fs::metadata(&mount.mountpoint)
        .map_err(|error| MountError::System { mountpoint: mount.mountpoint.clone(), error })?;
    read_ahead(top.dev());
    Ok(mount)
}

/// Returns the number of bytes for which one call of a cache may need frames: an eighth of the
/// budget, so that several workers find frames at once, limited so that a call stays short.
fn part(frames_bytes: u64) -> usize {
    let pages = frames_bytes / 4096 / 8;
    usize::try_from(pages.clamp(8, 64) * 4096).unwrap_or(64 * 4096)
}

fn session_config(options: &MountOptions) -> Config {
    let workers = options
        .workers
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let mut config = Config::default();
    config.n_threads = Some(workers.max(1));
    config.clone_fd = workers > 1;
    config
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

    /// Returns whether the mount has ended because somebody ran `umount`.
    pub fn ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Returns the counters of the mount.
    pub fn stats(&self) -> MountStats {
        self.server.stats()
    }

    /// Sets the mode in which files are opened whose path in the mount (beginning with `/`) matches
    /// `path_glob`, in which `*` matches any characters. The kernel writes back and drops the pages
    /// of these files. Files that are open keep the mode in which they were opened. Returns the
    /// number of known files that match.
    ///
    /// Must not be called by a thread that serves requests.
    pub fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> usize {
        self.server.modes.add(path_glob, mode);
        let path_glob = printable::bytes(path_glob);
        let mut files = 0;
        for inode in self.server.table.all() {
            let regular = inode.kind == rustix::fs::FileType::RegularFile;
            let path = self.server.table.path(&inode);
            if regular && glob::matches(&path_glob, &path) {
                files += 1;
                // The kernel writes its dirty pages to the server before it drops them.
                let _ = self.notifier.inval_inode(INodeNo(inode.node), 0, 0);
            }
        }
        files
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

    /// Stores all data and unmounts.
    ///
    /// # Errors
    ///
    /// See [`UnmountError`]. If the mount is in use or some data cannot be stored, the mount
    /// continues and is returned in the error.
    pub fn unmount(self) -> Result<(), UnmountError> {
        info!(mountpoint = ?self.mountpoint, "unmounts");
        if self.attached.connected()
            && let Err(files) = self.write_back()
        {
            return Err(UnmountError::NotStored { mount: Box::new(self), files });
        }
        let (mountpoint, source_directory) = (self.mountpoint.clone(), self.source.clone());
        let files = self.unmount_and_discard()?;
        if files.is_empty() {
            return Ok(());
        }
        Err(UnmountError::Lost { mountpoint, source_directory, files })
    }

    /// Unmounts and discards the data that cannot be stored. Returns the files concerned.
    ///
    /// # Errors
    ///
    /// See [`UnmountError`]. If the mount is in use, it continues and is returned in the error.
    pub fn unmount_and_discard(mut self) -> Result<Unstored, UnmountError> {
        if !self.ended()
            && let Err(error) = self.unmount_when_idle()
        {
            let busy = error.raw_os_error() == Some(libc::EBUSY);
            let elsewhere = if busy { self.attached.holder_elsewhere() } else { None };
            info!(mountpoint = ?self.mountpoint, %error, ?elsewhere, "is in use");
            let mount = Box::new(self);
            return Err(match elsewhere {
                Some(process) => UnmountError::Elsewhere { mount, process },
                None if busy => UnmountError::Busy { mount },
                None => UnmountError::System { mount, error },
            });
        }
        Ok(self.join())
    }

    /// Stores the data that can be stored and detaches the mount from its path at once, even if it
    /// is in use. Returns the files that could not be stored, whose data is lost.
    pub fn detach(mut self) -> Unstored {
        self.take_out_of_sight()
    }

    fn take_out_of_sight(&mut self) -> Unstored {
        let unstored = self.server.write_back_all();
        if self.ended() || self.attached.unmount(UnmountFlags::empty()).is_ok() {
            return self.join();
        }
        // The mount is in use: it disappears now and ends with its last user, which is not waited
        // for here.
        let _ = self.attached.unmount(UnmountFlags::DETACH);
        self.session = None;
        unstored
    }

    /// Unmounts, and retries for a short time while the mount is in use. A process that is ending,
    /// or has just forked and not yet executed, holds files for some milliseconds that it no longer
    /// uses.
    fn unmount_when_idle(&self) -> io::Result<()> {
        const ATTEMPTS: u32 = 50;
        const RETRY_INTERVAL: Duration = Duration::from_millis(10);
        for _ in 0..ATTEMPTS {
            match self.attached.unmount(UnmountFlags::empty()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                outcome => return outcome,
            }
        }
        self.attached.unmount(UnmountFlags::empty())
    }

    /// Waits for the end of a session that has been unmounted. Returns the files that could not be
    /// stored.
    fn join(&mut self) -> Unstored {
        if let Some(session) = self.session.take() {
            // The threads report the end of the connection, which is expected.
            let _ = session.join();
        }
        let unstored = self.server.finish();
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
        unstored
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.take_out_of_sight();
        }
    }
}
