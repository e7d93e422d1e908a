//! The instance: several mounts, one journal, one control socket.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use refit_change::Journal;

use crate::directory::{SocketDirectory, reason};
use crate::held::{HeldServer, LeftState};
use crate::refusal::{Kind, Refusal};
use crate::server::Server;
use crate::state::Core;
use crate::system::{Served, System};
use crate::wire::{Mount, MountRequest};

/// The maximum number of reports in the journal, which take about ten megabytes at somewhat over
/// half a kilobyte each.
const JOURNAL_REPORTS: usize = 16_384;

/// The options of an instance.
#[derive(Debug)]
pub struct InstanceOptions {
    /// The directory of its socket.
    pub directory: SocketDirectory,
    /// The user who may send requests besides root. Others are refused even if they can open the
    /// socket.
    pub uid: u32,
    /// The maximum number of reports in the journal.
    pub journal_reports: usize,
    /// The number of the instance, by which its socket is found: by default that of this process.
    pub number: u32,
    /// The socket of the instance if it listens already, for a server before this one.
    pub listener: Option<UnixListener>,
    /// The holder of this server, if it has one.
    pub held: Option<HeldServer>,
}

impl InstanceOptions {
    /// Returns options for the user of this process, in the user's default directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, or others can write to it.
    pub fn of_this_user() -> Result<Self, Refusal> {
        Ok(Self::at(SocketDirectory::open()?))
    }

    /// Returns options for the user of this process, in the given directory.
    pub fn at(directory: SocketDirectory) -> Self {
        InstanceOptions {
            directory,
            uid: rustix::process::geteuid().as_raw(),
            journal_reports: JOURNAL_REPORTS,
            number: std::process::id(),
            listener: None,
            held: None,
        }
    }
}

/// A kernel instance. Dropping it ends the control API and removes its socket. Mounts that are left
/// are dropped, which ends them as the file server decides; call [`Instance::unmount_all`] first.
pub struct Instance {
    core: Arc<Core>,
    server: Server,
    /// Records in the journal which wrappers had to be detached, for as long as it exists.
    _failures: Arc<dyn Fn(&refit_objects::WrapperFailure) + Send + Sync>,
}

impl Instance {
    /// Starts an instance and listens for requests.
    ///
    /// # Errors
    ///
    /// The socket cannot be created.
    pub fn start(system: Arc<dyn System>, options: InstanceOptions) -> Result<Self, Refusal> {
        let number = options.number;
        let socket = options.directory.socket(number);
        let failed = |e: std::io::Error| {
            Refusal::new(
                Kind::Failed,
                format!("listen on {}", socket.display()),
                reason(&e),
                "name another directory in REFIT_RUNTIME_DIR",
            )
        };
        let listener = match options.listener {
            Some(listener) => listener,
            None => options.directory.listen(number).map_err(failed)?,
        };
        if let Some(held) = &options.held {
            held.listens(&listener);
        }
        let InstanceOptions { journal_reports, uid, held, .. } = options;
        let core = Arc::new(Core::new(system, journal_reports, uid, number, held));
        let server = Server::start(Arc::clone(&core), listener, socket.clone()).map_err(failed)?;
        crate::recording::listen();
        let failures = write_down_failures(&core);
        Ok(Instance { core, server, _failures: failures })
    }

    /// Returns the number of the instance.
    pub fn number(&self) -> u32 {
        self.core.number
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.server.socket().to_owned()
    }

    /// Mounts a directory and returns the number of the mount.
    ///
    /// # Errors
    ///
    /// Returns what prevented the mount. Nothing is left mounted.
    pub fn mount(&self, request: &MountRequest) -> Result<u32, Refusal> {
        self.core.mount(request)
    }

    /// Adds a mount that another server has served before. Returns the number of the mount.
    pub fn add(&self, served: Box<dyn Served>) -> u32 {
        self.core.add(served)
    }

    /// Returns whether another server can continue all mounts, which needs a kernel that can send
    /// requests again.
    pub fn can_be_continued(&self) -> bool {
        self.core.images().len() == self.core.mount_ids().len()
    }

    /// Records what another server needs to continue this instance, if it has a holder.
    pub fn record(&self) {
        self.core.record();
    }

    /// Returns all mounts.
    pub fn mounts(&self) -> Vec<Mount> {
        self.core.mounts()
    }

    /// Removes mounts that another process has unmounted. Returns their number.
    pub fn reap(&self) -> usize {
        self.core.reap()
    }

    /// Returns whether nothing is mounted or being unmounted.
    pub fn idle(&self) -> bool {
        self.core.mount_ids().is_empty()
    }

    /// Takes the reports of data that mounts could not store and that is lost.
    pub fn take_lost(&self) -> Vec<Refusal> {
        self.core.take_lost()
    }

    /// Unmounts everything that can be unmounted.
    ///
    /// # Errors
    ///
    /// Returns a refusal per mount that could not be unmounted. Those mounts continue.
    pub fn unmount_all(&self) -> Result<(), Vec<Refusal>> {
        self.each_mount(|id| self.core.unmount(id, false))
    }

    /// Detaches all mounts at once, even if they are in use.
    ///
    /// # Errors
    ///
    /// Returns a refusal per mount that could not even be detached.
    pub fn detach_all(&self) -> Result<(), Vec<Refusal>> {
        self.each_mount(|id| self.core.leave(id, |served| served.detach()))
    }

    /// Continues the journal of the server before, and takes part in the recordings in which that
    /// took part.
    pub fn continue_journal(&self, left: LeftState) {
        left.join_sessions();
        self.core.continue_journal(left);
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.core.journal
    }

    fn each_mount(&self, act: impl Fn(u32) -> Result<(), Refusal>) -> Result<(), Vec<Refusal>> {
        let ids = self.core.mount_ids().into_iter();
        let refusals: Vec<Refusal> = ids.filter_map(|id| act(id).err()).collect();
        if refusals.is_empty() { Ok(()) } else { Err(refusals) }
    }
}

/// Records wrappers that panicked in the journal; the object system detaches these itself.
fn write_down_failures(
    core: &Arc<Core>,
) -> Arc<dyn Fn(&refit_objects::WrapperFailure) + Send + Sync> {
    let core = Arc::downgrade(core);
    let observer: Arc<dyn Fn(&refit_objects::WrapperFailure) + Send + Sync> =
        Arc::new(move |failure| {
            if let Some(core) = core.upgrade() {
                core.ended(failure.report(core.journal.next_id()));
            }
        });
    refit_objects::observe_failures(&observer);
    observer
}
