//! Loading implementations over the control API: what it says and hears, and its routes.

use std::path::{Path, PathBuf};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use refit_objects::plugin::{LoadError, Obstacle};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::client::{Client, LONG_PATIENCE, post, understood};
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, malformed, rejected};
use crate::server::Shared;

/// Asks for a plugin to be loaded, or unloaded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginRequest {
    /// The file, from the root; to unload, its build id will do.
    #[schema(value_type = String)]
    pub path: PathBuf,
}

/// A plugin that is loaded, and stays mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginInfo {
    /// The file, as it was asked for.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Identifies the code.
    pub build_id: String,
    /// Name and version of its package.
    pub package: String,
    /// What compiled it.
    pub rustc: String,
    /// Memory that it takes for as long as the instance lives.
    pub mapped_bytes: u64,
    /// What it implements.
    pub implementations: Vec<LoadedInfo>,
}

/// An implementation that is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadedInfo {
    /// Its interface.
    pub interface: String,
    /// The version of the interface that it was built against.
    pub version: u32,
    /// Its name; it means the code that was loaded last under this name.
    pub name: String,
    /// The name of exactly this code.
    pub precise: String,
    /// Whether `name` means it.
    pub latest: bool,
    /// Objects that it serves.
    pub objects: u64,
    /// Roots of it that live, those included that are being swapped in or out.
    pub roots: u64,
    /// Panics of it that were caught.
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

/// A refusal to load or unload, as one of this crate.
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

/// There is nothing that could load it.
pub(crate) fn loads_nothing(what: &str, path: &Path) -> Refusal {
    Refusal::new(Kind::Failed, format!("{what} {}", path.display()), "nothing is loaded here", "")
}

type Asked = Result<Json<PluginRequest>, JsonRejection>;

/// Loaded code: what it implements, what it serves, and the memory that it takes.
#[utoipa::path(get, path = "/plugins", responses((status = 200, body = [PluginInfo])))]
pub(crate) async fn plugins(
    State(shared): State<Shared>,
) -> Result<Json<Vec<PluginInfo>>, Refusal> {
    blocking("list plugins", move || Ok(Json(shared.core.system.plugins()))).await
}

/// Checks a plugin and loads it; its implementations can be swapped to when the answer comes.
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

/// Refused, with the reason and who uses it: code is never unmapped.
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
    /// It does not answer or refuses; nothing is loaded then.
    pub fn load(&self, path: &Path) -> Result<PluginInfo, Refusal> {
        let asked = format!("load {}", path.display());
        let body = PluginRequest { path: path.to_owned() };
        let answer = self.body(LONG_PATIENCE, &asked, post(&asked, "/plugins", &body)?)?;
        understood(&asked, &answer)
    }

    /// Code that was loaded.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn plugins(&self) -> Result<Vec<PluginInfo>, Refusal> {
        self.get("list plugins", "/plugins")
    }

    /// Unloads a plugin.
    ///
    /// # Errors
    /// It does not answer, or refuses, which it always does.
    pub fn unload(&self, path: &Path) -> Result<(), Refusal> {
        let asked = format!("unload {}", path.display());
        let body = PluginRequest { path: path.to_owned() };
        self.body(self.patience, &asked, post(&asked, "/plugins/unload", &body)?).map(drop)
    }
}
