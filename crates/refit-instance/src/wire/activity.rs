//! The activity of objects and mounts.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Mount, ObjectInfo};

/// The interval between samples.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ActivityQuery {
    /// The interval in milliseconds; the default is a second. The interval is longer where sampling
    /// would take more than a hundredth of it.
    pub every_ms: Option<u64>,
}

/// The activity in one sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Activity {
    /// The time of the sample, in ns since the beginning of the answer.
    pub at_ns: u64,
    /// Objects that are new or differ from the line before.
    pub objects: Vec<ObjectActivity>,
    /// Numbers of objects that have ended.
    pub gone: Vec<u64>,
    /// All mounts.
    pub mounts: Vec<Mount>,
}

/// The activity of an object. A counter that the implementation does not provide is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectActivity {
    /// Its number within the instance.
    pub id: u64,
    /// Its name, `interface:instance`, e.g. `fcm:/logs/a`.
    pub name: String,
    /// Its implementation within its wrappers, e.g. `latency(shared)`.
    pub implementation: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of page faults.
    pub faults: u64,
    /// The number of pages that it holds.
    pub resident: u64,
    /// The number of these pages that must be written back.
    pub dirty: u64,
}

impl From<refit_objects::ObjectActivity> for ObjectActivity {
    fn from(object: refit_objects::ObjectActivity) -> Self {
        let stat = |key| object.stats.iter().find(|(name, _)| *name == key).map_or(0, |(_, n)| *n);
        ObjectActivity {
            id: object.id.to_bits(),
            calls: stat("calls"),
            faults: stat("faults"),
            resident: stat("resident"),
            dirty: stat("dirty"),
            implementation: object.implementation,
            name: object.name,
        }
    }
}

impl From<ObjectInfo> for ObjectActivity {
    fn from(object: ObjectInfo) -> Self {
        let stat = |key: &str| object.stats.get(key).copied().unwrap_or(0);
        ObjectActivity {
            id: object.id,
            calls: stat("calls"),
            faults: stat("faults"),
            resident: stat("resident"),
            dirty: stat("dirty"),
            implementation: object.composed(),
            name: object.name,
        }
    }
}
