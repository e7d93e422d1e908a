//! How much memory the program under an instance may have, and what it has: what is said and heard of it, and its routes.

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

/// The anonymous memory of a program and of all that it has started, when it was last looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryInfo {
    /// What it may have; none: all there is.
    pub limit_bytes: Option<u64>,
    /// What of it is in memory.
    pub resident_bytes: u64,
    /// Of that, what is served: the kernel resolves the faults of the rest.
    pub served_bytes: u64,
    /// Pages that are out.
    pub store: StoreInfo,
    /// Pages that are lost: the disk did not give them back.
    pub lost: u64,
    /// Whether nothing more can go out, so that more is in memory than may be.
    pub full: bool,
    /// How often the limit was not kept for a while by a fault of refit's own, which `PID.log` beside the socket tells of.
    pub failures: u64,
    /// Programs that are not served although they should be.
    pub refused: Vec<RefusedInfo>,
}

/// Pages that are out, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreInfo {
    /// Pages of zeros, which take no room.
    pub zeros: u64,
    /// Pages that are compressed in memory.
    pub compressed: u64,
    /// The bytes that those take.
    pub compressed_bytes: u64,
    /// Pages in the swap file.
    pub in_file: u64,
}

/// A program that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedInfo {
    /// Its process.
    pub pid: u32,
    /// Why not.
    pub why: String,
}

/// A process and its memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessMemory {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessInfo,
    /// What is served of its memory; empty where the kernel alone resolves its faults.
    pub regions: Vec<RegionInfo>,
    /// Why it is not served, although it should be.
    pub refused: Option<String>,
}

/// A region of a process that is served; what it holds is in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionInfo {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// What the kernel calls it, e.g. `[heap]`; most have no name.
    pub name: String,
    /// Pages that are in memory, or on their way.
    pub resident: u64,
    /// Pages that the store has.
    pub stored: u64,
    /// Pages that threads have waited for.
    pub faults: u64,
    /// Pages that came with them.
    pub around: u64,
    /// Pages that were taken out.
    pub evictions: u64,
    /// Pages that came back soon after that.
    pub returns: u64,
    /// The implementation of the region; `null`: nothing of it has been touched yet.
    pub region: Option<String>,
    /// The implementation of its cache, likewise.
    pub cache: Option<String>,
    /// The kernel alone resolves its faults.
    pub native: bool,
}

/// Asks for another limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    /// What the program and all that it has started may have; `null`: all there is.
    #[serde(deserialize_with = "number_or_null")]
    #[schema(required = true)]
    pub limit_bytes: Option<u64>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitAnswer {
    /// What it might have before.
    pub was_bytes: Option<u64>,
    /// What it comes to now.
    #[serde(flatten)]
    pub memory: MemoryInfo,
}

/// As it is read without this, only that it must be there: a body that was forgotten is no wish for all there is.
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

/// There is nothing whose memory it could be.
pub(crate) fn no_program(asked: &str) -> Refusal {
    let remedy = "start one with `refit run`";
    Refusal::new(Kind::Unknown, asked, "no program runs under this instance", remedy)
}

/// What the memory of the program that runs under the instance comes to.
#[utoipa::path(get, path = "/memory", responses(
    (status = 200, body = MemoryInfo),
    (status = 404, body = Refusal),
))]
pub(crate) async fn memory(State(shared): State<Shared>) -> Result<Json<MemoryInfo>, Refusal> {
    blocking("show memory", move || shared.core.system.memory().map(Json)).await
}

/// Limits it, or lets it have all there is. What is too much goes out bit by bit.
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

/// A process of the program that runs under the instance, and its memory.
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
    /// What the memory of the program that runs under it comes to.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn memory(&self) -> Result<MemoryInfo, Refusal> {
        self.get("show memory", "/memory")
    }

    /// Limits it; `None`: it may have all there is.
    ///
    /// # Errors
    /// It does not answer or refuses; the limit is what it was then.
    pub fn limit(&self, limit_bytes: Option<u64>) -> Result<LimitAnswer, Refusal> {
        let asked = "limit memory";
        let request = post(asked, "/memory", &LimitRequest { limit_bytes })?;
        understood(asked, &self.body(self.patience, asked, request)?)
    }

    /// A process of the program that runs under it; `None`: it is not one of those.
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn process(&self, pid: u32) -> Result<Option<ProcessMemory>, Refusal> {
        match self.get(&format!("show process {pid}"), &format!("/processes/{pid}")) {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.kind == Kind::Unknown => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}
