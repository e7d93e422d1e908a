//! An instance as one of several: its peers, and requests to supervise and to move programs.

use refit_migrate::{Absence, Connection, Node, Reached};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of an instance that is one of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelInfo {
    /// Its number.
    pub number: u16,
    /// The numbers of the processors that belong to it.
    pub processors: Vec<usize>,
    /// The address at which instances of other hosts can join it.
    pub address: Option<String>,
    /// The connected instances, sorted by number.
    pub peers: Vec<PeerInfo>,
    /// Instances of other hosts that are lost and have not come back, sorted by number.
    #[serde(default)]
    pub lost: Vec<LostInfo>,
    /// Its memory for programs that move.
    pub memory: OwnedInfo,
}

/// The memory of an instance for programs that move: the frames of programs that began there, and
/// the pages that it holds for other instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnedInfo {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that it owns; `null` means unlimited.
    pub owned: Option<u64>,
}

/// A connected instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerInfo {
    /// Its number.
    pub number: u16,
    /// The transport of messages to it.
    pub reached: ReachedInfo,
    /// The path or address with which one of the two joined the other.
    pub place: String,
    /// The time since the connection was made, in seconds.
    pub seconds: u64,
}

/// An instance that was connected and is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostInfo {
    /// Its number.
    pub number: u16,
    /// The reason of the loss, for example that the instance stopped responding.
    pub why: String,
    /// The time since the loss, in seconds.
    pub seconds: u64,
    /// The address at which this instance tries to join it again; `null` means that this instance
    /// waits for the other to join.
    pub dials: Option<String>,
}

impl From<Absence> for LostInfo {
    fn from(absence: Absence) -> Self {
        let Absence { number, why, since, dials } = absence;
        Self { number, why, seconds: since.elapsed().as_secs(), dials }
    }
}

/// The transport of messages to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReachedInfo {
    /// Shared memory on this host.
    Memory,
    /// TCP without encryption.
    Tcp,
    /// TLS with certificates of both sides.
    Tls,
}

impl std::fmt::Display for ReachedInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        })
    }
}

impl From<Connection> for PeerInfo {
    fn from(connection: Connection) -> Self {
        let Connection { number, reached, place, time } = connection;
        let reached = match reached {
            Reached::Memory => ReachedInfo::Memory,
            Reached::Tcp => ReachedInfo::Tcp,
            Reached::Tls => ReachedInfo::Tls,
        };
        Self { number, reached, place, seconds: time.as_secs() }
    }
}

impl KernelInfo {
    pub(crate) fn of(kernel: &Node, processors: Vec<usize>) -> Self {
        let address = kernel.address().map(|address| address.to_string());
        let peers = kernel.connections().into_iter().map(PeerInfo::from).collect();
        let lost = kernel.absences().into_iter().map(LostInfo::from).collect();
        let (used, owned) = kernel.memory();
        let memory = OwnedInfo { used, owned };
        Self { number: kernel.number(), processors, address, peers, lost, memory }
    }
}

/// A request to supervise a process that is about to execute a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FollowRequest {
    /// The process.
    pub pid: u32,
    /// Whether it can be moved.
    pub movable: bool,
    /// The policy by which its threads move between instances by themselves; `null` means not at
    /// all.
    pub roam: Option<RoamRequest>,
    /// The numbers of the processors that its programs see; `null` means the instance's own.
    pub processors: Option<Vec<usize>>,
}

/// The policy by which threads move between instances by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoamRequest {
    /// To the next instance at an interval in milliseconds.
    Every(u64),
    /// To the next instance once.
    Once,
    /// To the next instance once, returning for each system call.
    Calls,
    /// To all instances in turn, once.
    Spread,
}

/// A request to move a process, or one of its threads, to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The process.
    pub pid: u32,
    /// The thread; `null` means all threads, including those that it creates later.
    pub thread: Option<u32>,
    /// The number of the instance; `null` means all in turn.
    pub to: Option<u16>,
}
