//! The OpenAPI document, completed by the parts that hold for every route.
//!
//! Each handler describes its own answers. Any route can refuse another user, a body that is too
//! long or a malformed request, and can fail by an error in refit. These answers are added here
//! once for all routes.

use axum::http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// The methods under a path of the document.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// Returns the document as it is served.
pub(crate) fn complete(document: &OpenApi) -> Value {
    // A document is plain data, which can always be serialized.
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

/// Gives each inline alternative that is composed of several parts a schema of its own, because
/// many generators of clients cannot read it in place.
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

/// Returns the meaning of an HTTP status in this API.
fn meaning(status: &str) -> &'static str {
    match status {
        "200" => "success, with the answer",
        "201" => "created, with the result",
        "204" => "success, without an answer",
        "400" => "the request is malformed",
        "403" => "the instance belongs to another user",
        "404" => "there is no such item",
        "409" => "an item is in use, or not in the required state",
        "413" => "the body is too long",
        "415" => "the body is not declared to be JSON",
        "500" => "the host does not support the request, or it failed",
        _ => "refused",
    }
}

/// Returns the value of `Allow` for a path of the document, as its routes spell it.
pub(crate) fn allowed(document: &Value, path: &str) -> Option<HeaderValue> {
    let methods = document.get("paths")?.get(path)?.as_object()?.keys();
    let known: Vec<String> =
        methods.filter(|m| METHODS.contains(&m.as_str())).map(|m| m.to_uppercase()).collect();
    HeaderValue::from_str(&known.join(", ")).ok()
}
