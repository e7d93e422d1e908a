//! The instance: several mounts, one journal, one control socket.
//!
//! A mount stands in a slot from the moment it serves until it is gone. Unmounting can take long (dirty pages
//! are written back), so it is done outside of the lock on the slots; meanwhile the slot says that the mount
//! is leaving, and nobody can unmount it twice or take the instance for idle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use refit_change::{Journal, Report};

use crate::directory::{SocketDirectory, reason};
use crate::glob::Glob;
use crate::metrics::{ChangeTimes, Totals};
use crate::placement;
use crate::refusal::{Kind, Refusal};
use crate::server::Server;
use crate::system::{Served, System};
use crate::upgrades::Upgrades;
use crate::wire::{CacheMode, Health, Mount, MountRequest, ObjectInfo};

/// Reports that the journal keeps: at something over half a kilobyte each, about ten megabytes when it is full.
const JOURNAL_REPORTS: usize = 16_384;

/// How an instance is to be.
#[derive(Debug)]
pub struct InstanceOptions {
    /// Where it listens.
    pub directory: SocketDirectory,
    /// Who may ask besides root; anybody else is refused, even if they can open the socket.
    pub uid: u32,
    /// How many reports the journal keeps.
    pub journal_reports: usize,
}

impl InstanceOptions {
    /// For the user of this process, in the directory that is theirs.
    ///
    /// # Errors
    /// The directory cannot be made or is not this user's alone.
    pub fn of_this_user() -> Result<Self, Refusal> {
        Ok(Self::at(SocketDirectory::open()?))
    }

    /// For the user of this process, in a directory of the caller's choice.
    pub fn at(directory: SocketDirectory) -> Self {
        InstanceOptions {
            directory,
            uid: rustix::process::geteuid().as_raw(),
            journal_reports: JOURNAL_REPORTS,
        }
    }
}

/// A kernel instance. Dropping it ends the control API and removes its socket; mounts that are left are
/// dropped, which ends them as the file server sees fit: call [`Instance::unmount_all`] first.
pub struct Instance {
    core: Arc<Core>,
    server: Server,
    /// Writes down which wrappers had to be detached. Told for as long as it lives.
    _failures: Arc<dyn Fn(&refit_objects::WrapperFailure) + Send + Sync>,
}

/// What the control API and the owner of the instance both work on.
pub(crate) struct Core {
    pub(crate) system: Arc<dyn System>,
    pub(crate) journal: Journal,
    pub(crate) upgrades: Upgrades,
    pub(crate) change_times: ChangeTimes,
    totals: Mutex<Totals>,
    pub(crate) uid: u32,
    slots: Mutex<Slots>,
    /// What mounts that have ended could not store.
    lost: Mutex<Vec<Refusal>>,
    began: Instant,
}

#[derive(Default)]
struct Slots {
    last: u32,
    mounts: BTreeMap<u32, Slot>,
}

struct Slot {
    served: Arc<dyn Served>,
    leaving: bool,
}

impl Instance {
    /// Starts to listen.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(system: Arc<dyn System>, options: InstanceOptions) -> Result<Self, Refusal> {
        let pid = std::process::id();
        let socket = options.directory.socket(pid);
        let core = Arc::new(Core {
            system,
            journal: Journal::new(options.journal_reports),
            upgrades: Upgrades::default(),
            change_times: ChangeTimes::default(),
            totals: Mutex::default(),
            uid: options.uid,
            slots: Mutex::default(),
            lost: Mutex::default(),
            began: Instant::now(),
        });
        let failed = |e: std::io::Error| {
            Refusal::new(
                Kind::Failed,
                format!("listen on {}", socket.display()),
                reason(&e),
                "name another directory in REFIT_RUNTIME_DIR",
            )
        };
        let listener = options.directory.listen(pid).map_err(failed)?;
        let server = Server::start(Arc::clone(&core), listener, socket.clone()).map_err(failed)?;
        crate::recording::listen();
        let failures = write_down_failures(&core);
        Ok(Instance { core, server, _failures: failures })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.server.socket().to_owned()
    }

    /// Mounts and returns the number of the mount.
    ///
    /// # Errors
    /// What stood in the way; nothing is left mounted.
    pub fn mount(&self, request: &MountRequest) -> Result<u32, Refusal> {
        self.core.mount(request)
    }

    /// All mounts.
    pub fn mounts(&self) -> Vec<Mount> {
        self.core.mounts()
    }

    /// Forgets mounts that somebody else has unmounted; how many there were.
    pub fn reap(&self) -> usize {
        self.core.reap()
    }

    /// Whether nothing is mounted, nor still being unmounted.
    pub fn idle(&self) -> bool {
        self.core.slots().mounts.is_empty()
    }

    /// What mounts that have ended since it was asked last could not store; it is lost.
    pub fn take_lost(&self) -> Vec<Refusal> {
        std::mem::take(&mut *self.core.lost())
    }

    /// Unmounts everything that can be unmounted.
    ///
    /// # Errors
    /// One refusal per mount that is in the way; those go on being served.
    pub fn unmount_all(&self) -> Result<(), Vec<Refusal>> {
        self.each_mount(|id| self.core.unmount(id, false))
    }

    /// Takes everything out of sight at once, whoever uses it.
    ///
    /// # Errors
    /// One refusal per mount for which not even that could be done.
    pub fn detach_all(&self) -> Result<(), Vec<Refusal>> {
        self.each_mount(|id| self.core.leave(id, |served| served.detach()))
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.core.journal
    }

    fn each_mount(&self, act: impl Fn(u32) -> Result<(), Refusal>) -> Result<(), Vec<Refusal>> {
        let ids: Vec<u32> = self.core.slots().mounts.keys().copied().collect();
        let refusals: Vec<Refusal> = ids.into_iter().filter_map(|id| act(id).err()).collect();
        if refusals.is_empty() { Ok(()) } else { Err(refusals) }
    }
}

impl Core {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        // The lock is held for map operations only; a panic in one leaves the map whole.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, Vec<Refusal>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mount(&self, request: &MountRequest) -> Result<u32, Refusal> {
        let served: Arc<dyn Served> = Arc::from(self.system.mount(request)?);
        let mut slots = self.slots();
        slots.last += 1;
        let id = slots.last;
        slots.mounts.insert(id, Slot { served, leaving: false });
        Ok(id)
    }

    pub(crate) fn mounts(&self) -> Vec<Mount> {
        self.reap();
        let all: Vec<(u32, Arc<dyn Served>, bool)> = {
            let slots = self.slots();
            slots.mounts.iter().map(|(id, s)| (*id, Arc::clone(&s.served), s.leaving)).collect()
        };
        all.into_iter().map(|(id, served, leaving)| view(id, &*served, leaving)).collect()
    }

    pub(crate) fn mounted(&self, id: u32) -> Option<Mount> {
        let (served, leaving) = {
            let slots = self.slots();
            let slot = slots.mounts.get(&id)?;
            (Arc::clone(&slot.served), slot.leaving)
        };
        Some(view(id, &*served, leaving))
    }

    pub(crate) fn unmount(&self, id: u32, discard: bool) -> Result<(), Refusal> {
        self.leave(id, |served| served.unmount(discard))
    }

    fn leave(
        &self,
        id: u32,
        act: impl FnOnce(&dyn Served) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let served = {
            let mut slots = self.slots();
            let slot = slots.mounts.get_mut(&id).ok_or_else(|| no_such_mount(id))?;
            if slot.leaving {
                return Err(Refusal::new(
                    Kind::Busy,
                    format!("unmount {}", slot.served.mountpoint().display()),
                    "it is being unmounted already",
                    "wait for it",
                ));
            }
            slot.leaving = true;
            Arc::clone(&slot.served)
        };
        let result = act(&*served);
        let ended = served.ended();
        if let Err(refusal) = &result
            && ended
        {
            self.lost().push(refusal.clone());
        }
        let mut slots = self.slots();
        // It may be gone although something went wrong: not all could be stored.
        if result.is_ok() || ended {
            slots.mounts.remove(&id);
        } else if let Some(slot) = slots.mounts.get_mut(&id) {
            slot.leaving = false;
        }
        result
    }

    pub(crate) fn reap(&self) -> usize {
        let mut gone = Vec::new();
        let mut slots = self.slots();
        slots.mounts.retain(|_, slot| {
            let ended = !slot.leaving && slot.served.ended();
            if ended {
                gone.push(Arc::clone(&slot.served));
            }
            !ended
        });
        drop(slots);
        // Outside of the lock: the file server may have something to put away.
        let lost = gone.iter().filter_map(|served| served.unmount(false).err());
        let lost: Vec<_> = lost.collect();
        self.lost().extend(lost);
        gone.len()
    }

    pub(crate) fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> usize {
        let all: Vec<Arc<dyn Served>> =
            self.slots().mounts.values().map(|s| Arc::clone(&s.served)).collect();
        all.iter().map(|served| served.set_cache_mode(path_glob, mode)).sum()
    }

    /// Objects whose names match, by name.
    pub(crate) fn objects(&self, glob: &Glob) -> Vec<ObjectInfo> {
        let mut objects = self.system.objects();
        placement::assign(&mut objects);
        objects.retain(|o| glob.selects(o));
        objects.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        objects
    }

    /// Writes down how a change has ended.
    pub(crate) fn ended(&self, report: Report) {
        self.change_times.observe(&report);
        self.journal.write(report);
    }

    /// What has been counted in all, for whoever reads metrics: one at a time.
    pub(crate) fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn health(&self) -> Health {
        Health {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: millis(self.began.elapsed()),
        }
    }
}

/// A wrapper that panics is detached by the object system itself; the journal has to have that too.
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

fn view(id: u32, served: &dyn Served, leaving: bool) -> Mount {
    Mount {
        id,
        source: served.source().to_owned(),
        mountpoint: served.mountpoint().to_owned(),
        leaving,
        stats: served.stats(),
    }
}

pub(crate) fn no_such_mount(id: u32) -> Refusal {
    Refusal::new(Kind::Unknown, format!("mount {id}"), "there is none", "see `refit mounts`")
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
