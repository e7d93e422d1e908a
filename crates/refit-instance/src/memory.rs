//! The routes for the memory of the program under an instance.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};

use crate::client::{Client, post, understood};
use crate::context::Shared;
use crate::refusal::{Refusal, no_process};
use crate::rejection::{blocking, rejected};
use crate::wire::{LimitAnswer, LimitRequest, MemoryInfo, ProcessMemory};

/// Returns the memory of the program that runs under the instance.
#[utoipa::path(get, path = "/memory", responses(
    (status = 200, body = MemoryInfo),
    (status = 404, body = Refusal),
))]
pub(crate) async fn memory(State(shared): State<Shared>) -> Result<Json<MemoryInfo>, Refusal> {
    blocking("show memory", move || shared.core.system.memory().map(Json)).await
}

/// Limits the memory of the program or removes the limit. Memory above the limit is evicted
/// gradually.
#[utoipa::path(post, path = "/memory", request_body = LimitRequest, responses(
    (status = 200, body = LimitAnswer),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(crate) async fn limit(
    State(shared): State<Shared>,
    request: Result<Json<LimitRequest>, JsonRejection>,
) -> Result<Json<LimitAnswer>, Refusal> {
    let Json(request) =
        request.map_err(|e| rejected("limit memory", e.status(), &e.body_text()))?;
    blocking("limit memory", move || shared.core.system.limit(request.limit_bytes).map(Json)).await
}

/// Returns a process of the program that runs under the instance, and its memory.
#[utoipa::path(get, path = "/processes/{pid}", params(("pid" = u32, Path,)), responses(
    (status = 200, body = ProcessMemory),
    (status = 404, body = Refusal),
))]
pub(crate) async fn process(
    State(shared): State<Shared>,
    Path(pid): Path<String>,
) -> Result<Json<ProcessMemory>, Refusal> {
    let operation = format!("show process {pid}");
    let unknown = no_process(&operation);
    blocking(&operation, move || {
        let found = pid.parse().ok().and_then(|pid| shared.core.system.process(pid));
        found.map(Json).ok_or(unknown)
    })
    .await
}

impl Client {
    /// Returns the memory of the program that runs under the instance.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn memory(&self) -> Result<MemoryInfo, Refusal> {
        self.get("show memory", "/memory")
    }

    /// Limits the memory of the program; `None` removes the limit.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. The limit is unchanged then.
    pub fn limit(&self, limit_bytes: Option<u64>) -> Result<LimitAnswer, Refusal> {
        let operation = "limit memory";
        let request = post(operation, "/memory", &LimitRequest { limit_bytes })?;
        understood(operation, &self.body(self.timeout, operation, request)?)
    }

    /// Returns a process of the program that runs under the instance, or `None` if the program has
    /// no such process.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn process(&self, pid: u32) -> Result<Option<ProcessMemory>, Refusal> {
        self.find(&format!("show process {pid}"), &format!("/processes/{pid}"))
    }
}
