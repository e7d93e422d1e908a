//! The mounts of the instance through the control API.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;

use crate::context::Shared;
use crate::refusal::Refusal;
use crate::rejection::{blocking, malformed, rejected};
use crate::state::no_such_mount;
use crate::wire::{CacheAnswer, CacheRequest, FileInfo, Mount, MountRequest};

/// Lists the mounts.
#[utoipa::path(get, path = "/mounts", responses((status = 200, body = [Mount])))]
pub(crate) async fn mounts(State(shared): State<Shared>) -> Result<Json<Vec<Mount>>, Refusal> {
    blocking("list mounts", move || Ok(Json(shared.core.mounts()))).await
}

/// Mounts a directory. The answer is sent when the mount serves requests.
#[utoipa::path(post, path = "/mounts", request_body = MountRequest, responses(
    (status = 201, body = Mount),
    (status = 400, body = Refusal),
    (status = 409, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(crate) async fn mount(
    State(shared): State<Shared>,
    request: Result<Json<MountRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<Mount>), Refusal> {
    let Json(request) = request.map_err(|e| rejected("mount", e.status(), &e.body_text()))?;
    blocking("mount", move || {
        let id = shared.core.mount(&request)?;
        shared.core.record();
        let mount = shared.core.mounted(id).ok_or_else(|| no_such_mount(id))?;
        Ok((StatusCode::CREATED, Json(mount)))
    })
    .await
}

/// The query parameters of an unmount.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UnmountQuery {
    /// Discard the data that cannot be stored.
    #[serde(default)]
    discard: bool,
}

/// Stores all data and unmounts.
#[utoipa::path(delete, path = "/mounts/{id}", params(("id" = u32, Path,), UnmountQuery), responses(
    (status = 204),
    (status = 404, body = Refusal),
    (status = 409, body = Refusal),
))]
pub(crate) async fn unmount(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: Result<Query<UnmountQuery>, QueryRejection>,
) -> Result<StatusCode, Refusal> {
    let id = id.parse().map_err(|_| malformed("unmount", &format!("{id} is not a number")))?;
    let Query(UnmountQuery { discard }) =
        query.map_err(|e| malformed("unmount", &e.body_text()))?;
    let unmount = move || {
        shared.core.unmount(id, discard)?;
        shared.core.record();
        Ok(StatusCode::NO_CONTENT)
    };
    blocking("unmount", unmount).await
}

/// Returns the use of the regular file that programs see under an inode number.
#[utoipa::path(get, path = "/mounts/{id}/files/{inode}",
    params(("id" = u32, Path,), ("inode" = u64, Path,)),
    responses(
        (status = 200, body = FileInfo),
        (status = 400, body = Refusal),
        (status = 404, body = Refusal),
    )
)]
pub(crate) async fn file(
    State(shared): State<Shared>,
    Path((id, inode)): Path<(String, String)>,
) -> Result<Json<FileInfo>, Refusal> {
    let operation = format!("show file {inode} of mount {id}");
    let (Ok(id), Ok(inode)) = (id.parse(), inode.parse()) else {
        return Err(malformed(&operation, "these are not two numbers"));
    };
    blocking(&operation, move || shared.core.file_use(id, inode).map(Json)).await
}

/// Changes whether the kernel caches the matching files as well.
#[utoipa::path(post, path = "/cache", request_body = CacheRequest, responses(
    (status = 200, body = CacheAnswer),
    (status = 400, body = Refusal),
    (status = 409, body = Refusal),
))]
pub(crate) async fn cache(
    State(shared): State<Shared>,
    request: Result<Json<CacheRequest>, JsonRejection>,
) -> Result<Json<CacheAnswer>, Refusal> {
    let Json(request) =
        request.map_err(|e| rejected("change the cache mode", e.status(), &e.body_text()))?;
    blocking("change the cache mode", move || {
        let path = request.glob.strip_prefix("fcm:").unwrap_or(&request.glob);
        Ok(Json(CacheAnswer { files: shared.core.set_cache_mode(path, request.mode)? as u64 }))
    })
    .await
}
