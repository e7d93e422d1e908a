//! The route of the statistics of the moves of a program.

use axum::Json;
use axum::extract::{Path, State};

use crate::client::Client;
use crate::context::Shared;
use crate::refusal::{Kind, Refusal};
use crate::rejection::blocking;
use crate::wire::MovesInfo;

/// Returns the statistics of the moves of a program that began at the instance and has moved. The
/// program may have ended recently.
#[utoipa::path(get, path = "/moves/{pid}", params(("pid" = u32, Path,)), responses(
    (status = 200, body = MovesInfo),
    (status = 404, body = Refusal),
))]
pub(crate) async fn counts(
    State(shared): State<Shared>,
    Path(pid): Path<String>,
) -> Result<Json<MovesInfo>, Refusal> {
    let operation = format!("show the moves of {pid}");
    let obstacle = "no program that began at this instance and has moved has this process";
    let unknown = Refusal::new(Kind::Unknown, &*operation, obstacle, "see `refit ps`");
    blocking(&operation, move || {
        let found = pid.parse().ok().and_then(|pid| shared.core.system.moves(pid));
        found.map(Json).ok_or(unknown)
    })
    .await
}

impl Client {
    /// Returns the statistics of the moves of a program that began at the instance, or `None` if it
    /// has not moved or did not begin there.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn moves(&self, pid: u32) -> Result<Option<MovesInfo>, Refusal> {
        self.find(&format!("show the moves of {pid}"), &format!("/moves/{pid}"))
    }
}
