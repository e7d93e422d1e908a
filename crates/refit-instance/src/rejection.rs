//! Requests that are refused before anything is done because they cannot be read or name an unknown
//! route, and the HTTP form of refusals.

use axum::Json;
use axum::extract::MatchedPath;
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::document;
use crate::refusal::{Kind, Refusal};

/// Answers a request for a path that does not exist.
pub(crate) async fn unknown_route(method: Method, uri: Uri) -> Refusal {
    Refusal::new(
        Kind::Unknown,
        format!("{method} {}", uri.path()),
        "there is no such path",
        "see /openapi.json for the paths",
    )
}

/// Answers a request with a method that the path does not support, and lists those that it
/// supports.
pub(crate) fn wrong_method(
    document: &serde_json::Value,
    method: &Method,
    path: Option<MatchedPath>,
    uri: &Uri,
) -> Response {
    let path = path.as_ref().map_or(uri.path(), MatchedPath::as_str);
    let allowed = document::allowed(document, path).unwrap_or(HeaderValue::from_static("GET"));
    let operation = format!("{method} {}", uri.path());
    let remedy = format!("it supports {}", allowed.to_str().unwrap_or_default());
    let refusal =
        Refusal::new(Kind::WrongMethod, operation, "it does not support this method", remedy);
    let mut response = refusal.into_response();
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// Runs work that is slow or takes locks on another thread than the one that serves all
/// connections.
pub(crate) async fn blocking<T: Send + 'static>(
    operation: &str,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Refusal::new(
            Kind::Failed,
            operation,
            "internal error of refit (a panic, see its standard error)",
            "report it; the instance continues",
        ))
    })
}

/// Refuses a request whose body or query could not be extracted, with the status from the
/// extractor.
pub(crate) fn rejected(operation: &str, status: StatusCode, what: &str) -> Refusal {
    let kind = match status {
        StatusCode::PAYLOAD_TOO_LARGE => Kind::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Kind::WrongType,
        _ => Kind::Malformed,
    };
    Refusal { kind, ..malformed(operation, what) }
}

/// Refuses a malformed request.
pub(crate) fn malformed(operation: &str, what: &str) -> Refusal {
    Refusal::new(Kind::Malformed, operation, what.to_owned(), "see /openapi.json for the format")
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind {
            Kind::Malformed => StatusCode::BAD_REQUEST,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::Unknown => StatusCode::NOT_FOUND,
            Kind::Busy => StatusCode::CONFLICT,
            Kind::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Kind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(self)).into_response()
    }
}
