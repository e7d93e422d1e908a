//! Implementations that are loaded.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
