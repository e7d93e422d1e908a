//! The hand-over of an instance to another server: `/handover`.
//!
//! The request that hands over has no answer if it succeeds, since the process that would send it
//! ends. The client asks the server that continues instead, under the same socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use refit_sys::holder::handover::{LastHandover, Phase};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use utoipa::ToSchema;

use crate::client::{Client, WORK_TIMEOUT, post};
use crate::context::Shared;
use crate::held::HeldServer;
use crate::refusal::{Kind, Refusal};
use crate::rejection::{blocking, rejected};
use crate::state::Core;

/// The time that a new server has by default.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum of that time.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The interval at which a client asks whether a hand-over has ended.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// A request to hand over.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoverRequest {
    /// The program that takes over, which is a build of refit: an absolute path.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub program: PathBuf,
    /// The time that the new server has until it is ready, and once more until it serves, in
    /// milliseconds; by default 5 s.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// The outcome of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HandoverState {
    /// The hand-over is being made.
    Active,
    /// The new server serves.
    Committed,
    /// The server before serves.
    Failed,
}

/// A hand-over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HandoverInfo {
    /// Its number, from 1.
    pub number: u64,
    /// The outcome.
    pub state: HandoverState,
    /// The new program.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub program: PathBuf,
    /// The time from the end of the server before until the new one served, in microseconds;
    /// `null` if it does not serve.
    pub paused_us: Option<u64>,
    /// The part of that time in which the server before ended, in microseconds.
    pub ending_us: Option<u64>,
    /// Why it failed.
    pub reason: Option<String>,
}

/// The server of an instance, and the last hand-over to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HandoverStatus {
    /// The process that serves.
    pub server: u32,
    /// The last hand-over; `null` if there has been none.
    pub last: Option<HandoverInfo>,
}

impl From<LastHandover> for HandoverInfo {
    fn from(last: LastHandover) -> Self {
        let LastHandover { number, phase, program, paused, ending, reason } = last;
        let state = match phase {
            Phase::Done => HandoverState::Committed,
            Phase::Failed => HandoverState::Failed,
            _ => HandoverState::Active,
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (paused_us, ending_us) = (paused.map(micros), ending.map(micros));
        Self { number, state, program, paused_us, ending_us, reason }
    }
}

/// Returns the process that serves, and the last hand-over.
#[utoipa::path(get, path = "/handover", responses((status = 200, body = HandoverStatus)))]
pub(crate) async fn handed_over(State(shared): State<Shared>) -> Json<HandoverStatus> {
    let held = shared.core.held.as_ref();
    let last = held.and_then(|held| held.handover.last()).map(HandoverInfo::from);
    Json(HandoverStatus { server: std::process::id(), last })
}

/// Hands the instance over to another server, which may be another build of refit. The connection
/// closes without an answer if that succeeds; `GET /handover` tells more.
#[utoipa::path(post, path = "/handover", request_body = HandoverRequest, responses(
    (status = 204, description = "Not sent: the server that would send it has ended."),
    (status = 400, body = Refusal),
    (status = 409, body = Refusal),
    (status = 500, body = Refusal),
))]
pub(crate) async fn hand_over(
    State(shared): State<Shared>,
    request: Result<Json<HandoverRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(request) = request.map_err(|e| rejected("hand over", e.status(), &e.body_text()))?;
    blocking("hand over", move || Err(shared.core.hand_over(&request))).await
}

impl Core {
    /// Hands over to another server. Returns only why it could not.
    fn hand_over(&self, request: &HandoverRequest) -> Refusal {
        let operation = format!("hand over to {}", request.program.display());
        let refused = |kind, obstacle: String, remedy: &str| {
            Refusal::new(kind, operation.clone(), obstacle, remedy)
        };
        if !request.program.is_absolute() {
            return refused(Kind::Malformed, "it is not an absolute path".into(), "give one");
        }
        let Some(held) = &self.held else {
            let obstacle = "the instance has no holder that would start it";
            return refused(Kind::Busy, obstacle.into(), "start it without --no-hold");
        };
        let Some(_only) = held.begin_handover() else {
            return refused(Kind::Busy, "a hand-over is being made".into(), "wait for it to end");
        };
        if let Some((obstacle, remedy)) = self.cannot_hand_over() {
            return refused(Kind::Busy, obstacle, remedy);
        }
        let timeout = request.timeout_ms.map_or(TIMEOUT, Duration::from_millis).min(MAX_TIMEOUT);
        let reason = self.switch(held, request, timeout);
        warn!(program = ?request.program, reason, "could not hand over");
        self.record();
        refused(
            Kind::Failed,
            reason,
            "the server before continues; correct the cause and try again",
        )
    }

    /// Returns why the instance cannot be handed over, and what to do.
    fn cannot_hand_over(&self) -> Option<(String, &'static str)> {
        if !self.system.processes().is_empty() {
            let obstacle = "programs run under the instance, which would end with its server";
            return Some((obstacle.into(), "end them or move them to another instance first"));
        }
        let mounts = self.mounts();
        if let Some(mount) = mounts.iter().find(|mount| mount.leaving) {
            let obstacle = format!("{} is being unmounted", mount.mountpoint.display());
            return Some((obstacle, "wait for it to end"));
        }
        (self.images().len() < mounts.len()).then(|| {
            let obstacle = "the kernel cannot send requests again";
            (obstacle.into(), "use Linux 6.9 or newer")
        })
    }

    /// Lets a server that runs the program take over. Returns only why it did not.
    fn switch(&self, held: &HeldServer, request: &HandoverRequest, timeout: Duration) -> String {
        info!(program = ?request.program, ?timeout, "hands over");
        self.record_all();
        let number = match held.handover.request(&request.program, timeout) {
            Ok(number) => number,
            Err(error) => return error.to_string(),
        };
        // Pages that are stored now need not be taken over while all requests wait.
        self.write_back();
        self.record_all();
        let stays = self.unless_leaving(|| held.handover.switch(number, timeout));
        if stays.is_none() {
            held.handover.cancel(number, "it is being unmounted");
        }
        held.handover.last().and_then(|last| last.reason).unwrap_or_default()
    }
}

impl Client {
    /// Returns the process that serves the instance, and the last hand-over.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn handover(&self) -> Result<HandoverStatus, Refusal> {
        self.get("ask about the hand-over", "/handover")
    }

    /// Hands the instance over to another server and waits until that serves.
    ///
    /// # Errors
    ///
    /// Returns why it was not handed over. The server before continues.
    pub fn hand_over(&self, request: &HandoverRequest) -> Result<HandoverStatus, Refusal> {
        let operation = format!("hand over to {}", request.program.display());
        let before = self.handover()?.last.map_or(0, |last| last.number);
        let posted = post(&operation, "/handover", request)?;
        let Err(refusal) = self.body(WORK_TIMEOUT, &operation, posted) else {
            return self.handover();
        };
        if refusal.kind != Kind::Unreachable {
            return Err(refusal);
        }
        let began = Instant::now();
        loop {
            // Until the next server listens, the kernel keeps the connection for it.
            let status = self.handover()?;
            let last = status.last.as_ref().filter(|last| last.number > before);
            let obstacle = match last {
                Some(last) if last.state == HandoverState::Committed => return Ok(status),
                Some(HandoverInfo { state: HandoverState::Failed, reason, .. }) => reason.clone(),
                // It had not begun when the server that was asked ended.
                None => return Err(refusal),
                Some(_) if began.elapsed() > MAX_TIMEOUT => None,
                Some(_) => {
                    // Polled: the server that would notify the client has ended.
                    std::thread::sleep(ASK_INTERVAL);
                    continue;
                }
            };
            let obstacle = obstacle.unwrap_or(refusal.obstacle);
            let remedy = "the server before continues; correct the cause and try again";
            return Err(Refusal::new(Kind::Failed, operation, obstacle, remedy));
        }
    }
}
