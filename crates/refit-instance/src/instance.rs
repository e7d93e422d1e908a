//! The instance: several mounts, one journal, one control socket.
//!
//! A mount occupies a slot from the time it serves requests until it has ended. Unmounting can take
//! long, because dirty pages are written back, and is done without the lock on the slots. Meanwhile
//! the slot is marked as leaving, so that nobody can unmount the mount twice or take the instance
//! to be idle.

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

/// The state that the control API and the owner of the instance share.
pub(crate) struct Core {
    pub(crate) system: Arc<dyn System>,
    pub(crate) journal: Journal,
    pub(crate) upgrades: Upgrades,
    pub(crate) change_times: ChangeTimes,
    totals: Mutex<Totals>,
    pub(crate) uid: u32,
    slots: Mutex<Slots>,
    /// Reports of data that mounts that have ended could not store.
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
    /// Starts an instance and listens for requests.
    ///
    /// # Errors
    ///
    /// The socket cannot be created.
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

    /// Returns all mounts.
    pub fn mounts(&self) -> Vec<Mount> {
        self.core.mounts()
    }

    /// Removes mounts that somebody else has unmounted. Returns how many there were.
    pub fn reap(&self) -> usize {
        self.core.reap()
    }

    /// Returns whether nothing is mounted or being unmounted.
    pub fn idle(&self) -> bool {
        self.core.slots().mounts.is_empty()
    }

    /// Takes the reports of data that mounts could not store and that is lost.
    pub fn take_lost(&self) -> Vec<Refusal> {
        std::mem::take(&mut *self.core.lost())
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

    /// Returns the journal.
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
        // The lock is held for map operations only; a panic in one leaves the map valid.
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
        // The mount may have ended despite the error, if not all data could be stored.
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
        // Without the lock, since the file server may have data to store.
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

    /// Returns the objects whose names match, sorted by name.
    pub(crate) fn objects(&self, glob: &Glob) -> Vec<ObjectInfo> {
        let mut objects = self.system.objects();
        placement::assign(&mut objects);
        objects.retain(|o| glob.selects(o));
        objects.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        objects
    }

    /// Records the end of a change in the journal and the metrics.
    pub(crate) fn ended(&self, report: Report) {
        self.change_times.observe(&report);
        self.journal.write(report);
    }

    /// Locks the totals for reading metrics, which one request does at a time.
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
