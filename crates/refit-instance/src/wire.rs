//! The data of the control API. Sizes are in bytes; times are in the unit of their name.

mod activity;
mod adapting;
mod files;
mod kernel;
mod memory;
mod moves;
mod plugins;
mod wrapping;

use std::collections::BTreeMap;

use refit_change::Report;
/// The building blocks of a mount.
pub use refit_objects::composition::Plan;
use refit_tracer::Process;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use crate::debug::{EventInfo, EventsInfo};
pub use crate::handover::{HandoverInfo, HandoverRequest, HandoverState, HandoverStatus};
pub use crate::recording::{EndRecordQuery, RecordRequest, Recorded};
pub use activity::{Activity, ActivityQuery, ObjectActivity};
pub use adapting::Adapt;
pub use files::{CacheAnswer, CacheMode, CacheRequest, FileInfo, Mount, MountRequest};
pub use kernel::{
    FollowRequest, KernelInfo, LostInfo, MoveRequest, OwnedInfo, PeerInfo, ReachedInfo, RoamRequest,
};
pub use memory::{
    LimitAnswer, LimitRequest, MemoryInfo, ProcessMemory, RefusedInfo, RegionInfo, StoreInfo,
};
pub(crate) use moves::CounterValue;
pub use moves::{CallInfo, DestinationInfo, MovesInfo, PagesInfo, TimesInfo, TrafficInfo};
pub use plugins::{LoadedInfo, PluginInfo, PluginRequest};
pub use wrapping::{Histogram, KnownWrapper, Unwrap, Wrap, WrapperFailure, WrapperInfo};

/// The header of the answer to a swap that gives the number of objects. Fewer reports are sent if
/// some objects end meanwhile.
pub const OBJECTS_HEADER: &str = "refit-objects";

/// The current state of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectInfo {
    /// Its number within the instance.
    pub id: u64,
    /// Its name, `interface:instance`, e.g. `fcm:/logs/a`.
    pub name: String,
    /// Its interface, e.g. `fcm`.
    pub interface: String,
    /// The mount point of the mount that it belongs to, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Its current implementation, e.g. `shared`.
    pub implementation: String,
    /// The implementations that it can be swapped to.
    pub implementations: Vec<String>,
    /// The number of representatives created so far.
    pub reps: u64,
    /// Which processors share a representative, as in `reps` of a swap.
    #[serde(default)]
    pub clustering: String,
    /// The number of misses of the translation table.
    pub misses: u64,
    /// The objects that it calls.
    #[serde(default)]
    pub imports: Vec<Import>,
    /// The statistics of the implementation: size, resident, dirty, calls, faults and so on.
    pub stats: BTreeMap<String, u64>,
    /// The wrappers around the implementation, innermost first.
    #[serde(default)]
    pub wrappers: Vec<WrapperInfo>,
    /// The last few wrappers that panicked and were detached for that reason.
    #[serde(default)]
    pub wrapper_failures: Vec<WrapperFailure>,
}

impl ObjectInfo {
    /// Returns the implementation within its wrappers: `latency(count(shared))`.
    pub fn composed(&self) -> String {
        let inner = self.implementation.clone();
        self.wrappers.iter().fold(inner, |inner, w| format!("{}({inner})", w.name))
    }
}

/// A reference that an object holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Import {
    /// The name under which the object uses it, e.g. `pm`.
    pub port: String,
    /// The number of the object that it refers to.
    pub object: u64,
}

/// A selection of objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ObjectQuery {
    /// A pattern for names; `*` matches any characters including `/`, and `?` matches one. The
    /// default is all objects.
    pub glob: Option<String>,
    /// Only objects of the mount at this mount point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A request for a swap.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// A pattern for names.
    pub glob: String,
    /// The new implementation.
    pub implementation: String,
    /// The deadline for each object, after which its swap is rolled back, in milliseconds. The
    /// default is that of the object system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Which processors share a representative: `one`, `each`, `groups:4`, `map:0,0,1,1`. The
    /// default is that of the implementation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reps: Option<String>,
    /// The number of times that each swap is retried when it misses its deadline.
    #[serde(default)]
    pub retries: u32,
    /// A condition that each object must satisfy for a while, or it is swapped back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probation: Option<Probation>,
    /// Swap all objects, and those of `with`, as one change: no request sees some old and some new
    /// implementations, and if one object cannot be swapped, none is.
    #[serde(default)]
    pub together: bool,
    /// Further objects that are changed together with these; only with `together`.
    #[serde(default)]
    pub with: Vec<SwapPart>,
    /// Swap repeatedly. The default is to swap each object once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// Perform the swap up to the commit, measure it, and roll it back: nothing is changed, and
    /// nothing is recorded in the journal. Cannot be combined with `repeat`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The protocol for the state. The default is the best one that both implementations know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The treatment of the state of the old implementation.
    #[serde(default, skip_serializing_if = "Handover::is_transfer")]
    pub handover: Handover,
    /// Only objects of the mount at this mount point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// The treatment of the state of the old implementation in a swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Handover {
    /// The new implementation takes the state over.
    #[default]
    Transfer,
    /// The state stays with the old implementation. Refused unless the interface declares its state
    /// to be a hint.
    WithoutState,
    /// The state is discarded, and the new implementation begins with an empty one. Refused unless
    /// the interface has an empty state.
    EmptyState,
}

impl Handover {
    fn is_transfer(&self) -> bool {
        *self == Handover::Transfer
    }
}

impl From<Handover> for refit_objects::Handover {
    fn from(handover: Handover) -> Self {
        match handover {
            Handover::Transfer => refit_objects::Handover::Transfer,
            Handover::WithoutState => refit_objects::Handover::WithoutState,
            Handover::EmptyState => refit_objects::Handover::EmptyState,
        }
    }
}

/// The conditions that an implementation must satisfy after a swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Probation {
    /// The duration, in milliseconds. Calls are measured before the swap for as long, but at most a
    /// second.
    pub ms: u64,
    /// The condition, e.g. `errors == 0 && p99 < 1.2 × before`.
    pub until: String,
}

/// A part of the objects of a swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwapPart {
    /// A pattern for names.
    pub glob: String,
    /// The new implementation.
    pub implementation: String,
}

/// Repeated swaps of objects: in turn, each to the implementation that follows its present
/// one in the list of `implementation` and `others`, and from the last to the first. Objects that
/// come or go meanwhile are taken into account.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// The implementations besides the first one. If there are none, every swap is to the same
    /// implementation, which is a swap nevertheless.
    #[serde(default)]
    pub others: Vec<String>,
    /// The interval from the beginning of one swap to the beginning of the next, in microseconds. A
    /// swap that takes longer delays the next one; delayed swaps are not made up for.
    pub every_us: u64,
    /// The duration, in milliseconds. The default is until the client disconnects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

impl Swap {
    /// Returns a request that swaps each object once, within the default deadline.
    pub fn once(glob: impl Into<String>, implementation: impl Into<String>) -> Self {
        let (glob, implementation) = (glob.into(), implementation.into());
        Swap {
            glob,
            implementation,
            deadline_ms: None,
            reps: None,
            retries: 0,
            probation: None,
            together: false,
            with: Vec::new(),
            repeat: None,
            dry_run: false,
            protocol: None,
            handover: Handover::Transfer,
            mount: None,
        }
    }

    /// Returns the implementations in the order in which they follow one another.
    pub(crate) fn implementations(&self) -> impl Iterator<Item = &str> {
        let others = self.repeat.iter().flat_map(|repeat| &repeat.others);
        std::iter::once(&self.implementation).chain(others).map(String::as_str)
    }
}

/// A class of objects, as one of its factories reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassInfo {
    /// Its name, which is that of its interface, e.g. `fcm`.
    pub class: String,
    /// The factory, e.g. the mount point for whose files it creates caches.
    pub factory: String,
    /// The implementation of new objects.
    pub implementation: String,
    /// The number of existing objects that it has created.
    pub instances: u64,
}

/// A request to upgrade a class: either all of its objects are swapped and new ones use the new
/// implementation, or nothing changes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// The class.
    pub class: String,
    /// The new implementation.
    pub implementation: String,
    /// The deadline for a batch of objects, in milliseconds. The default is that of the object
    /// system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The maximum number of objects per second. The default is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// A line of the answer to an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UpgradeLine {
    /// The progress, which is sent at intervals.
    Progress {
        /// The number of objects that have been swapped.
        done: u64,
        /// The total number of objects.
        total: u64,
        /// Whether the upgrade is paused.
        paused: bool,
    },
    /// The result, which is the last line.
    Report(Box<Report>),
}

/// A request to pause or resume an upgrade.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The class that is being upgraded.
    pub class: String,
    /// Whether to pause or to resume.
    pub paused: bool,
}

/// A selection of the journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Whether to wait for further changes and send them.
    #[serde(default)]
    pub follow: bool,
    /// The first position in the journal to send. The default is the oldest one that is kept.
    pub from: Option<u64>,
    /// The maximum number of existing entries to send, the latest ones.
    pub last: Option<usize>,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum JournalLine {
    /// A change.
    Entry {
        /// Its position in the journal.
        seq: u64,
        /// The report of the change.
        #[serde(flatten)]
        report: Box<Report>,
    },
    /// Changes that were overwritten before they could be read.
    Lost {
        /// The number of these changes.
        lost: u64,
    },
}

/// A process of the program that runs under an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Its number.
    pub pid: u32,
    /// The number of its parent.
    pub parent: u32,
    /// Its state as `ps` shows it: `R`, `S`, `D`, `T`, `t`, `Z`.
    pub state: char,
    /// The number of its threads.
    pub threads: u64,
    /// The processor time that it has used.
    pub cpu_ms: u64,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// The command with which it was started.
    pub command: String,
    /// Whether it holds no state of the kernel that runs it and can be moved.
    pub movable: bool,
    /// The number of seccomp filters that the instance has given to it.
    #[serde(default)]
    pub filters: u32,
    /// Where those of its threads run that have been at other instances.
    #[serde(default)]
    pub places: Vec<PlaceInfo>,
}

/// A request to lend a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LendRequest {
    /// The time within which its tasks have to stop.
    pub within_ms: u64,
}

/// The place where a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceInfo {
    /// The number of the thread.
    pub thread: u32,
    /// The number of the instance.
    pub at: u16,
}

impl From<Process> for ProcessInfo {
    fn from(process: Process) -> Self {
        let Process { id, parent, state, threads, cpu, resident, command, movable, filters } =
            process;
        let cpu_ms = u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX);
        let (pid, resident_bytes) = (id, resident);
        let places = Vec::new();
        Self {
            pid,
            parent,
            state,
            threads,
            cpu_ms,
            resident_bytes,
            command,
            movable,
            filters,
            places,
        }
    }
}

/// The health of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Its number, which is that of the process that was started.
    pub pid: u32,
    /// The process that serves: the same one, or one that it has started.
    #[serde(default)]
    pub server: u32,
    /// Its version.
    pub version: String,
    /// The time since its start, in milliseconds.
    pub uptime_ms: u64,
}
