//! The memory of the program under an instance: its limit and its use.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::ProcessInfo;

/// The anonymous memory of a program and of all processes that it has started, when it was last
/// measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryInfo {
    /// The limit in bytes; `null` means unlimited.
    pub limit_bytes: Option<u64>,
    /// The resident memory, in bytes.
    pub resident_bytes: u64,
    /// The part of it that the instance serves, in bytes; for the rest the kernel resolves the
    /// faults.
    pub served_bytes: u64,
    /// The pages in the store.
    pub store: StoreInfo,
    /// The number of pages that are lost because the disk could not return them.
    pub lost: u64,
    /// Whether the store is full, so that more is resident than the limit permits.
    pub full: bool,
    /// The number of times that the limit was exceeded for a while because of an internal error of
    /// refit, which `PID.log` beside the socket describes.
    pub failures: u64,
    /// Programs that should be served but are not.
    pub refused: Vec<RefusedInfo>,
}

/// The number of pages in the store, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreInfo {
    /// Pages of zeros, which take no space.
    pub zeros: u64,
    /// Pages that are compressed in memory.
    pub compressed: u64,
    /// The space that the compressed pages take, in bytes.
    pub compressed_bytes: u64,
    /// Pages in the swap file.
    pub in_file: u64,
}

/// A program that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedInfo {
    /// Its process.
    pub pid: u32,
    /// The reason.
    pub why: String,
}

/// A process and its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessMemory {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessInfo,
    /// The regions of its memory that are served; empty if the kernel alone resolves its faults.
    pub regions: Vec<RegionInfo>,
    /// Why it is not served although it should be.
    pub refused: Option<String>,
}

/// A region of a process that is served. Its counts are in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionInfo {
    /// Its first address.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// Its name in the kernel, e.g. `[heap]`; most regions have none.
    pub name: String,
    /// Pages that are resident or being fetched.
    pub resident: u64,
    /// Pages in the store.
    pub stored: u64,
    /// Pages that threads have waited for.
    pub faults: u64,
    /// Pages that were fetched together with those.
    pub around: u64,
    /// Pages that were evicted.
    pub evictions: u64,
    /// Pages that were fetched again soon after their eviction.
    pub returns: u64,
    /// The implementation of the region; `null` if none of it has been accessed yet.
    pub region: Option<String>,
    /// The implementation of its cache; `null` if none of it has been accessed yet.
    pub cache: Option<String>,
    /// Whether the kernel alone resolves its faults.
    pub native: bool,
}

/// A request to change the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    /// The limit for the program and all processes that it has started, in bytes; `null` means
    /// unlimited.
    #[serde(deserialize_with = "number_or_null")]
    #[schema(required = true)]
    pub limit_bytes: Option<u64>,
}

/// The result of a change of the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitAnswer {
    /// The former limit, in bytes; `null` means unlimited.
    pub was_bytes: Option<u64>,
    /// The memory after the change.
    #[serde(flatten)]
    pub memory: MemoryInfo,
}

/// Deserializes an optional number like the default implementation, but requires the field to be
/// present: an empty body must not remove the limit.
fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Option::deserialize(from)
}

impl From<refit_limits::Totals> for MemoryInfo {
    fn from(totals: refit_limits::Totals) -> Self {
        let refit_limits::Totals { limit, resident, served, store, lost, full, failures } = totals;
        let store = StoreInfo {
            zeros: store.zeros,
            compressed: store.compressed,
            compressed_bytes: store.compressed_bytes,
            in_file: store.in_file,
        };
        let (limit_bytes, resident_bytes, served_bytes) = (limit, resident, served);
        Self {
            limit_bytes,
            resident_bytes,
            served_bytes,
            store,
            lost,
            full,
            failures,
            refused: vec![],
        }
    }
}

impl From<refit_memory::program::RegionInfo> for RegionInfo {
    fn from(region: refit_memory::program::RegionInfo) -> Self {
        let refit_memory::program::RegionInfo {
            range,
            name,
            stats,
            stored,
            implementations,
            native,
        } = region;
        let (region, cache) = implementations.unzip();
        Self {
            region,
            cache,
            native,
            start: range.start,
            end: range.end,
            name,
            resident: stats.resident,
            stored,
            faults: stats.faults,
            around: stats.around,
            evictions: stats.evictions,
            returns: stats.returns,
        }
    }
}
