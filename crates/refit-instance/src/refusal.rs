//! The error type of this crate: what was requested, what prevented it, and what to do.
//!
//! The API sends a refusal as JSON, the client decodes it, and the command prints it as one line.

use std::path::Path;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{asked}: {obstacle}{}{remedy}", if remedy.is_empty() { "" } else { "; " })]
pub struct Refusal {
    /// The kind of the obstacle.
    pub kind: Kind,
    /// The request, e.g. `swap fcm:/a to paged`.
    pub asked: String,
    /// The obstacle, e.g. `no such implementation`.
    pub obstacle: String,
    /// The remedy, e.g. `there are: shared, partitioned`; empty if that is obvious.
    pub remedy: String,
}

/// The kinds of obstacles, for programs. Each corresponds to an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The request is malformed.
    Malformed,
    /// The requester lacks permission.
    Forbidden,
    /// There is no object, mount or other item of that name.
    Unknown,
    /// An item is in use, or not in the required state.
    Busy,
    /// The path does not support the method.
    WrongMethod,
    /// The body is too long.
    TooLarge,
    /// The body is not declared to be JSON.
    WrongType,
    /// The host does not support the request, or it failed.
    Failed,
    /// There is no instance to send the request to.
    Unreachable,
}

impl Refusal {
    /// Creates a refusal. The three parts are fragments without a full stop.
    pub fn new(
        kind: Kind,
        operation: impl Into<String>,
        obstacle: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Refusal { kind, asked: operation.into(), obstacle: obstacle.into(), remedy: remedy.into() }
    }
}

/// Returns the refusal of an instance that is not one of several.
pub(crate) fn alone(operation: &str) -> Refusal {
    let remedy = "start several with `refit boot --instances 2`, and the program with `refit run --on 0 --movable -- COMMAND`";
    Refusal::new(Kind::Unknown, operation, "`refit boot` did not start this instance", remedy)
}

/// Returns the refusal of an instance under which no program runs.
pub(crate) fn no_program(operation: &str) -> Refusal {
    let remedy = "start one with `refit run`";
    Refusal::new(Kind::Unknown, operation, "no program runs under this instance", remedy)
}

/// Returns the refusal of an instance under which a process does not run.
pub(crate) fn no_process(operation: &str) -> Refusal {
    let (obstacle, remedy) =
        ("no such process under this instance", "list processes with `refit ps`");
    Refusal::new(Kind::Unknown, operation, obstacle, remedy)
}

/// Returns the refusal of a system that loads no plugins.
pub(crate) fn loads_nothing(what: &str, path: &Path) -> Refusal {
    Refusal::new(Kind::Failed, format!("{what} {}", path.display()), "nothing is loaded here", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_one_line() {
        let refusal = Refusal::new(Kind::Unknown, "show fcm:/x", "no such object", "see refit ls");
        assert_eq!(refusal.to_string(), "show fcm:/x: no such object; see refit ls");
        let refusal = Refusal::new(Kind::Unknown, "serve /x", "it is not a directory", "");
        assert_eq!(refusal.to_string(), "serve /x: it is not a directory");
    }
}
