//! Loading implementations through the control API.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use refit_objects::plugin::{LoadError, Obstacle};

use crate::client::{Client, WORK_TIMEOUT, post, understood};
use crate::context::Shared;
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, malformed, rejected};
use crate::wire::{PluginInfo, PluginRequest};

/// Returns an error of loading or unloading as a refusal.
pub(crate) fn refusal(what: &str, error: &LoadError) -> Refusal {
    let kind = match &error.obstacle {
        Obstacle::NotLoaded | Obstacle::UnknownInterface { .. } => Kind::Unknown,
        Obstacle::AlreadyLoaded { .. }
        | Obstacle::NeverUnloaded { .. }
        | Obstacle::Taken { .. } => Kind::Busy,
        Obstacle::Linker(_) | Obstacle::Differs(_) => Kind::Failed,
        _ => Kind::Malformed,
    };
    let operation = format!("{what} {}", error.path.display());
    Refusal::new(kind, operation, error.obstacle.to_string(), error.obstacle.remedy())
}

type PluginPayload = Result<Json<PluginRequest>, JsonRejection>;

/// Lists the plugins with their implementations, the objects that they serve, and the memory that
/// they take.
#[utoipa::path(get, path = "/plugins", responses((status = 200, body = [PluginInfo])))]
pub(crate) async fn plugins(
    State(shared): State<Shared>,
) -> Result<Json<Vec<PluginInfo>>, Refusal> {
    blocking("list plugins", move || Ok(Json(shared.core.system.plugins()))).await
}

/// Checks a plugin and loads it. When the answer arrives, objects can be swapped to its
/// implementations.
#[utoipa::path(post, path = "/plugins", request_body = PluginRequest, responses(
    (status = 201, body = PluginInfo),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 409, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(crate) async fn load(
    State(shared): State<Shared>,
    request: PluginPayload,
) -> Result<(StatusCode, Json<PluginInfo>), Refusal> {
    let Json(PluginRequest { path }) =
        request.map_err(|e| rejected("load", e.status(), &e.body_text()))?;
    if path.is_relative() {
        return Err(malformed("load", "the path does not begin at the root"));
    }
    let load = move || shared.core.system.load(&path);
    blocking("load", move || Ok((StatusCode::CREATED, Json(load()?)))).await
}

/// Refuses to unload a plugin, with the reason and its users: code is never unmapped.
#[utoipa::path(post, path = "/plugins/unload", request_body = PluginRequest, responses(
    (status = 404, body = Refusal),
    (status = 409, body = Refusal),
))]
pub(crate) async fn unload(
    State(shared): State<Shared>,
    request: PluginPayload,
) -> Result<StatusCode, Refusal> {
    let Json(PluginRequest { path }) =
        request.map_err(|e| rejected("unload", e.status(), &e.body_text()))?;
    let unload = move || shared.core.system.unload(&path);
    blocking("unload", move || unload().map(|()| StatusCode::NO_CONTENT)).await
}

impl Client {
    /// Loads a plugin.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. Nothing is loaded then.
    pub fn load(&self, path: &Path) -> Result<PluginInfo, Refusal> {
        let operation = format!("load {}", path.display());
        let body = PluginRequest { path: path.to_owned() };
        let answer = self.body(WORK_TIMEOUT, &operation, post(&operation, "/plugins", &body)?)?;
        understood(&operation, &answer)
    }

    /// Returns the plugins that were loaded.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn plugins(&self) -> Result<Vec<PluginInfo>, Refusal> {
        self.get("list plugins", "/plugins")
    }

    /// Unloads a plugin.
    ///
    /// # Errors
    ///
    /// The instance does not answer, or refuses the request, which it always does.
    pub fn unload(&self, path: &Path) -> Result<(), Refusal> {
        let operation = format!("unload {}", path.display());
        let body = PluginRequest { path: path.to_owned() };
        self.body(self.timeout, &operation, post(&operation, "/plugins/unload", &body)?).map(drop)
    }
}
