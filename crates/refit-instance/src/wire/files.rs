//! The data of mounts and their files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Plan;

/// Whether the kernel caches files in addition to refit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// The kernel caches, and refit receives the misses.
    Kernel,
    /// Every read and write reaches refit.
    Direct,
    /// Decided for each file.
    Auto,
    /// The kernel accesses files on the host itself. Only a mount that was mounted so can do it.
    Passthrough,
    /// The kernel caches, and opens files without asking. Of a whole mount only, whose source
    /// nobody else changes.
    Exclusive,
}

/// A request to mount a directory.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    /// The directory to serve.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub source: PathBuf,
    /// The mount point.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub mountpoint: PathBuf,
    /// The memory for page frames, in bytes.
    pub frames_bytes: u64,
    /// Whether the kernel caches files as well.
    pub cache: CacheMode,
    /// The number of workers; the default is one per processor.
    #[serde(default)]
    pub workers: Option<usize>,
    /// The initial implementation of file caches, if there is no `composition`.
    #[serde(default = "shared")]
    pub implementation: String,
    /// The building blocks of the mount and their connections; the default composition if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub composition: Option<Plan>,
    /// Whether users other than the one who mounts may use the mount.
    #[serde(default)]
    pub allow_other: bool,
    /// Whether only root may use the mount, for whom the kernel checks no permissions. Overrides
    /// `allow_other`.
    #[serde(default)]
    pub private: bool,
    /// Whether the mount is read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Whether programs can use no extended attributes on the mount, which must then be `private`,
    /// or of a user other than root and without `allow_other`.
    #[serde(default)]
    pub no_xattrs: bool,
    /// Whether processors are kept out of idle states while programs use the mount.
    #[serde(default)]
    pub awake: bool,
}

fn shared() -> String {
    "shared".to_owned()
}

/// The current state of a mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Mount {
    /// Its number within the instance.
    pub id: u32,
    /// The directory that it serves.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub source: PathBuf,
    /// Its mount point.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub mountpoint: PathBuf,
    /// Whether it is being unmounted.
    pub leaving: bool,
    /// Whether programs may only read: it was mounted so, or its servers have crashed too often.
    #[serde(default)]
    pub read_only: bool,
    /// The counters of the file server.
    pub stats: BTreeMap<String, u64>,
}

/// The use of a regular file of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// Its path in the mount, beginning with `/`. Of a file with several names, one of them.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub path: PathBuf,
    /// The number of opens that have not been closed.
    pub opens: u64,
    /// The number of these that may write.
    pub writers: u64,
    /// Whether the kernel accesses the file in the source for these opens.
    pub passed_through: bool,
    /// The mode in which it is opened next.
    pub cache: CacheMode,
    /// The number of its cache among the objects, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<u64>,
}

/// A request to change the cache mode.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheRequest {
    /// A pattern for names of files, as in `fcm:` names, with or without the `fcm:`.
    pub glob: String,
    /// The new mode.
    pub mode: CacheMode,
}

/// The result of a change of the cache mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheAnswer {
    /// The number of matching files that are currently known.
    pub files: u64,
}
