//! The state of an instance, which its owner and the control API share: mounts, journal, counts.
//!
//! A mount occupies a slot from the time it serves requests until it has ended. Unmounting can take
//! long, because dirty pages are written back, and is done without the lock on the slots. Meanwhile
//! the slot is marked as leaving, so that the mount is not unmounted twice and the instance does
//! not appear idle.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use refit_change::{Entry, Journal, Report};

use crate::glob::Glob;
use crate::held::{HeldServer, LeftState};
use crate::kept::Kept;
use crate::path_text;
use crate::placement;
use crate::refusal::{Kind, Refusal};
use crate::system::{Served, System};
use crate::totals::{ChangeTimes, Totals};
use crate::upgrade_list::UpgradeList;
use crate::wire::{CacheMode, FileInfo, Health, Mount, MountRequest, ObjectInfo};

/// The objects are looked at for the next server at most for one part in this number of the time.
const LOOK_SHARE: u32 = 20;

/// The state that the control API and the owner of the instance share.
pub(crate) struct Core {
    pub(crate) system: Arc<dyn System>,
    pub(crate) journal: Journal,
    pub(crate) upgrades: UpgradeList,
    pub(crate) change_times: ChangeTimes,
    totals: Mutex<Totals>,
    pub(crate) uid: u32,
    /// The number of the instance.
    pub(crate) number: u32,
    /// The connection to the holder of this server, if it has one.
    pub(crate) held: Option<HeldServer>,
    slots: Mutex<Slots>,
    /// Reports of data that mounts that have ended could not store.
    lost: Mutex<Vec<Refusal>>,
    /// Whether a change has ended since the objects were last looked at for the next server.
    changed: AtomicBool,
    kept: Mutex<LastKept>,
    began: Instant,
}

#[derive(Default)]
struct Slots {
    last: u32,
    mounts: BTreeMap<u32, Slot>,
}

/// The changes of the objects when they were last looked at, and when they may be again.
struct LastKept {
    kept: Kept,
    next: Instant,
}

struct Slot {
    served: Arc<dyn Served>,
    leaving: bool,
}

impl Core {
    /// Creates the state of an instance with this number, which belongs to the user `uid`.
    pub(crate) fn new(
        system: Arc<dyn System>,
        journal_reports: usize,
        uid: u32,
        number: u32,
        held: Option<HeldServer>,
    ) -> Self {
        Core {
            system,
            journal: Journal::new(journal_reports),
            upgrades: UpgradeList::default(),
            change_times: ChangeTimes::default(),
            totals: Mutex::default(),
            uid,
            number,
            held,
            slots: Mutex::default(),
            lost: Mutex::default(),
            // The objects may have been changed as the server before has left them.
            changed: AtomicBool::new(true),
            kept: Mutex::new(LastKept { kept: Kept::default(), next: Instant::now() }),
            began: Instant::now(),
        }
    }

    /// Returns the numbers of all mounts, in order.
    pub(crate) fn mount_ids(&self) -> Vec<u32> {
        self.slots().mounts.keys().copied().collect()
    }

    /// Takes the reports of data that mounts could not store and that is lost.
    pub(crate) fn take_lost(&self) -> Vec<Refusal> {
        std::mem::take(&mut *self.lost())
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // The lock is held for map operations only; a panic in one leaves the map valid.
        self.slots.lock()
    }

    fn lost(&self) -> MutexGuard<'_, Vec<Refusal>> {
        self.lost.lock()
    }

    pub(crate) fn mount(&self, request: &MountRequest) -> Result<u32, Refusal> {
        Ok(self.add(self.system.mount(request)?))
    }

    /// Adds a mount that is being served. Returns its number.
    pub(crate) fn add(&self, served: Box<dyn Served>) -> u32 {
        let served: Arc<dyn Served> = Arc::from(served);
        let mut slots = self.slots();
        slots.last += 1;
        let id = slots.last;
        slots.mounts.insert(id, Slot { served, leaving: false });
        id
    }

    /// Returns all mounts. They are used without the lock on the slots.
    fn served(&self) -> Vec<Arc<dyn Served>> {
        self.slots().mounts.values().map(|slot| Arc::clone(&slot.served)).collect()
    }

    /// Calls `act` unless a mount is being unmounted or there is none. No unmount begins meanwhile.
    pub(crate) fn unless_leaving<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let slots = self.slots();
        let leaving = slots.mounts.is_empty() || slots.mounts.values().any(|slot| slot.leaving);
        (!leaving).then(act)
    }

    /// Returns the images of all mounts that another server can continue.
    pub(crate) fn images(&self) -> Vec<RawFd> {
        self.slots().mounts.values().filter_map(|slot| slot.served.image()).collect()
    }

    /// Records what the next server needs, if there is a holder.
    pub(crate) fn record(&self) {
        self.record_with(false, Vec::new);
    }

    /// Records the same as it is now, with the journal, for a server to which this one hands over.
    pub(crate) fn record_all(&self) {
        self.record_with(true, || {
            let entries = self.journal.entries().into_iter();
            entries.map(|entry| (entry.seq, (*entry.report).clone())).collect()
        });
    }

    fn record_with(&self, now: bool, journal: impl FnOnce() -> Vec<(u64, Report)>) {
        if let Some(held) = &self.held {
            held.record(self.images(), self.kept(now), journal());
        }
    }

    /// Returns what was changed in the objects: as it is `now`, or as it was when they were last
    /// looked at after a change.
    fn kept(&self, now: bool) -> Kept {
        let mut last = self.kept.lock();
        let began = Instant::now();
        let changed = self.changed.load(Relaxed) && began >= last.next;
        if now || changed {
            // Relaxed: a change that ends meanwhile sets it again.
            self.changed.store(false, Relaxed);
            last.kept = self.look_at_objects();
            last.next = began + began.elapsed() * LOOK_SHARE;
        }
        last.kept.clone()
    }

    fn look_at_objects(&self) -> Kept {
        let classes = self.system.classes();
        let served = self.served().into_iter();
        let served: HashMap<_, _> =
            served.map(|served| (path_text::text(served.mountpoint()), served)).collect();
        served.values().for_each(|served| served.remember(&classes));
        Kept::of(&*self.system, |mount, interface| served.get(mount?)?.implementation(interface))
    }

    /// Continues the journal of another server.
    pub(crate) fn continue_journal(&self, left: LeftState) {
        let entry = |(seq, report)| Entry { seq, report: Arc::new(report) };
        self.journal.continue_with(left.journal.into_iter().map(entry).collect());
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

    /// Returns the use of a file of a mount.
    pub(crate) fn file_use(&self, id: u32, inode: u64) -> Result<FileInfo, Refusal> {
        let served = self.slots().mounts.get(&id).map(|slot| Arc::clone(&slot.served));
        let served = served.ok_or_else(|| no_such_mount(id))?;
        served.file_use(inode).ok_or_else(|| {
            Refusal::new(
                Kind::Unknown,
                format!("show file {inode} of {}", served.mountpoint().display()),
                "the kernel knows no regular file of this number there",
                "use the inode number that stat(2) returns for a path in the mount",
            )
        })
    }

    pub(crate) fn unmount(&self, id: u32, discard: bool) -> Result<(), Refusal> {
        self.leave(id, |served| served.unmount(discard))
    }

    pub(crate) fn leave(
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
                    "wait for it to end",
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
        let mut ended_mounts = Vec::new();
        let mut slots = self.slots();
        slots.mounts.retain(|_, slot| {
            let ended = !slot.leaving && slot.served.ended();
            if ended {
                ended_mounts.push(Arc::clone(&slot.served));
            }
            !ended
        });
        drop(slots);
        // Without the lock, since the file server may have data to store.
        let lost = ended_mounts.iter().filter_map(|served| served.unmount(false).err());
        let lost: Vec<_> = lost.collect();
        self.lost().extend(lost);
        ended_mounts.len()
    }

    /// Stores all data that can be stored, in all mounts.
    pub(crate) fn write_back(&self) {
        self.served().iter().for_each(|served| served.write_back());
    }

    pub(crate) fn set_cache_mode(
        &self,
        path_glob: &str,
        mode: CacheMode,
    ) -> Result<usize, Refusal> {
        let served = self.served();
        let files = served.iter().map(|served| served.set_cache_mode(path_glob, mode));
        let files: Vec<Option<usize>> = files.collect();
        if !files.is_empty() && files.iter().all(Option::is_none) {
            return Err(no_such_mode(path_glob, mode));
        }
        Ok(files.into_iter().flatten().sum())
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
        self.changed.store(true, Relaxed);
        self.journal.write(report);
        // Otherwise the next look of the instance's owner records it.
        if self.kept.try_lock().is_some_and(|last| Instant::now() >= last.next) {
            self.record();
        }
    }

    /// Locks the totals for reading metrics, which one request does at a time.
    pub(crate) fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock()
    }

    pub(crate) fn health(&self) -> Health {
        Health {
            pid: self.number,
            server: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: millis(self.began.elapsed()),
        }
    }
}

fn view(id: u32, served: &dyn Served, leaving: bool) -> Mount {
    Mount {
        id,
        source: served.source().to_owned(),
        mountpoint: served.mountpoint().to_owned(),
        leaving,
        read_only: served.read_only(),
        stats: served.stats(),
    }
}

fn no_such_mode(path_glob: &str, mode: CacheMode) -> Refusal {
    let (obstacle, remedy) = match mode {
        CacheMode::Passthrough => (
            "no mount of this instance passes files through",
            "mount with `refit mount SOURCE MOUNTPOINT --cache passthrough`",
        ),
        CacheMode::Exclusive => (
            "only a whole mount can be exclusive",
            "mount with `refit mount SOURCE MOUNTPOINT --cache exclusive`",
        ),
        CacheMode::Kernel | CacheMode::Direct | CacheMode::Auto => (
            "the kernel opens the files of this mount without asking (`--cache exclusive`)",
            "mount with another mode",
        ),
    };
    Refusal::new(Kind::Busy, format!("change the cache mode of {path_glob}"), obstacle, remedy)
}

pub(crate) fn no_such_mount(id: u32) -> Refusal {
    Refusal::new(
        Kind::Unknown,
        format!("mount {id}"),
        "there is no such mount",
        "list mounts with `refit mounts`",
    )
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
