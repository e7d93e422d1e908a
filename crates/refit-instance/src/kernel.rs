//! An instance that is one of several which form one system: requests to supervise and to move
//! programs, and their routes.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use refit_migrate::{MoveError, Node, Roam};
use refit_tracer::Shown;
use rustix::io::Errno;

use crate::client::{Client, post};
use crate::context::Shared;
use crate::refusal::{Kind, Refusal, alone};
use crate::rejection::{blocking, rejected};
use crate::wire::{FollowRequest, KernelInfo, MoveRequest, RoamRequest};

/// Supervises a process for a request, with the given processors.
pub(crate) fn follow(
    (kernel, own): &(Arc<Node>, Vec<usize>),
    request: &FollowRequest,
) -> Result<(), Refusal> {
    let operation = format!("follow process {}", request.pid);
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
        Refusal::new(kind, operation, error.to_string(), remedy)
    })
}

/// Moves a process or thread for a request.
pub(crate) fn move_to(kernel: &Node, request: &MoveRequest) -> Result<(), Refusal> {
    let operation = match request.thread {
        Some(thread) => format!("move thread {thread} of process {}", request.pid),
        None => format!("move process {}", request.pid),
    };
    kernel.move_to(request.pid, request.thread, request.to).map_err(|error| {
        let (kind, remedy) = match error {
            MoveError::NoProcess(_) | MoveError::Ended => {
                (Kind::Unknown, "list processes with `refit ps`")
            }
            MoveError::NoThread(_) => (Kind::Unknown, "list its threads with `ls /proc/PID/task`"),
            MoveError::NoInstance(_) => (Kind::Unknown, "list instances with `refit instances`"),
            MoveError::Absent { .. } => {
                let remedy = "it continues where it was; try again when `refit instances` \
                              shows the other instance as a peer";
                (Kind::Busy, remedy)
            }
            MoveError::NotMovable(_) => {
                (Kind::Busy, "start it with `refit run --on 0 --movable -- COMMAND`")
            }
            MoveError::Refused(_) => (Kind::Busy, "it continues where it was; try again"),
            MoveError::NoMemory(_) => {
                let remedy =
                    "it continues where it was; see the memory of each in `refit instances`";
                (Kind::Busy, remedy)
            }
        };
        Refusal::new(kind, operation, error.to_string(), remedy)
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
    request: Result<Json<FollowRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(request) =
        request.map_err(|e| rejected("follow a program", e.status(), &e.body_text()))?;
    blocking("follow a program", move || {
        shared.core.system.follow(&request).map(|()| StatusCode::NO_CONTENT)
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
    request: Result<Json<MoveRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(request) = request.map_err(|e| rejected("move", e.status(), &e.body_text()))?;
    blocking("move", move || shared.core.system.move_to(&request).map(|()| StatusCode::NO_CONTENT))
        .await
}

impl Client {
    /// Returns the state of the instance as one of several, or `None` if it is the only one.
    ///
    /// # Errors
    ///
    /// The instance does not answer.
    pub fn kernel(&self) -> Result<Option<KernelInfo>, Refusal> {
        self.find("show the instance", "/kernel")
    }

    /// Makes the instance supervise a process that is about to execute a program.
    ///
    /// # Errors
    ///
    /// The instance does not answer, or cannot supervise the process.
    pub fn follow(&self, request: &FollowRequest) -> Result<(), Refusal> {
        let operation = "follow the program";
        let request = post(operation, "/programs", request)?;
        self.body(self.timeout, operation, request).map(drop)
    }

    /// Moves a process, or one of its threads, to another instance.
    ///
    /// # Errors
    ///
    /// The instance does not answer, or cannot move the process. Threads that have not moved
    /// continue where they were.
    pub fn move_to(&self, request: &MoveRequest) -> Result<(), Refusal> {
        let operation = format!("move {}", request.pid);
        let request = post(&operation, "/moves", request)?;
        self.body(self.timeout, &operation, request).map(drop)
    }
}
