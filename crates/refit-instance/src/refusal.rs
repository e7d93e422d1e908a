//! The one error of this crate: what was asked, what stood in the way, what to do.
//!
//! A refusal travels: the API sends it as JSON, the client reads it back, the command prints it as one line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{asked}: {obstacle}{}{remedy}", if remedy.is_empty() { "" } else { "; " })]
pub struct Refusal {
    /// What sort of obstacle.
    pub kind: Kind,
    /// What was asked, e.g. `swap fcm:/a to paged`.
    pub asked: String,
    /// What stood in the way, e.g. `no such implementation`.
    pub obstacle: String,
    /// What to do, e.g. `there are: shared, partitioned`; empty if that goes without saying.
    pub remedy: String,
}

/// Sorts of obstacles, for programs; each is an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The request makes no sense.
    Malformed,
    /// The one who asks may not.
    Forbidden,
    /// There is nothing of that name.
    Unknown,
    /// Something is in use, or in another state than is needed.
    Busy,
    /// The path knows other methods.
    WrongMethod,
    /// What was sent is too long.
    TooLarge,
    /// What was sent is not declared to be JSON.
    WrongType,
    /// The host cannot do it, or failed at it.
    Failed,
    /// There is no instance that could do it.
    Unreachable,
}

impl Refusal {
    /// A refusal; the three parts are fragments without a full stop.
    pub fn new(
        kind: Kind,
        asked: impl Into<String>,
        obstacle: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Refusal { kind, asked: asked.into(), obstacle: obstacle.into(), remedy: remedy.into() }
    }
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
