//! What the control API says and hears of wrappers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A wrapper that is attached to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrapperInfo {
    /// Number of the attachment; no other one of the instance has it.
    pub id: u64,
    /// e.g. `count`.
    pub name: String,
    /// What it is set to, `key=value …`.
    pub options: String,
    /// What it has counted. Names that end in `_ns` are times in nanoseconds.
    pub stats: BTreeMap<String, u64>,
    /// How what it measures is spread.
    pub histograms: Vec<Histogram>,
}

/// How many measurements lie in which range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Histogram {
    /// What was measured, e.g. `read`.
    pub name: String,
    /// `ns`, `accesses` …; empty for plain numbers.
    pub unit: String,
    /// `(from, how many)`: measurements of at least `from`, below the `from` of the next range that is possible.
    /// Empty ranges are left out.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub ranges: Vec<(u64, u64)>,
}

/// A wrapper that panicked and was detached for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrapperFailure {
    /// Its name.
    pub wrapper: String,
    /// What it did.
    pub why: String,
}

/// Asks for a wrapper around objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wrap {
    /// Pattern over names.
    pub glob: String,
    /// Name of the wrapper; `/wrappers` lists them.
    pub wrapper: String,
    /// What it is to be set to.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Only objects of the mount at this mountpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// Asks for wrappers to be taken away.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unwrap {
    /// Pattern over names.
    pub glob: String,
    /// Name of the wrapper, or the number of its attachment; without it: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapper: Option<String>,
    /// Only objects of the mount at this mountpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
}

/// A wrapper that can be attached by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownWrapper {
    /// Its name.
    pub name: String,
    /// What it does, in a line.
    pub about: String,
    /// What can be set, and what that means.
    pub options: BTreeMap<String, String>,
}
