//! An instance as one of several that form one system: its peers, the programs that it supervises,
//! the placement of their threads, and the routes for these.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use refit_migrate::{Absence, Connection, MoveError, Node, Reached, Roam};
use refit_tracer::Shown;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use rustix::io::Errno;

use crate::client::{Client, post};
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, rejected};
use crate::server::Shared;

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
    /// The time since it connected, in seconds.
    pub seconds: u64,
}

/// An instance that was connected and is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostInfo {
    /// Its number.
    pub number: u16,
    /// The reason for which it was taken to be lost, for example because the instance stopped
    /// responding.
    pub why: String,
    /// The time since it was lost, in seconds.
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
    /// Whether it is to be movable.
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

/// Returns the refusal of an instance that is not one of several.
pub(crate) fn alone(asked: &str) -> Refusal {
    let remedy = "start several with `refit boot --instances 2`, and the program with `refit run --on 0 --movable -- COMMAND`";
    Refusal::new(Kind::Unknown, asked, "this instance is not one of several", remedy)
}

/// Supervises a process for a request, with the given processors.
pub(crate) fn follow(
    (kernel, own): &(Arc<Node>, Vec<usize>),
    request: &FollowRequest,
) -> Result<(), Refusal> {
    let asked = format!("follow process {}", request.pid);
    let roam = request.roam.map(|roam| match roam {
        RoamRequest::Every(ms) => Roam::Every(Duration::from_millis(ms)),
        RoamRequest::Once => Roam::Once,
        RoamRequest::Calls => Roam::Calls,
        RoamRequest::Spread => Roam::Spread,
    });
    let shown = request.processors.clone().map(|all| Shown { own: own.clone(), all });
    kernel.follow(request.pid, request.movable, roam, shown).map_err(|error| {
        let remedy = "see `refit doctor` for what this host permits";
        let kind = match error.raw_os_error() {
            Some(code) if code == Errno::SRCH.raw_os_error() => Kind::Unknown,
            _ => Kind::Failed,
        };
        Refusal::new(kind, asked, error.to_string(), remedy)
    })
}

/// Moves a process or thread for a request.
pub(crate) fn move_to(kernel: &Node, request: &MoveRequest) -> Result<(), Refusal> {
    let asked = match request.thread {
        Some(thread) => format!("move thread {thread} of process {}", request.pid),
        None => format!("move process {}", request.pid),
    };
    kernel.move_to(request.pid, request.thread, request.to).map_err(|error| {
        let (kind, remedy) = match error {
            MoveError::NoProcess(_) | MoveError::NoThread(_) | MoveError::Ended => {
                (Kind::Unknown, "see `refit ps` for those there are")
            }
            MoveError::NoInstance(_) => (Kind::Unknown, "see `refit instances`"),
            MoveError::Absent { .. } => {
                let remedy = "it goes on where it was; try again when `refit instances` shows \
                              the other one as a peer";
                (Kind::Busy, remedy)
            }
            MoveError::NotMovable(_) => {
                (Kind::Busy, "start it with `refit run --on 0 --movable -- COMMAND`")
            }
            MoveError::Refused(_) => (Kind::Busy, "it goes on where it was; try again"),
            MoveError::NoMemory(_) => {
                let remedy = "it goes on where it was; see `refit instances` for who has memory";
                (Kind::Busy, remedy)
            }
        };
        Refusal::new(kind, asked, error.to_string(), remedy)
    })
}

/// Returns the state of an instance that is one of several.
#[utoipa::path(get, path = "/kernel", responses(
    (status = 200, body = KernelInfo),
    (status = 404, body = Refusal),
))]
pub(crate) async fn kernel(State(shared): State<Shared>) -> Result<Json<KernelInfo>, Refusal> {
    blocking("show the instance", move || {
        shared.core.system.kernel().map(Json).ok_or_else(|| alone("show the instance"))
    })
    .await
}

/// Supervises a process that is about to execute a program.
#[utoipa::path(post, path = "/programs", request_body = FollowRequest, responses(
    (status = 204),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(crate) async fn programs(
    State(shared): State<Shared>,
    asked: Result<Json<FollowRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(asked) =
        asked.map_err(|e| rejected("follow a program", e.status(), &e.body_text()))?;
    blocking("follow a program", move || {
        shared.core.system.follow(&asked).map(|()| StatusCode::NO_CONTENT)
    })
    .await
}

/// Moves a process, or one of its threads, to another instance. The answer is sent when it runs
/// there.
#[utoipa::path(post, path = "/moves", request_body = MoveRequest, responses(
    (status = 204),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(crate) async fn moves(
    State(shared): State<Shared>,
    asked: Result<Json<MoveRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(asked) = asked.map_err(|e| rejected("move", e.status(), &e.body_text()))?;
    blocking("move", move || shared.core.system.move_to(&asked).map(|()| StatusCode::NO_CONTENT))
        .await
}

impl Client {
    /// Returns the state of the instance as one of several, or `None` if it is the only one.
    ///
    /// # Errors
    ///
    /// The instance does not answer.
    pub fn kernel(&self) -> Result<Option<KernelInfo>, Refusal> {
        match self.get("show the instance", "/kernel") {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.kind == Kind::Unknown => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Makes the instance supervise a process that is about to execute a program.
    ///
    /// # Errors
    ///
    /// The instance does not answer, or cannot supervise the process.
    pub fn follow(&self, request: &FollowRequest) -> Result<(), Refusal> {
        let asked = "follow the program";
        let request = post(asked, "/programs", request)?;
        self.body(self.patience, asked, request).map(drop)
    }

    /// Moves a process, or one of its threads, to another instance.
    ///
    /// # Errors
    ///
    /// The instance does not answer, or cannot move the process. Threads that have not moved
    /// continue where they were.
    pub fn move_to(&self, request: &MoveRequest) -> Result<(), Refusal> {
        let asked = format!("move {}", request.pid);
        let request = post(&asked, "/moves", request)?;
        self.body(self.patience, &asked, request).map(drop)
    }
}
