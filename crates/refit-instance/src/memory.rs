//! The memory of the program under an instance: its limit, its use, and the routes for these.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::client::{Client, post, understood};
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, rejected};
use crate::server::Shared;
use crate::wire::ProcessInfo;

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

/// Returns the refusal of an instance under which no program runs.
pub(crate) fn no_program(asked: &str) -> Refusal {
    let remedy = "start one with `refit run`";
    Refusal::new(Kind::Unknown, asked, "no program runs under this instance", remedy)
}

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
    asked: Result<Json<LimitRequest>, JsonRejection>,
) -> Result<Json<LimitAnswer>, Refusal> {
    let Json(asked) = asked.map_err(|e| rejected("limit memory", e.status(), &e.body_text()))?;
    blocking("limit memory", move || shared.core.system.limit(asked.limit_bytes).map(Json)).await
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
    let asked = format!("show process {pid}");
    let unknown = Refusal::new(
        Kind::Unknown,
        asked.as_str(),
        "no such process under this instance",
        "see `refit ps` for those there are",
    );
    blocking(&asked, move || {
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
        let asked = "limit memory";
        let request = post(asked, "/memory", &LimitRequest { limit_bytes })?;
        understood(asked, &self.body(self.patience, asked, request)?)
    }

    /// Returns a process of the program that runs under the instance, or `None` if the program has
    /// no such process.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn process(&self, pid: u32) -> Result<Option<ProcessMemory>, Refusal> {
        match self.get(&format!("show process {pid}"), &format!("/processes/{pid}")) {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.kind == Kind::Unknown => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}
