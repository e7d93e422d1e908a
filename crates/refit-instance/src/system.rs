//! What an instance stands on: objects that can be swapped and file servers that can be mounted.
//!
//! The instance knows the object system and the file server only through these two traits, so that the API
//! can be tested over a real socket with changes that take exactly as long as a test wants.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use refit_change::{Change, ChangeId, Report};
use refit_objects::{Clustering, Handover, Probation, UpgradeControl};

use crate::kernel::{self, FollowRequest, KernelInfo, MoveRequest};
use crate::memory;
use crate::plugins;
use crate::refusal::Refusal;
use crate::wire::{
    CacheMode, ClassInfo, LimitAnswer, MemoryInfo, MountRequest, MovesInfo, ObjectActivity,
    ObjectInfo, PluginInfo, ProcessInfo, ProcessMemory,
};

/// Objects are to be swapped: one, or several as one change.
#[derive(Clone, Debug)]
pub struct SwapRequest {
    /// Which, and to what.
    pub objects: Vec<(u64, String)>,
    /// Which processors are to share a representative.
    pub clustering: Clustering,
    /// How it has to prove itself; only with one object.
    pub probation: Option<Probation>,
    /// How often it is tried again when it is late.
    pub retries: u32,
    /// Number of the change.
    pub change: ChangeId,
    /// Time it may take; `None`: the default of the object system.
    pub deadline: Option<Duration>,
    /// Whether it is to be taken back before the commit.
    pub dry_run: bool,
    /// The protocol for the state; `None`: the best.
    pub protocol: Option<String>,
    /// What becomes of the state of the implementation that is swapped out.
    pub handover: Handover,
    /// Becomes true when the requester has gone: roll back.
    pub cancel: Arc<AtomicBool>,
    /// Who asks.
    pub owner: String,
}

/// A class is to be upgraded.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    /// Which.
    pub class: String,
    /// To what.
    pub implementation: String,
    /// Objects per second at the most.
    pub rate: Option<f64>,
    /// Number of the change.
    pub change: ChangeId,
    /// Time that a batch of objects may take; `None`: the default of the object system.
    pub deadline: Option<Duration>,
    /// Becomes true when the requester has gone: roll back.
    pub cancel: Arc<AtomicBool>,
    /// Who asks.
    pub owner: String,
    /// By which it is followed and held up.
    pub control: Arc<UpgradeControl>,
}

/// What is to be done with the wrappers of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrapAct {
    /// One more.
    Attach {
        /// Its name.
        wrapper: String,
        /// What it is to be set to.
        settings: Vec<(String, String)>,
    },
    /// Some less.
    Detach {
        /// Name or number of those that are to go; `None`: all.
        wrapper: Option<String>,
    },
}

/// One object is to be wrapped or unwrapped.
#[derive(Clone, Debug)]
pub struct WrapRequest {
    /// Which.
    pub object: u64,
    /// How.
    pub act: WrapAct,
    /// Number of the change.
    pub change: ChangeId,
    /// Who asks.
    pub owner: String,
}

/// Objects, swaps and file servers of this process.
pub trait System: Send + Sync + 'static {
    /// All objects.
    fn objects(&self) -> Vec<ObjectInfo>;

    /// One object.
    fn object(&self, id: u64) -> Option<ObjectInfo> {
        self.objects().into_iter().find(|o| o.id == id)
    }

    /// What all objects do.
    fn activity(&self) -> Vec<ObjectActivity> {
        self.objects().into_iter().map(ObjectActivity::from).collect()
    }

    /// Swaps and reports; takes as long as it takes.
    fn swap(&self, request: &SwapRequest) -> Report;

    /// The classes that can be upgraded; none unless said otherwise.
    fn classes(&self) -> Vec<ClassInfo> {
        Vec::new()
    }

    /// Upgrades a class and reports; takes as long as it takes.
    fn upgrade(&self, request: &UpgradeRequest) -> Report {
        let UpgradeRequest { change, class, implementation, owner, .. } = request;
        let change = Change::new(*change, "upgrade", class, "", implementation, owner);
        Report::refused(change, "there are no classes here")
    }

    /// Whether an act is possible on objects like this one; if not, why not.
    ///
    /// # Errors
    /// What stands in the way, then `; ` and what to do.
    fn can_wrap(&self, object: u64, act: &WrapAct) -> Result<(), String> {
        let _ = (object, act);
        Err("there are no wrappers here; ask another instance".into())
    }

    /// Wraps or unwraps one object, for which [`Self::can_wrap`] said yes, and reports; waits for nobody.
    fn wrap(&self, request: &WrapRequest) -> Report {
        unreachable!("{request:?}, but this system said that it cannot wrap")
    }

    /// Code that was loaded; none unless said otherwise.
    fn plugins(&self) -> Vec<PluginInfo> {
        Vec::new()
    }

    /// Loads implementations from a file.
    ///
    /// # Errors
    /// What stood in the way.
    fn load(&self, path: &Path) -> Result<PluginInfo, Refusal> {
        Err(plugins::loads_nothing("load", path))
    }

    /// Unloads them again.
    ///
    /// # Errors
    /// What stood in the way; there is always something.
    fn unload(&self, path: &Path) -> Result<(), Refusal> {
        Err(plugins::loads_nothing("unload", path))
    }

    /// Processes of the program that runs under this instance; none unless one does.
    fn processes(&self) -> Vec<ProcessInfo> {
        Vec::new()
    }

    /// One of them, and its memory.
    fn process(&self, pid: u32) -> Option<ProcessMemory> {
        let _ = pid;
        None
    }

    /// What their memory comes to.
    ///
    /// # Errors
    /// No program runs under this instance.
    fn memory(&self) -> Result<MemoryInfo, Refusal> {
        Err(memory::no_program("show memory"))
    }

    /// Limits it; `None`: they may have all there is.
    ///
    /// # Errors
    /// What stood in the way; the limit is what it was.
    fn limit(&self, limit: Option<u64>) -> Result<LimitAnswer, Refusal> {
        let _ = limit;
        Err(memory::no_program("limit memory"))
    }

    /// What it is among several; `None`: it is alone.
    fn kernel(&self) -> Option<KernelInfo> {
        None
    }

    /// Follows a process that is about to become a program.
    ///
    /// # Errors
    /// It is alone; it cannot be followed.
    fn follow(&self, request: &FollowRequest) -> Result<(), Refusal> {
        Err(kernel::alone(&format!("follow process {}", request.pid)))
    }

    /// Has a process, or one thread of it, run elsewhere.
    ///
    /// # Errors
    /// What stood in the way; what has not moved goes on where it was.
    fn move_to(&self, request: &MoveRequest) -> Result<(), Refusal> {
        Err(kernel::alone(&format!("move process {}", request.pid)))
    }

    /// What the moves come to of a program that began here, and has moved.
    fn moves(&self, pid: u32) -> Option<MovesInfo> {
        let _ = pid;
        None
    }

    /// The same of all such programs, without what is counted elsewhere, nor what goes between instances.
    fn all_moves(&self) -> Vec<MovesInfo> {
        Vec::new()
    }

    /// Mounts; returns when the mount answers.
    ///
    /// # Errors
    /// What stood in the way; nothing is left mounted.
    fn mount(&self, request: &MountRequest) -> Result<Box<dyn Served>, Refusal>;
}

/// A directory that is being served.
pub trait Served: Send + Sync + 'static {
    /// The directory.
    fn source(&self) -> &Path;

    /// Where it appears.
    fn mountpoint(&self) -> &Path;

    /// Whether somebody else has unmounted it.
    fn ended(&self) -> bool;

    /// Changes who caches the files whose path matches; how many of them are known now.
    fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> usize;

    /// What the file server counts.
    fn stats(&self) -> BTreeMap<String, u64>;

    /// Stores everything and unmounts. With `discard` it gives up what cannot be stored.
    ///
    /// # Errors
    /// What stood in the way, most often that the mount is in use, or that something cannot be stored; it goes on being
    /// served. If it has [ended](Self::ended) all the same, what could not be stored is lost.
    fn unmount(&self, discard: bool) -> Result<(), Refusal>;

    /// Stores what can be stored and takes the mount out of sight at once, whoever uses it.
    ///
    /// # Errors
    /// What could not be stored, and is lost.
    fn detach(&self) -> Result<(), Refusal>;
}
