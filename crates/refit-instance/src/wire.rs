//! What the control API says and hears. Plain data; sizes are in bytes, times in the unit of their name.

mod wrapping;

use std::collections::BTreeMap;
use std::path::PathBuf;

use refit_change::Report;
/// Which building blocks a mount is made of.
pub use refit_objects::composition::Plan;
use refit_tracer::Process;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use crate::activity::{Activity, ActivityQuery, ObjectActivity};
pub use crate::debug::{EventInfo, EventsInfo};
pub use crate::kernel::{
    FollowRequest, KernelInfo, LostInfo, MoveRequest, OwnedInfo, PeerInfo, ReachedInfo, RoamRequest,
};
pub use crate::memory::{
    LimitAnswer, LimitRequest, MemoryInfo, ProcessMemory, RefusedInfo, RegionInfo, StoreInfo,
};
pub use crate::moves::{CallInfo, DestinationInfo, MovesInfo, PagesInfo, TimesInfo, TrafficInfo};
pub use crate::plugins::{LoadedInfo, PluginInfo, PluginRequest};
pub use crate::recording::{EndRecordQuery, RecordRequest, Recorded};
pub use wrapping::{Histogram, KnownWrapper, Unwrap, Wrap, WrapperFailure, WrapperInfo};

/// Header of the answer to a swap: how many objects it goes over; fewer reports come if some end meanwhile.
pub const OBJECTS_HEADER: &str = "refit-objects";

/// An object as it stands now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectInfo {
    /// Its number within the instance.
    pub id: u64,
    /// `interface:instance`, e.g. `fcm:/logs/a`.
    pub name: String,
    /// e.g. `fcm`.
    pub interface: String,
    /// The mountpoint of the mount that it belongs to, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// What serves now, e.g. `shared`.
    pub implementation: String,
    /// What it can be swapped to.
    pub implementations: Vec<String>,
    /// Representatives made so far.
    pub reps: u64,
    /// Which processors share one, as in `reps` of a swap.
    #[serde(default)]
    pub clustering: String,
    /// Misses of the translation table.
    pub misses: u64,
    /// The objects that it calls.
    #[serde(default)]
    pub imports: Vec<Import>,
    /// What the implementation counts: size, resident, dirty, calls, faults …
    pub stats: BTreeMap<String, u64>,
    /// What is around the implementation, innermost first.
    #[serde(default)]
    pub wrappers: Vec<WrapperInfo>,
    /// Wrappers that panicked and were detached for it; the last few.
    #[serde(default)]
    pub wrapper_failures: Vec<WrapperFailure>,
}

impl ObjectInfo {
    /// What serves with what is around it: `latency(count(shared))`.
    pub fn composed(&self) -> String {
        let inner = self.implementation.clone();
        self.wrappers.iter().fold(inner, |inner, w| format!("{}({inner})", w.name))
    }
}

/// A reference that an object holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Import {
    /// What it is to the object, e.g. `pm`.
    pub port: String,
    /// Number of the object to which it leads.
    pub object: u64,
}

/// Which objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ObjectQuery {
    /// Pattern over names; `*` matches any characters, `/` too, `?` one. Without it: all.
    pub glob: Option<String>,
    /// Only objects of the mount at this mountpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// Asks for a swap.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// Pattern over names.
    pub glob: String,
    /// What is to serve.
    pub implementation: String,
    /// For how long each object may take before it is rolled back, in milliseconds. Without it: the default
    /// of the object system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Which processors are to share a representative: `one`, `each`, `groups:4`, `map:0,0,1,1`. Without it: as the
    /// implementation has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reps: Option<String>,
    /// How often each is tried again when it misses its deadline.
    #[serde(default)]
    pub retries: u32,
    /// Each has to keep to a condition for a while, or is swapped back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probation: Option<Probation>,
    /// All of them, and those of `with`, as one change: no request sees some old and some new, and if one cannot be
    /// swapped, none is.
    #[serde(default)]
    pub together: bool,
    /// What else changes with it; only with `together`.
    #[serde(default)]
    pub with: Vec<SwapPart>,
    /// Swap again and again. Without it: each object once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// Go as far as to the commit, measure, and take it back: nothing changes, and nothing is written down. Not
    /// together with `repeat`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Move state in the protocol of this name. Without it: in the best that both implementations know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What becomes of the state of the implementation that is swapped out.
    #[serde(default, skip_serializing_if = "Handover::is_transfer")]
    pub handover: Handover,
    /// Only objects of the mount at this mountpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// What becomes of the state of the implementation that is swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Handover {
    /// The new implementation takes it over.
    #[default]
    Transfer,
    /// It is left behind. Refused unless the interface says that its state is a hint.
    WithoutState,
    /// It is thrown away, and the new implementation begins with an empty one. Refused unless the interface has one.
    EmptyState,
}

impl Handover {
    fn is_transfer(&self) -> bool {
        *self == Handover::Transfer
    }
}

impl From<Handover> for refit_objects::Handover {
    fn from(asked: Handover) -> Self {
        match asked {
            Handover::Transfer => refit_objects::Handover::Transfer,
            Handover::WithoutState => refit_objects::Handover::WithoutState,
            Handover::EmptyState => refit_objects::Handover::EmptyState,
        }
    }
}

/// Caches are to be swapped by how they are used, for as long as the answer is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Adapt {
    /// Pattern over names.
    pub glob: String,
    /// Between two looks, in milliseconds.
    pub every_ms: u64,
    /// A cache is swapped when so much of its accesses, in percent, follow each other,
    pub above_percent: u64,
    /// and back when less do.
    pub below_percent: u64,
    /// For how long, in milliseconds; without it: until nobody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// How an implementation has to prove itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Probation {
    /// For how long, in milliseconds; for as long, but a second at the most, calls are measured before the swap.
    pub ms: u64,
    /// What has to hold, e.g. `errors == 0 && p99 < 1.2 × before`.
    pub until: String,
}

/// Some of the objects of a swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwapPart {
    /// Pattern over names.
    pub glob: String,
    /// What is to serve.
    pub implementation: String,
}

/// How objects are swapped again and again: in turn, each to the implementation that follows its present one in
/// the list of `implementation` and `others`, and from the last to the first. Objects that come or go meanwhile
/// are noticed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// Implementations besides the first one. Without any: every swap is to the same one, which is a swap too.
    #[serde(default)]
    pub others: Vec<String>,
    /// From the beginning of one swap to that of the next, in microseconds. A swap that takes longer delays the
    /// next one; none is made up for.
    pub every_us: u64,
    /// For how long, in milliseconds. Without it: until the requester goes away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

impl Swap {
    /// Each object once, within the default deadline.
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

    /// Implementations in the order in which they follow each other.
    pub(crate) fn implementations(&self) -> impl Iterator<Item = &str> {
        let others = self.repeat.iter().flat_map(|repeat| &repeat.others);
        std::iter::once(&self.implementation).chain(others).map(String::as_str)
    }
}

/// A class of objects, as one of its factories knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassInfo {
    /// Its name, that of its interface, e.g. `fcm`.
    pub class: String,
    /// The factory, e.g. the mount point whose files it makes caches for.
    pub factory: String,
    /// What new objects are made of.
    pub implementation: String,
    /// Objects that it has made and that live.
    pub instances: u64,
}

/// Asks for the upgrade of a class: all objects and what new ones are made of, or nothing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// The class.
    pub class: String,
    /// What is to serve.
    pub implementation: String,
    /// For how long a batch of objects may take, in milliseconds. Without it: the default of the object system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Objects per second at the most. Without it: as fast as it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// A line of the answer to an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UpgradeLine {
    /// How far it is; comes from time to time.
    Progress {
        /// Objects that have been swapped.
        done: u64,
        /// Objects that are to be.
        total: u64,
        /// Whether it is held up.
        paused: bool,
    },
    /// What became of it; the last line.
    Report(Box<Report>),
}

/// Holds an upgrade up, or lets it go on.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The class whose upgrade it is.
    pub class: String,
    /// Which of the two.
    pub paused: bool,
}

/// Which part of the journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Whether to stay and send what comes.
    #[serde(default)]
    pub follow: bool,
    /// First place in the journal that is wanted. Without it: the oldest that is kept.
    pub from: Option<u64>,
    /// At most this many of the latest of what is there already.
    pub last: Option<usize>,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum JournalLine {
    /// A change.
    Entry {
        /// Its place in the journal.
        seq: u64,
        /// What became of it.
        #[serde(flatten)]
        report: Box<Report>,
    },
    /// Changes that were overwritten before they could be read.
    Lost {
        /// How many.
        lost: u64,
    },
}

/// Who decides what is cached: the kernel too, refit alone, or per file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// The kernel caches; refit is asked on a miss.
    Kernel,
    /// Every read and write comes to refit.
    Direct,
    /// Decided per file.
    Auto,
}

/// Asks for a mount.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    /// The directory that is served.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub source: PathBuf,
    /// Where it appears.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub mountpoint: PathBuf,
    /// Budget of page frames, in bytes.
    pub frames_bytes: u64,
    /// Who caches.
    pub cache: CacheMode,
    /// Workers; without it: one per processor.
    #[serde(default)]
    pub workers: Option<usize>,
    /// What the file caches begin with, if there is no `composition`.
    #[serde(default = "shared")]
    pub implementation: String,
    /// Which building blocks it is made of, and how they are connected; without it: the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub composition: Option<Plan>,
    /// Whether users other than the one who mounts may use it.
    #[serde(default)]
    pub allow_other: bool,
    /// Whether writing is refused.
    #[serde(default)]
    pub read_only: bool,
}

fn shared() -> String {
    "shared".to_owned()
}

/// A mount as it stands now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mount {
    /// Its number within the instance.
    pub id: u32,
    /// The directory that is served.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub source: PathBuf,
    /// Where it appears.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub mountpoint: PathBuf,
    /// Whether it is being unmounted.
    pub leaving: bool,
    /// What the file server counts.
    pub stats: BTreeMap<String, u64>,
}

/// A process of the program that runs under an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// As `ps` shows it: `R`, `S`, `D`, `T`, `t`, `Z`.
    pub state: char,
    /// How many threads it has.
    pub threads: u64,
    /// Time of processors that it has used.
    pub cpu_ms: u64,
    /// Memory of it that is there now.
    pub resident_bytes: u64,
    /// What it was started as.
    pub command: String,
    /// Whether it holds nothing of the kernel that runs it, and can be moved.
    pub movable: bool,
    /// Of threads that have been at other instances: where they run.
    #[serde(default)]
    pub places: Vec<PlaceInfo>,
}

/// Where a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceInfo {
    /// Its number.
    pub thread: u32,
    /// The number of the instance.
    pub at: u16,
}

impl From<Process> for ProcessInfo {
    fn from(process: Process) -> Self {
        let Process { id, parent, state, threads, cpu, resident, command, movable } = process;
        let cpu_ms = u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX);
        let (pid, resident_bytes) = (id, resident);
        let places = Vec::new();
        Self { pid, parent, state, threads, cpu_ms, resident_bytes, command, movable, places }
    }
}

/// Asks for another cache mode.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheRequest {
    /// Pattern over the names of files, as in `fcm:` names with or without the `fcm:`.
    pub glob: String,
    /// Who caches from now on.
    pub mode: CacheMode,
}

/// What became of a request for another cache mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheAnswer {
    /// Files that match and are known now.
    pub files: u64,
}

/// That the instance lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// For how long it has lived, in milliseconds.
    pub uptime_ms: u64,
}
