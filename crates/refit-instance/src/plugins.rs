//! Loading implementations through the control API: its data and its routes.

use std::path::{Path, PathBuf};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use refit_objects::plugin::{LoadError, Obstacle};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::client::{Client, WORK_TIMEOUT, post, understood};
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, malformed, rejected};
use crate::server::Shared;

/// A request to load or unload a plugin.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginRequest {
    /// The absolute path of the file. To unload, the build ID can be given instead.
    #[schema(value_type = String)]
    pub path: PathBuf,
}

/// A plugin that is loaded and stays mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginInfo {
    /// The path of the file as it was requested.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// The build ID, which identifies the code.
    pub build_id: String,
    /// The name and the version of its package.
    pub package: String,
    /// The compiler that compiled it.
    pub rustc: String,
    /// The memory that it takes for as long as the instance exists, in bytes.
    pub mapped_bytes: u64,
    /// Its implementations.
    pub implementations: Vec<LoadedInfo>,
}

/// An implementation that was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadedInfo {
    /// Its interface.
    pub interface: String,
    /// The version of the interface that it was built against.
    pub version: u32,
    /// Its name, which refers to the code that was last loaded under this name.
    pub name: String,
    /// The name that refers to exactly this code.
    pub precise: String,
    /// Whether `name` refers to it.
    pub latest: bool,
    /// The number of objects that it serves.
    pub objects: u64,
    /// The number of its roots, including those that are being swapped in or out.
    pub roots: u64,
    /// The number of its panics that were caught.
    pub panics: u64,
}

impl From<refit_objects::plugin::PluginInfo> for PluginInfo {
    fn from(plugin: refit_objects::plugin::PluginInfo) -> Self {
        let implementation = |i: refit_objects::plugin::LoadedInfo| LoadedInfo {
            interface: i.interface,
            version: i.version,
            name: i.name,
            precise: i.precise,
            latest: i.latest,
            objects: i.objects as u64,
            roots: i.roots as u64,
            panics: i.panics,
        };
        PluginInfo {
            path: plugin.path,
            build_id: plugin.build_id,
            package: plugin.package,
            rustc: plugin.rustc,
            mapped_bytes: plugin.mapped_bytes,
            implementations: plugin.implementations.into_iter().map(implementation).collect(),
        }
    }
}

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
    let asked = format!("{what} {}", error.path.display());
    Refusal::new(kind, asked, error.obstacle.to_string(), error.obstacle.remedy())
}

/// Returns the refusal of a system that loads no plugins.
pub(crate) fn loads_nothing(what: &str, path: &Path) -> Refusal {
    Refusal::new(Kind::Failed, format!("{what} {}", path.display()), "nothing is loaded here", "")
}

type Asked = Result<Json<PluginRequest>, JsonRejection>;

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
    asked: Asked,
) -> Result<(StatusCode, Json<PluginInfo>), Refusal> {
    let Json(PluginRequest { path }) =
        asked.map_err(|e| rejected("load", e.status(), &e.body_text()))?;
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
    asked: Asked,
) -> Result<StatusCode, Refusal> {
    let Json(PluginRequest { path }) =
        asked.map_err(|e| rejected("unload", e.status(), &e.body_text()))?;
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
        let asked = format!("load {}", path.display());
        let body = PluginRequest { path: path.to_owned() };
        let answer = self.body(WORK_TIMEOUT, &asked, post(&asked, "/plugins", &body)?)?;
        understood(&asked, &answer)
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
        let asked = format!("unload {}", path.display());
        let body = PluginRequest { path: path.to_owned() };
        self.body(self.patience, &asked, post(&asked, "/plugins/unload", &body)?).map(drop)
    }
}
