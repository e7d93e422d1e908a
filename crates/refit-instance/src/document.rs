//! The OpenAPI document, completed by what holds for every route.
//!
//! Handlers describe what is theirs. That the wrong user is refused, that a body can be too long, that a request can be
//! malformed and that refit can make a mistake is the same everywhere, so it is added here, once.

use axum::http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// Methods under a path of the document.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// The document as it is served.
pub(crate) fn complete(document: &OpenApi) -> Value {
    // A document is plain data, which always serialises.
    let mut document = serde_json::to_value(document).unwrap_or_default();
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for path in paths.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        for (_, operation) in
            path.iter_mut().filter(|(method, _)| METHODS.contains(&method.as_str()))
        {
            complete_operation(operation);
        }
    }
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    schemas.into_iter().for_each(name_alternatives);
    document
}

/// Gives alternatives that are put together of parts a schema of their own: many generators of clients cannot read them in place.
fn name_alternatives(schemas: &mut Map<String, Value>) {
    let mut named = Map::new();
    for (name, schema) in schemas.iter_mut() {
        let alternatives = schema.get_mut("oneOf").and_then(Value::as_array_mut);
        for (number, alternative) in (1..).zip(alternatives.into_iter().flatten()) {
            if alternative.get("allOf").is_some() {
                let own = format!("{name}{number}");
                let reference = json!({ "$ref": format!("#/components/schemas/{own}") });
                named.insert(own, std::mem::replace(alternative, reference));
            }
        }
    }
    schemas.extend(named);
}

fn complete_operation(operation: &mut Value) {
    let asks = |what: &str| operation.get(what).is_some_and(|v| !v.is_null());
    let mut common = vec![StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR];
    if asks("requestBody") {
        common.extend([StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNSUPPORTED_MEDIA_TYPE]);
    }
    if asks("requestBody") || asks("parameters") {
        common.push(StatusCode::BAD_REQUEST);
    }
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else {
        return;
    };
    for status in common {
        responses.entry(status.as_str()).or_insert_with(|| {
            json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Refusal" } } } })
        });
    }
    for (status, response) in responses {
        let known = response.get("description").and_then(Value::as_str).unwrap_or_default();
        if known.is_empty() {
            response["description"] = meaning(status).into();
        }
    }
}

/// What a status means here.
fn meaning(status: &str) -> &'static str {
    match status {
        "200" => "done; the answer",
        "201" => "made; what was made",
        "204" => "done",
        "400" => "the request makes no sense",
        "403" => "the instance belongs to another user",
        "404" => "there is nothing of that name",
        "409" => "something is in use, or in another state",
        "413" => "the body is too long",
        "415" => "the body is not declared to be JSON",
        "500" => "the host cannot do it, or failed at it",
        _ => "refused",
    }
}

/// The value of `Allow` for a path of the document, as its routes spell it.
pub(crate) fn allowed(document: &Value, path: &str) -> Option<HeaderValue> {
    let methods = document.get("paths")?.get(path)?.as_object()?.keys();
    let known: Vec<String> =
        methods.filter(|m| METHODS.contains(&m.as_str())).map(|m| m.to_uppercase()).collect();
    HeaderValue::from_str(&known.join(", ")).ok()
}
