//! The data of the control API about wrappers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A wrapper that is attached to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrapperInfo {
    /// The number of the attachment, which is unique within the instance.
    pub id: u64,
    /// Its name, e.g. `count`.
    pub name: String,
    /// Its settings, `key=value …`.
    pub options: String,
    /// Its counters. Names that end in `_ns` are times in nanoseconds.
    pub stats: BTreeMap<String, u64>,
    /// The distributions of its measurements.
    pub histograms: Vec<Histogram>,
}

/// The number of measurements per range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Histogram {
    /// The measured quantity, e.g. `read`.
    pub name: String,
    /// The unit, e.g. `ns` or `accesses`; empty for plain numbers.
    pub unit: String,
    /// Pairs `(from, count)`: `count` measurements of at least `from` and below the `from` of the
    /// next possible range. Empty ranges are omitted.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub ranges: Vec<(u64, u64)>,
}

/// A wrapper that panicked and was detached for that reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrapperFailure {
    /// Its name.
    pub wrapper: String,
    /// The description of the panic.
    pub why: String,
}

/// A request to wrap objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wrap {
    /// A pattern for names.
    pub glob: String,
    /// The name of the wrapper; `/wrappers` lists them.
    pub wrapper: String,
    /// Its settings.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Only objects of the mount at this mount point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A request to remove wrappers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unwrap {
    /// A pattern for names.
    pub glob: String,
    /// The name of the wrapper or the number of its attachment; the default is all wrappers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapper: Option<String>,
    /// Only objects of the mount at this mount point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A wrapper that can be attached by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownWrapper {
    /// Its name.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// Its settings and their meanings.
    pub options: BTreeMap<String, String>,
}
