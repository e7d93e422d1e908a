//! The system under an instance: objects that can be swapped and file servers that can be mounted.
//!
//! The instance uses the object system and the file server only through these two traits, so that
//! the API can be tested over a real socket with changes that take exactly as long as a test
//! requires.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use refit_change::{Change, ChangeId, Report};
use refit_objects::{Clustering, Handover, Probation, UpgradeControl};
use refit_tracer::loan::{LoanAnswer, LoanRequest};

use crate::refusal::{Refusal, alone, loads_nothing, no_program};
use crate::wire::{
    CacheMode, ClassInfo, FileInfo, FollowRequest, KernelInfo, LimitAnswer, MemoryInfo,
    MountRequest, MoveRequest, MovesInfo, ObjectActivity, ObjectInfo, PluginInfo, ProcessInfo,
    ProcessMemory,
};

/// Gives a borrower of a process each answer, and returns its next request; `None`: the loan is
/// over.
pub type Converse = Box<dyn FnMut(LoanAnswer) -> Option<LoanRequest> + Send>;

/// A request to swap one object, or several as one change.
#[derive(Clone, Debug)]
pub struct SwapRequest {
    /// The objects and their new implementations.
    pub objects: Vec<(u64, String)>,
    /// The groups of processors that share a representative.
    pub clustering: Clustering,
    /// The conditions that the new implementation must satisfy; only with one object.
    pub probation: Option<Probation>,
    /// The number of times that the swap is retried when it misses its deadline.
    pub retries: u32,
    /// The number of the change.
    pub change: ChangeId,
    /// The deadline; `None` means the default of the object system.
    pub deadline: Option<Duration>,
    /// Whether the swap is rolled back before the commit.
    pub dry_run: bool,
    /// The protocol for the state; `None` means the best one that both implementations know.
    pub protocol: Option<String>,
    /// The treatment of the state of the old implementation.
    pub handover: Handover,
    /// Becomes true when the client has disconnected, upon which the swap is rolled back.
    pub cancel: Arc<AtomicBool>,
    /// The requester.
    pub owner: String,
}

/// A request to upgrade a class.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    /// The class.
    pub class: String,
    /// The new implementation.
    pub implementation: String,
    /// The maximum number of objects per second.
    pub rate: Option<f64>,
    /// The number of the change.
    pub change: ChangeId,
    /// The deadline for a batch of objects; `None` means the default of the object system.
    pub deadline: Option<Duration>,
    /// Becomes true when the client has disconnected, upon which the upgrade is rolled back.
    pub cancel: Arc<AtomicBool>,
    /// The requester.
    pub owner: String,
    /// Reports the progress, and pauses the upgrade.
    pub control: Arc<UpgradeControl>,
}

/// A change of the wrappers of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrapAct {
    /// Attach a wrapper.
    Attach {
        /// Its name.
        wrapper: String,
        /// Its settings.
        settings: Vec<(String, String)>,
    },
    /// Detach wrappers.
    Detach {
        /// The name or the number of the wrappers to detach; `None` means all.
        wrapper: Option<String>,
    },
}

/// A request to wrap or unwrap one object.
#[derive(Clone, Debug)]
pub struct WrapRequest {
    /// The object.
    pub object: u64,
    /// The change.
    pub act: WrapAct,
    /// The number of the change.
    pub change: ChangeId,
    /// The requester.
    pub owner: String,
}

/// The objects, swaps and file servers of this process.
pub trait System: Send + Sync + 'static {
    /// Returns all objects.
    fn objects(&self) -> Vec<ObjectInfo>;

    /// Returns one object.
    fn object(&self, id: u64) -> Option<ObjectInfo> {
        self.objects().into_iter().find(|o| o.id == id)
    }

    /// Returns the activity of all objects.
    fn activity(&self) -> Vec<ObjectActivity> {
        self.objects().into_iter().map(ObjectActivity::from).collect()
    }

    /// Swaps objects and returns the report. May take long.
    fn swap(&self, request: &SwapRequest) -> Report;

    /// Returns the classes that can be upgraded; by default none.
    fn classes(&self) -> Vec<ClassInfo> {
        Vec::new()
    }

    /// Upgrades a class and returns the report. May take long.
    fn upgrade(&self, request: &UpgradeRequest) -> Report {
        let UpgradeRequest { change, class, implementation, owner, .. } = request;
        let change = Change::new(*change, "upgrade", class, "", implementation, owner);
        Report::refused(change, "there are no classes here")
    }

    /// Checks whether a change of wrappers is possible for an object like this one.
    ///
    /// # Errors
    ///
    /// Returns the obstacle, then `; ` and what to do.
    fn can_wrap(&self, object: u64, act: &WrapAct) -> Result<(), String> {
        let _ = (object, act);
        Err("there are no wrappers here; ask another instance".into())
    }

    /// Wraps or unwraps an object for which [`Self::can_wrap`] succeeded, and returns the report.
    /// Does not block.
    fn wrap(&self, request: &WrapRequest) -> Report {
        unreachable!("{request:?}, but this system said that it cannot wrap")
    }

    /// Returns the plugins that were loaded; by default none.
    fn plugins(&self) -> Vec<PluginInfo> {
        Vec::new()
    }

    /// Loads implementations from a file.
    ///
    /// # Errors
    ///
    /// Returns what prevented it.
    fn load(&self, path: &Path) -> Result<PluginInfo, Refusal> {
        Err(loads_nothing("load", path))
    }

    /// Unloads implementations.
    ///
    /// # Errors
    ///
    /// Returns what prevented it. Unloading always fails.
    fn unload(&self, path: &Path) -> Result<(), Refusal> {
        Err(loads_nothing("unload", path))
    }

    /// Returns the processes of the program that runs under this instance; by default none.
    fn processes(&self) -> Vec<ProcessInfo> {
        Vec::new()
    }

    /// Returns a process of the program, and its memory.
    fn process(&self, pid: u32) -> Option<ProcessMemory> {
        let _ = pid;
        None
    }

    /// Stops a process `within` this time, and acts on its tasks as `converse` says
    /// ([`refit_tracer::Supervisor::lend`]).
    ///
    /// # Errors
    ///
    /// `ESRCH`: there is no such process, by default. `ETIMEDOUT`: it was not stopped.
    fn lend(&self, pid: u32, within: Duration, converse: Converse) -> io::Result<()> {
        let _ = (pid, within, converse);
        Err(rustix::io::Errno::SRCH.into())
    }

    /// Returns the memory of the program.
    ///
    /// # Errors
    ///
    /// No program runs under this instance.
    fn memory(&self) -> Result<MemoryInfo, Refusal> {
        Err(no_program("show memory"))
    }

    /// Limits the memory of the program; `None` removes the limit.
    ///
    /// # Errors
    ///
    /// Returns what prevented it. The limit is unchanged then.
    fn limit(&self, limit: Option<u64>) -> Result<LimitAnswer, Refusal> {
        let _ = limit;
        Err(no_program("limit memory"))
    }

    /// Returns the state of the instance as one of several; `None` if it is the only one.
    fn kernel(&self) -> Option<KernelInfo> {
        None
    }

    /// Supervises a process that is about to execute a program.
    ///
    /// # Errors
    ///
    /// The instance is the only one, or the process cannot be supervised.
    fn follow(&self, request: &FollowRequest) -> Result<(), Refusal> {
        Err(alone(&format!("follow process {}", request.pid)))
    }

    /// Moves a process, or one of its threads, to another instance.
    ///
    /// # Errors
    ///
    /// Returns what prevented it. Threads that have not moved continue where they were.
    fn move_to(&self, request: &MoveRequest) -> Result<(), Refusal> {
        Err(alone(&format!("move process {}", request.pid)))
    }

    /// Returns the statistics of the moves of a program that began here and has moved.
    fn moves(&self, pid: u32) -> Option<MovesInfo> {
        let _ = pid;
        None
    }

    /// Returns the statistics of all such programs, without those of other instances and without
    /// the traffic.
    fn all_moves(&self) -> Vec<MovesInfo> {
        Vec::new()
    }

    /// Mounts a directory. Returns when the mount serves requests.
    ///
    /// # Errors
    ///
    /// Returns what prevented it. Nothing is left mounted.
    fn mount(&self, request: &MountRequest) -> Result<Box<dyn Served>, Refusal>;
}

/// A directory that is being served.
pub trait Served: Send + Sync + 'static {
    /// Returns the directory.
    fn source(&self) -> &Path;

    /// Returns the mount point.
    fn mountpoint(&self) -> &Path;

    /// Returns whether another process has unmounted it.
    fn ended(&self) -> bool;

    /// Returns whether programs may only read.
    fn read_only(&self) -> bool {
        false
    }

    /// Changes the cache mode of the files whose path matches. Returns how many of them are
    /// currently known; `None` if the mount does not have the mode.
    fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> Option<usize>;

    /// Returns the use of the regular file that programs see under this inode number.
    fn file_use(&self, inode: u64) -> Option<FileInfo> {
        let _ = inode;
        None
    }

    /// Returns the counters of the file server.
    fn stats(&self) -> BTreeMap<String, u64>;

    /// Stores all data and unmounts. With `discard`, data that cannot be stored is discarded.
    ///
    /// # Errors
    ///
    /// Returns what prevented it, usually that the mount is in use or that some data cannot be
    /// stored. The mount continues. If it has [ended](Self::ended) nevertheless, the data that
    /// could not be stored is lost.
    fn unmount(&self, discard: bool) -> Result<(), Refusal>;

    /// Stores all data that can be stored, without waiting for the disk.
    fn write_back(&self) {}

    /// Keeps the implementations of classes for the next server.
    fn remember(&self, classes: &[ClassInfo]) {
        let _ = classes;
    }

    /// Returns the implementation that new objects of the interface have in the next server, if
    /// that is known.
    fn implementation(&self, interface: &str) -> Option<String> {
        let _ = interface;
        None
    }

    /// Returns the number of the memfd by which another server can continue the mount, if one can.
    fn image(&self) -> Option<RawFd> {
        None
    }

    /// Stores the data that can be stored and detaches the mount at once, even if it is in use.
    ///
    /// # Errors
    ///
    /// Returns the data that could not be stored, which is lost.
    fn detach(&self) -> Result<(), Refusal>;
}
