//! Mounting a directory and unmounting it.

use crate::answer::Fuse;
use crate::aside::{Jobs, aside};
use crate::check::{self, Checked};
use crate::composition::{Composed, compose};
use crate::data::Memory;
use crate::error::{MountError, UnmountError};
use crate::flusher::Queue;
use crate::host::HostFile;
use crate::journal::{Journal, MountStats, RequestEvent};
use crate::kernel_mount::{KernelMount, Prepared, Wanted};
use crate::modes::{CacheMode, Modes};
use crate::outdated::Refused;
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
use refit_sys::printable;
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

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory to serve.
    pub source: PathBuf,
    /// The directory where it appears. Must be there, outside of the source.
    pub mountpoint: PathBuf,
    /// Bytes of page frames for all files of the mount; at least 64 pages.
    pub frames_bytes: u64,
    /// Whether the kernel caches files too.
    pub cache: CacheMode,
    /// Threads that serve requests; as many as there are processors if not given.
    pub workers: Option<usize>,
    /// Which building blocks it is made of; see [`composition`](crate::composition()).
    pub composition: Plan,
    /// Users other than the one who mounts may use it. Always so when root mounts.
    pub allow_other: bool,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
}

/// A directory that is being served. Unmounts when dropped, but [`Mount::unmount`] says what went wrong.
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

/// Serves a directory. Returns when the mount answers.
///
/// # Errors
/// See [`MountError`]; nothing is left behind then.
pub fn mount(options: MountOptions) -> Result<Mount, MountError> {
    let Checked { source, mountpoint, root, stat } = check::check(&options)?;
    let source_lock = SourceLock::new(&source)?;
    let inherited = rustix::fs::fstatvfs(&root).map_or(StatVfsMountFlags::empty(), |s| s.f_flag);
    let frames = FramePool::new(options.frames_bytes)
        .map_err(|error| MountError::NoMemory { bytes: options.frames_bytes, error })?;
    let name = printable::name(mountpoint.as_os_str().as_bytes());
    let Composed { physical, caches, policies, objects } =
        compose(&options.composition, &name, &frames)?;
    let (aside, jobs) = aside();
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
        refused: Refused::default(),
        source_lock: Mutex::new(Some(source_lock)),
        lost: Mutex::new(None),
        aside,
        spin: AdaptiveSpin::default(),
        notifier: OnceLock::new(),
        write_back: options.cache != CacheMode::Direct && !options.read_only,
        own: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    });
    let started = try_implementation(&server).and_then(|()| {
        let source_name = check::display_name(&source);
        let allow_other = server.own.0 == 0 || options.allow_other;
        let read_only = options.read_only;
        let wanted =
            Wanted { mountpoint: &mountpoint, source_name, allow_other, read_only, inherited };
        start(&server, source.clone(), &wanted, session_config(&options), jobs)
    });
    if started.is_err() {
        // No file was served: there is nothing to write, and the objects go.
        let _ = server.finish();
    }
    started
}

/// Bytes that the caches of a mount can hold unstored. Where the kernel collects writes, they are stored when they come.
fn held(options: &MountOptions) -> u64 {
    if options.cache == CacheMode::Direct { options.frames_bytes } else { 0 }
}

/// Bytes that the kernel reads ahead, where root mounts. More saves waits, but the program then finds less of it in the
/// processor's cache.
const READ_AHEAD: u32 = 256 << 10;

/// Lets the kernel read further ahead. What a server can agree on when it is mounted is no more than the default of
/// block devices (128 KiB), which is a round trip for every 32 pages of a file that is read from beginning to end.
/// Without the right to change it, it stays at that.
fn read_ahead(device: u64) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(file, (READ_AHEAD / 1024).to_string());
}

/// Makes a cache and ends it: the first file must not be the one that finds out.
fn try_implementation(server: &Server) -> Result<(), MountError> {
    let root = server.table.root();
    let data = server.new_data(|| "/".into(), root.host.clone(), 0).map_err(MountError::NoCache)?;
    server.end(&data);
    Ok(())
}

fn start(
    server: &Arc<Server>,
    source: PathBuf,
    wanted: &Wanted<'_>,
    config: Config,
    jobs: Jobs,
) -> Result<Mount, MountError> {
    let mountpoint = wanted.mountpoint.to_owned();
    let failed = |error| MountError::System { mountpoint: mountpoint.clone(), error };
    let (device, detached) = Prepared::new(wanted)
        .map_err(|error| mount_failed(error, &mountpoint, server.own.0 == 0))?
        .into_parts();
    let ours = device.try_clone().map_err(failed)?;
    let fuse = Fuse { server: server.clone() };
    let acl = if wanted.allow_other { SessionACL::All } else { SessionACL::Owner };
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
        helper("aside", Box::new(|server| jobs.run(server))).map_err(failed)?,
    ];
    let attached = Prepared::attach(detached.as_ref(), &mountpoint, ours).map_err(failed)?;
    // As long as it is held, the mount is in use.
    drop(detached);
    let server = server.clone();
    let session = Some(session);
    let mount = Mount { source, attached, mountpoint, server, notifier, session, helpers };
    // The first answer: from here on the mount works.
    let top = std::fs::metadata(&mount.mountpoint)
        .map_err(|error| MountError::System { mountpoint: mount.mountpoint.clone(), error })?;
    read_ahead(top.dev());
    Ok(mount)
}

/// Bytes that one call of a cache may need frames for: an eighth of the budget, so that several workers find
/// frames at once, and no more than keeps a call short.
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

/// Each inode that the kernel knows costs a descriptor; so as many as allowed, and with the
/// privilege for it as many as there can be. How many that are.
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
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// What is served.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Whether it is over: somebody ran `umount`.
    pub fn ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// What it has done.
    pub fn stats(&self) -> MountStats {
        self.server.stats()
    }

    /// From now on files whose path in the mount (beginning with `/`) matches `path_glob` are opened in `mode`; `*`
    /// stands for any characters. What the kernel holds of such files comes here and is dropped there; files that
    /// are open stay in the mode they were opened in. How many known files match.
    ///
    /// Must not be called by a thread that serves requests.
    pub fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> usize {
        self.server.modes.add(path_glob, mode);
        let path_glob = printable::bytes(path_glob);
        let mut files = 0;
        for inode in self.server.table.all() {
            let regular = inode.kind == rustix::fs::FileType::RegularFile;
            let path = self.server.table.path(&inode);
            if regular && crate::glob::matches(&path_glob, &path) {
                files += 1;
                // The kernel writes dirty pages to us before it drops them.
                let _ = self.notifier.inval_inode(INodeNo(inode.node), 0, 0);
            }
        }
        files
    }

    /// Keeps a journal of requests: `(id, event)`, up to `capacity` of them. For tests.
    pub fn start_request_journal(&self, capacity: usize) {
        self.server.journal.start(capacity);
    }

    /// Ends the journal of requests: the events in order, and how many did not fit.
    pub fn stop_request_journal(&self) -> (Vec<(u64, RequestEvent)>, u64) {
        self.server.journal.stop()
    }

    /// The next request that looks up or makes a name panics. For tests.
    #[doc(hidden)]
    pub fn panic_in_next_request(&self) {
        self.server.journal.panic_next.store(true, Relaxed);
    }

    /// Writes everything to the host, as `sync` does, without waiting for the disk.
    ///
    /// # Errors
    /// What could not be stored; its data stays, and is tried again.
    pub fn write_back(&self) -> Result<(), Unstored> {
        let files = self.server.write_back_all();
        if files.is_empty() { Ok(()) } else { Err(files) }
    }

    /// Stores everything and unmounts.
    ///
    /// # Errors
    /// See [`UnmountError`]. When it is in use or something cannot be stored, the mount goes on and is in the error.
    pub fn unmount(self) -> Result<(), UnmountError> {
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

    /// Unmounts, and gives up what cannot be stored; returns that.
    ///
    /// # Errors
    /// See [`UnmountError`]. When it is in use, the mount goes on and is in the error.
    pub fn unmount_and_discard(mut self) -> Result<Unstored, UnmountError> {
        if !self.ended()
            && let Err(error) = self.unmount_when_idle()
        {
            let busy = error.raw_os_error() == Some(libc::EBUSY);
            let elsewhere = if busy { self.attached.holder_elsewhere() } else { None };
            let mount = Box::new(self);
            return Err(match elsewhere {
                Some(process) => UnmountError::Elsewhere { mount, process },
                None if busy => UnmountError::Busy { mount },
                None => UnmountError::System { mount, error },
            });
        }
        Ok(self.join())
    }

    /// Stores what can be stored and takes the mount out of sight at once, whoever uses it. Returns what could not be
    /// stored, which is lost.
    pub fn detach(mut self) -> Unstored {
        self.take_out_of_sight()
    }

    fn take_out_of_sight(&mut self) -> Unstored {
        let unstored = self.server.write_back_all();
        if self.ended() || self.attached.unmount(UnmountFlags::empty()).is_ok() {
            return self.join();
        }
        // In use: it disappears now, and ends when the last user has. Nobody waits for that here.
        let _ = self.attached.unmount(UnmountFlags::DETACH);
        self.session = None;
        unstored
    }

    /// Unmounts, and does not take the last moments of a user for use: a process that ends, or has just forked and
    /// not yet executed, holds files for some milliseconds that nobody uses any more.
    fn unmount_when_idle(&self) -> io::Result<()> {
        const MOMENTS: u32 = 50;
        const MOMENT: Duration = Duration::from_millis(10);
        for _ in 0..MOMENTS {
            match self.attached.unmount(UnmountFlags::empty()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(MOMENT);
                }
                outcome => return outcome,
            }
        }
        self.attached.unmount(UnmountFlags::empty())
    }

    /// Waits for the end of a session that has been unmounted; returns what could not be stored.
    fn join(&mut self) -> Unstored {
        if let Some(session) = self.session.take() {
            // What the threads report is the end of the connection, which was wanted.
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
