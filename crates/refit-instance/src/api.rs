//! The control API: its routes, their checks, and the OpenAPI document.
//!
//! Every refusal is a [`Refusal`] as JSON with the HTTP status of its kind. Request bodies are
//! small; a body longer than [`BODY_BYTES`] is refused.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use refit_change::{Follow, Report};
use tokio::sync::mpsc::Sender;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::activity;
use crate::adapt;
use crate::context::{Peer, Shared};
use crate::debug;
use crate::document;
use crate::glob::Glob;
use crate::handover;
use crate::kernel;
use crate::lending;
use crate::memory;
use crate::metrics;
use crate::mounts;
use crate::moves;
use crate::plugins;
use crate::recording;
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, malformed, rejected, unknown_route, wrong_method};
use crate::state::Core;
use crate::streams;
use crate::swaps::{self, Work};
use crate::system::WrapAct;
use crate::upgrades::ActiveUpgrade;
use crate::wire::{
    Adapt, ChangesQuery, ClassInfo, EndRecordQuery, Health, JournalLine, KnownWrapper,
    OBJECTS_HEADER, ObjectInfo, ObjectQuery, Pause, ProcessInfo, RecordRequest, Recorded, Swap,
    Unwrap, Upgrade, UpgradeLine, Wrap,
};
use crate::wraps;

/// The maximum length of a body, in bytes.
pub(crate) const BODY_BYTES: usize = 64 * 1024;

/// The interval at which a follower of the journal checks whether its client is still connected.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

#[derive(OpenApi)]
#[openapi(info(
    title = "refit control API",
    description = "Objects, swaps, mounts and the journal of one refit instance. \
                   HTTP over a Unix socket; streams are NDJSON, one JSON object per line."
))]
struct Document;

type Payload<T> = Result<Json<T>, JsonRejection>;
type Filter<T> = Result<Query<T>, QueryRejection>;

/// Returns the router with all routes.
pub(crate) fn router(shared: Shared) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(health))
        .routes(routes!(metrics))
        .routes(routes!(debug::events))
        .routes(routes!(recorded, record, end_record))
        .routes(routes!(objects))
        .routes(routes!(object))
        .routes(routes!(activity::activity))
        .routes(routes!(swap))
        .routes(routes!(classes))
        .routes(routes!(upgrade))
        .routes(routes!(pause))
        .routes(routes!(adapt))
        .routes(routes!(wrap))
        .routes(routes!(unwrap))
        .routes(routes!(wrappers))
        .routes(routes!(plugins::plugins, plugins::load))
        .routes(routes!(plugins::unload))
        .routes(routes!(changes))
        .routes(routes!(processes))
        .routes(routes!(memory::process))
        .routes(routes!(memory::memory, memory::limit))
        .routes(routes!(kernel::kernel))
        .routes(routes!(kernel::programs))
        .routes(routes!(kernel::moves))
        .routes(routes!(moves::counts))
        .routes(routes!(lending::lend))
        .routes(routes!(mounts::mounts, mounts::mount))
        .routes(routes!(mounts::unmount))
        .routes(routes!(mounts::file))
        .routes(routes!(mounts::cache))
        .routes(routes!(handover::handed_over, handover::hand_over))
        .split_for_parts();
    let document = Arc::new(document::complete(&document));
    let served = Arc::clone(&document);
    router
        .route("/openapi.json", axum::routing::get(move || async move { Json((*served).clone()) }))
        .fallback(unknown_route)
        .method_not_allowed_fallback(move |method, path, uri| {
            let document = Arc::clone(&document);
            async move { wrong_method(&document, &method, path, &uri) }
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(shared)
}

/// Returns the health of the instance.
#[utoipa::path(get, path = "/health", responses((status = 200, body = Health)))]
async fn health(State(shared): State<Shared>) -> Json<Health> {
    Json(shared.core.health())
}

/// Returns the metrics of the instance as OpenMetrics text.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "OpenMetrics text", body = String,
     content_type = "application/openmetrics-text"),
))]
async fn metrics(State(shared): State<Shared>) -> Result<Response, Refusal> {
    let text = blocking("read metrics", move || {
        // Writing to a string fails only for a value that cannot be formatted, and all of these
        // can.
        metrics::text(&shared.core).map_err(|e| malformed("read metrics", &e.to_string()))
    })
    .await?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// Joins the session of a recorder. Instruments write to it until the recording ends or the
/// instance leaves it.
#[utoipa::path(post, path = "/record", request_body = RecordRequest, responses(
    (status = 204),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 409, body = Refusal),
    (status = 500, body = Refusal),
))]
async fn record(
    State(shared): State<Shared>,
    request: Payload<RecordRequest>,
) -> Result<StatusCode, Refusal> {
    let Json(request) = request.map_err(|e| rejected("record", e.status(), &e.body_text()))?;
    blocking("record", move || {
        recording::attach(&request)?;
        shared.core.record();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Returns the sessions in which the instance takes part.
#[utoipa::path(get, path = "/record", responses((status = 200, body = Recorded)))]
async fn recorded() -> Json<Recorded> {
    let sessions = recording::attached();
    Json(Recorded { session: sessions.first().cloned(), sessions })
}

/// Leaves a session, or all of them.
#[utoipa::path(delete, path = "/record", params(EndRecordQuery), responses(
    (status = 204),
    (status = 400, body = Refusal),
))]
async fn end_record(query: Filter<EndRecordQuery>) -> Result<StatusCode, Refusal> {
    let Query(EndRecordQuery { session }) =
        query.map_err(|e| malformed("end the recording", &e.body_text()))?;
    let end = move || {
        recording::detach(session.as_deref().map(crate::path_text::path).as_deref());
        Ok(StatusCode::NO_CONTENT)
    };
    blocking("end the recording", end).await
}

/// Lists the matching objects, sorted by name.
#[utoipa::path(get, path = "/objects", params(ObjectQuery), responses(
    (status = 200, body = [ObjectInfo]),
    (status = 400, body = Refusal),
))]
async fn objects(
    State(shared): State<Shared>,
    query: Filter<ObjectQuery>,
) -> Result<Json<Vec<ObjectInfo>>, Refusal> {
    let Query(query) = query.map_err(|e| rejected("list objects", e.status(), &e.body_text()))?;
    let glob = Glob::new(query.glob.as_deref().unwrap_or("*")).of_mount(query.mount.as_deref());
    blocking("list objects", move || Ok(Json(shared.core.objects(&glob)))).await
}

/// Returns one object.
#[utoipa::path(get, path = "/objects/{id}", params(("id" = u64, Path,)), responses(
    (status = 200, body = ObjectInfo),
    (status = 404, body = Refusal),
))]
async fn object(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<ObjectInfo>, Refusal> {
    let found = id.parse().ok().and_then(|id| shared.core.system.object(id));
    found.map(Json).ok_or_else(|| {
        Refusal::new(
            Kind::Unknown,
            format!("show object {id}"),
            "no such object",
            "list objects with `refit ls`",
        )
    })
}

/// Swaps objects one after the other, or `together` as one change, and sends the report of each
/// change when it ends. If the client disconnects, the change in progress is rolled back and the
/// remaining objects are not swapped. Objects that end before their turn are omitted. With `repeat`
/// the swaps continue, round after round, until the time is over. Empty lines only show that the
/// instance is alive.
#[utoipa::path(post, path = "/swap", request_body = Swap, responses(
    (status = 200, description = "NDJSON: a report per swap", body = Report,
     content_type = "application/x-ndjson",
     headers(("refit-objects" = u64, description = "how many reports may come; missing with `repeat`"))),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
))]
async fn swap(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Payload<Swap>,
) -> Result<Response, Refusal> {
    let Json(request) = request.map_err(|e| rejected("swap", e.status(), &e.body_text()))?;
    let core = Arc::clone(&shared.core);
    let (request, targets) = blocking("swap", move || {
        let targets = swaps::targets(&core, &request)?;
        Ok((request, targets))
    })
    .await?;
    let (sender, disconnected, mut response) = streams::lines::<Report>();
    if request.repeat.is_none() {
        let changes = if request.together { 1 } else { targets.len() };
        response.headers_mut().insert(OBJECTS_HEADER, HeaderValue::from(changes));
    }
    let work = Work { shared, request, owner: peer.owner(), disconnected, sender };
    streams::begin("swap", move || work.run(targets))?;
    Ok(response)
}

/// Lists the classes of objects, with an entry for each of their factories.
#[utoipa::path(get, path = "/classes", responses((status = 200, body = [ClassInfo])))]
async fn classes(State(shared): State<Shared>) -> Result<Json<Vec<ClassInfo>>, Refusal> {
    blocking("list classes", move || Ok(Json(shared.core.system.classes()))).await
}

/// Upgrades a class: either all of its objects are swapped and new ones use the new implementation,
/// or nothing changes. If the client disconnects, the upgrade is rolled back. Empty lines only show
/// that the instance is alive.
#[utoipa::path(post, path = "/upgrade", request_body = Upgrade, responses(
    (status = 200, description = "NDJSON: how far it is, and in the end the report", body = UpgradeLine,
     content_type = "application/x-ndjson"),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
    (status = 409, body = Refusal),
))]
async fn upgrade(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Payload<Upgrade>,
) -> Result<Response, Refusal> {
    let Json(request) = request.map_err(|e| rejected("upgrade", e.status(), &e.body_text()))?;
    let (sender, disconnected, response) = streams::lines::<UpgradeLine>();
    let upgrade = ActiveUpgrade::begin(shared, request, peer.owner(), disconnected)?;
    streams::begin("upgrade", move || upgrade.run(&sender))?;
    Ok(response)
}

/// Pauses or resumes the upgrade of a class.
#[utoipa::path(post, path = "/pause", request_body = Pause, responses(
    (status = 204),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
))]
async fn pause(
    State(shared): State<Shared>,
    request: Payload<Pause>,
) -> Result<StatusCode, Refusal> {
    let Json(Pause { class, paused }) =
        request.map_err(|e| rejected("pause", e.status(), &e.body_text()))?;
    shared.core.upgrades.pause(&class, paused).map(|()| StatusCode::NO_CONTENT)
}

/// Swaps caches according to their use until the client disconnects or the time is over: caches
/// with sequential accesses to `sequential`, and others back. Sends the report of each change when
/// it ends; at the end everything is restored. Empty lines only show that the instance is alive.
#[utoipa::path(post, path = "/adapt", request_body = Adapt, responses(
    (status = 200, description = "NDJSON: a report per change", body = Report,
     content_type = "application/x-ndjson"),
    (status = 400, body = Refusal),
))]
async fn adapt(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Payload<Adapt>,
) -> Result<Response, Refusal> {
    let Json(request) = request.map_err(|e| rejected("adapt", e.status(), &e.body_text()))?;
    adapt::check(&request)?;
    let (sender, disconnected, response) = streams::lines::<Report>();
    let work = adapt::Work { shared, request, owner: peer.owner(), disconnected, sender };
    streams::begin("adapt", move || work.run())?;
    Ok(response)
}

/// Wraps objects one after the other and sends the report of each when it ends. Objects that the
/// wrapper does not fit are omitted unless there are no others. Empty lines only show that the
/// instance is alive.
#[utoipa::path(post, path = "/wrap", request_body = Wrap, responses(
    (status = 200, description = "NDJSON: a report per object", body = Report,
     content_type = "application/x-ndjson",
     headers(("refit-objects" = u64, description = "how many reports may come"))),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
))]
async fn wrap(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Payload<Wrap>,
) -> Result<Response, Refusal> {
    let Json(request) = request.map_err(|e| rejected("wrap", e.status(), &e.body_text()))?;
    change_wrappers(shared, peer, "wrap", move |core| wraps::to_wrap(core, request)).await
}

/// Removes wrappers from objects one after the other and sends the report of each when it ends.
/// Objects without such a wrapper are omitted unless there are no others.
#[utoipa::path(post, path = "/unwrap", request_body = Unwrap, responses(
    (status = 200, description = "NDJSON: a report per object", body = Report,
     content_type = "application/x-ndjson",
     headers(("refit-objects" = u64, description = "how many reports may come"))),
    (status = 400, body = Refusal),
    (status = 404, body = Refusal),
))]
async fn unwrap(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Payload<Unwrap>,
) -> Result<Response, Refusal> {
    let Json(request) = request.map_err(|e| rejected("unwrap", e.status(), &e.body_text()))?;
    change_wrappers(shared, peer, "unwrap", move |core| wraps::to_unwrap(core, request)).await
}

async fn change_wrappers(
    shared: Shared,
    peer: Peer,
    what: &str,
    choose: impl FnOnce(&Core) -> Result<(WrapAct, Vec<u64>), Refusal> + Send + 'static,
) -> Result<Response, Refusal> {
    let core = Arc::clone(&shared.core);
    let (act, objects) = blocking(what, move || choose(&core)).await?;
    let (sender, disconnected, mut response) = streams::lines::<Report>();
    response.headers_mut().insert(OBJECTS_HEADER, HeaderValue::from(objects.len()));
    let work = wraps::Work { shared, act, owner: peer.owner(), disconnected, sender };
    streams::begin(what, move || work.run(objects))?;
    Ok(response)
}

/// Lists the wrappers that can be attached.
#[utoipa::path(get, path = "/wrappers", responses((status = 200, body = [KnownWrapper])))]
async fn wrappers() -> Json<Vec<KnownWrapper>> {
    let text = |text: &str| text.to_owned();
    let known = refit_objects::wrappers::known().iter().map(|known| KnownWrapper {
        name: text(known.name),
        about: text(known.about),
        options: known.options.iter().map(|(key, about)| (text(key), text(about))).collect(),
    });
    Json(known.collect())
}

/// Returns the journal, which contains the changes that have ended, oldest first.
#[utoipa::path(get, path = "/changes", params(ChangesQuery), responses(
    (status = 200, description = "NDJSON: a line per change", body = JournalLine,
     content_type = "application/x-ndjson"),
    (status = 400, body = Refusal),
))]
async fn changes(
    State(shared): State<Shared>,
    query: Filter<ChangesQuery>,
) -> Result<Response, Refusal> {
    let Query(query) =
        query.map_err(|e| rejected("read the journal", e.status(), &e.body_text()))?;
    let (sender, _gone, response) = streams::lines::<JournalLine>();
    streams::begin("read the journal", move || send_changes(&shared, &query, &sender))?;
    Ok(response)
}

fn send_changes(shared: &Shared, query: &ChangesQuery, sender: &Sender<JournalLine>) {
    let from = query.from.unwrap_or(0);
    let mut entries = shared.core.journal.entries();
    let mut next = entries.last().map_or(0, |e| e.seq + 1).max(from);
    entries.retain(|e| e.seq >= from);
    let skip = query.last.map_or(0, |last| entries.len().saturating_sub(last));
    for entry in entries.drain(skip..) {
        let line = JournalLine::Entry { seq: entry.seq, report: Box::new((*entry.report).clone()) };
        if sender.blocking_send(line).is_err() {
            return;
        }
    }
    while query.follow && !sender.is_closed() && !*shared.ending.borrow() {
        let line = match shared.core.journal.follow(next, FOLLOW_INTERVAL) {
            Follow::Quiet => continue,
            Follow::Lost(lost) => {
                next += lost;
                JournalLine::Lost { lost }
            }
            Follow::Next(entry) => {
                next = entry.seq + 1;
                JournalLine::Entry { seq: entry.seq, report: Box::new((*entry.report).clone()) }
            }
        };
        if sender.blocking_send(line).is_err() {
            return;
        }
    }
}

/// Lists the processes of the program that runs under the instance, sorted by number.
#[utoipa::path(get, path = "/processes", responses((status = 200, body = [ProcessInfo])))]
async fn processes(State(shared): State<Shared>) -> Result<Json<Vec<ProcessInfo>>, Refusal> {
    blocking("list processes", move || Ok(Json(shared.core.system.processes()))).await
}
