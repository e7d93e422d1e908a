//! An instance as one of several that make one system: which there are, whose programs it follows, where their threads run; and its routes.

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

/// An instance that is one of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelInfo {
    /// Its number.
    pub number: u16,
    /// The processors that are its own, by number.
    pub processors: Vec<usize>,
    /// Where instances of other hosts can join it.
    pub address: Option<String>,
    /// The others that it has messages with, by number.
    pub peers: Vec<PeerInfo>,
    /// Those of other hosts that are lost and not there again, by number.
    #[serde(default)]
    pub lost: Vec<LostInfo>,
    /// Its memory for programs that move.
    pub memory: OwnedInfo,
}

/// The memory of an instance for programs that move: frames of those that began there, and pages that it holds for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnedInfo {
    /// Bytes that are used.
    pub used: u64,
    /// Bytes that it owns; `null`: as many as there are.
    pub owned: Option<u64>,
}

/// Another instance that one has messages with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerInfo {
    /// Its number.
    pub number: u16,
    /// How messages come to it.
    pub reached: ReachedInfo,
    /// The path or address that one of the two has joined the other by.
    pub place: String,
    /// For how many seconds it is connected.
    pub seconds: u64,
}

/// Another instance that was a peer, and is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostInfo {
    /// Its number.
    pub number: u16,
    /// What told of the loss, e.g. that it has fallen silent.
    pub why: String,
    /// For how many seconds it is lost.
    pub seconds: u64,
    /// The address at which this instance tries to join it again; `null`: it waits to be joined.
    pub dials: Option<String>,
}

impl From<Absence> for LostInfo {
    fn from(absence: Absence) -> Self {
        let Absence { number, why, since, dials } = absence;
        Self { number, why, seconds: since.elapsed().as_secs(), dials }
    }
}

/// How messages come to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReachedInfo {
    /// By memory that both share, on this host.
    Memory,
    /// By TCP, for anybody to read.
    Tcp,
    /// By TLS, with certificates of both.
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

/// Asks to follow a process that is about to become a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FollowRequest {
    /// The process.
    pub pid: u32,
    /// Whether it is to be movable.
    pub movable: bool,
    /// How its threads are to go from instance to instance by themselves; `null`: not at all.
    pub roam: Option<RoamRequest>,
    /// The processors that its programs are told of, by number; `null`: those that are the instance's own.
    pub processors: Option<Vec<usize>>,
}

/// How threads go from instance to instance by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoamRequest {
    /// To the next, every so many milliseconds.
    Every(u64),
    /// To the next, and they stay there.
    Once,
    /// Likewise, but back for each system call.
    Calls,
    /// To all in turn, and they stay there.
    Spread,
}

/// Asks for a process, or one thread of it, to run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The process.
    pub pid: u32,
    /// The thread; `null`: all, and those that it makes later.
    pub thread: Option<u32>,
    /// The number of the instance; `null`: all in turn.
    pub to: Option<u16>,
}

/// It is not one of several.
pub(crate) fn alone(asked: &str) -> Refusal {
    let remedy = "start several with `refit boot --instances 2`, and the program with `refit run --on 0 --movable -- COMMAND`";
    Refusal::new(Kind::Unknown, asked, "this instance is not one of several", remedy)
}

/// Follows, on behalf of a request, with these processors.
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

/// Moves, on behalf of a request.
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

/// What an instance is that is one of several.
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

/// Follows a process that is about to become a program.
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

/// Has a process, or one thread of it, run elsewhere; answers when it does.
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
    /// What it is, if it is one of several.
    ///
    /// # Errors
    /// It does not answer.
    pub fn kernel(&self) -> Result<Option<KernelInfo>, Refusal> {
        match self.get("show the instance", "/kernel") {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.kind == Kind::Unknown => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Has it follow a process that is about to become a program.
    ///
    /// # Errors
    /// It does not answer, or cannot.
    pub fn follow(&self, request: &FollowRequest) -> Result<(), Refusal> {
        let asked = "follow the program";
        let request = post(asked, "/programs", request)?;
        self.body(self.patience, asked, request).map(drop)
    }

    /// Has a process, or one thread of it, run elsewhere.
    ///
    /// # Errors
    /// It does not answer, or cannot; what has not moved goes on where it was.
    pub fn move_to(&self, request: &MoveRequest) -> Result<(), Refusal> {
        let asked = format!("move {}", request.pid);
        let request = post(&asked, "/moves", request)?;
        self.body(self.patience, &asked, request).map(drop)
    }
}
