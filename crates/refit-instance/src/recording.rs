//! The recording of an instance, which joins the sessions of recorders and writes events of its
//! changes to them.
//!
//! Other parts of the instance have instruments of their own, which find the sessions by
//! themselves.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use refit_change::watch::{self, Step};
use refit_change::{ChangeId, Phase};
use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::{self, Event};
use refit_instruments::session::{Session, SessionError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::refusal::{Kind, Refusal};

const fn of_change(name: &'static str, role: Role) -> Event {
    Event::new("system", name).role(role).fields(&[("change", FieldKind::U64)])
}

static CHANGE: Event = of_change("change", Role::Change);
static WAIT: Event = of_change("change::wait", Role::Wait);
static PHASES: [Event; 6] = [
    of_change("change::prepare", Role::Change),
    of_change("change::install", Role::Change),
    of_change("change::quiesce", Role::Change),
    of_change("change::transfer", Role::Change),
    of_change("change::commit", Role::Change),
    of_change("change::roll back", Role::Change),
];

/// Runs a change within its trace event.
pub(crate) fn changing<T>(change: ChangeId, work: impl FnOnce() -> T) -> T {
    let _span = CHANGE.span([change, 0]);
    watch::during(change, work)
}

/// Makes changes write events of their phases.
pub(crate) fn listen() {
    // If another instance in this process has registered a listener already, that one suffices.
    let _ = watch::listen(on_step);
}

fn on_step(step: Step) {
    let event = |phase: Phase| &PHASES[phase as usize];
    match step {
        Step::Phase { left, entered } => {
            let payload = [watch::current(), 0];
            if let Some(phase) = left {
                event(phase).end(payload);
            }
            if let Some(phase) = entered {
                event(phase).begin(payload);
            }
        }
        Step::Waits(change) => WAIT.begin([change, 0]),
        Step::GoesOn(change) => WAIT.end([change, 0]),
    }
}

/// A request to take part in a recording.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordRequest {
    /// The path of the recorder's session, e.g. `/proc/4711/fd/5`.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub session: PathBuf,
}

/// The recordings in which an instance takes part.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Recorded {
    /// The path of the first recorder's session; `null` if the instance is not recorded.
    #[schema(value_type = Option<String>)]
    #[serde(with = "crate::path_text::optional")]
    pub session: Option<PathBuf>,
    /// The paths of all sessions, of which `session` is the first.
    #[schema(value_type = Vec<String>)]
    #[serde(default, with = "crate::path_text::several")]
    pub sessions: Vec<PathBuf>,
}

/// The recording to leave.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EndRecordQuery {
    /// The path with which its session was joined; without it, all sessions are left.
    pub session: Option<String>,
}

/// The sessions in which the instance takes part, with the path that each was requested with.
///
/// The lock is held while an instrument is attached or detached, so that the list agrees with the
/// instruments.
static ATTACHED: Mutex<Vec<(PathBuf, &'static Session)>> = Mutex::new(Vec::new());
/// The maximum number of recorders per instance, since the memory of each session is locked.
const MAX_SESSIONS: usize = 8;

fn sessions() -> MutexGuard<'static, Vec<(PathBuf, &'static Session)>> {
    ATTACHED.lock()
}

/// Joins a session in addition to those of other recorders.
///
/// # Errors
///
/// There is no session at the path, or the instance takes part in it or in too many others already.
pub(crate) fn attach(request: &RecordRequest) -> Result<(), Refusal> {
    let what = || format!("record into {}", request.session.display());
    let mut all = sessions();
    // Leaves the sessions whose recorder was killed.
    leave(&mut all, |path, session| session.ended() || !path.exists());
    let busy = |obstacle: String| {
        Refusal::new(Kind::Busy, what(), obstacle, "end another recording first")
    };
    if all.iter().any(|(path, _)| *path == request.session) {
        return Err(busy("the instance already records into it".to_owned()));
    }
    if all.len() >= MAX_SESSIONS {
        return Err(busy(format!(
            "{MAX_SESSIONS} other recordings of the instance are in progress"
        )));
    }
    let session = Session::open(&request.session).map_err(|error| {
        let remedy = "name the session of a running recorder, as `refit record` does";
        let kind = match &error {
            SessionError::Map { source, .. } if source.kind() == ErrorKind::NotFound => {
                Kind::Unknown
            }
            SessionError::Map { source, .. } if source.kind() == ErrorKind::OutOfMemory => {
                Kind::Failed
            }
            _ => Kind::Malformed,
        };
        Refusal::new(kind, what(), error.to_string(), remedy)
    })?;
    instrument::join(session);
    all.push((request.session.clone(), session));
    Ok(())
}

/// Returns the paths, for other processes, of the sessions in which the instance takes part, in the
/// order in which they were joined. Sessions whose recorder has ended are omitted.
pub(crate) fn attached() -> Vec<PathBuf> {
    let all = sessions();
    let live = all.iter().filter(|(path, session)| !session.ended() && path.exists());
    live.map(|(_, session)| session.path()).collect()
}

/// Leaves the session that was requested with this path, or all sessions, and frees their memory.
pub(crate) fn detach(session: Option<&Path>) {
    leave(&mut sessions(), |path, _| session.is_none_or(|session| path == session));
}

/// Leaves the sessions for which the predicate holds.
fn leave(
    all: &mut Vec<(PathBuf, &'static Session)>,
    mut which: impl FnMut(&Path, &Session) -> bool,
) {
    for (_, session) in all.extract_if(.., |(path, session)| which(path, session)) {
        instrument::leave(session);
        // A refusal only means that the memory cannot be freed.
        let _ = session.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_event() {
        let phases = [
            Phase::Prepare,
            Phase::Install,
            Phase::Quiesce,
            Phase::Transfer,
            Phase::Commit,
            Phase::RollBack,
        ];
        let numbers = phases.map(|phase| phase as usize);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "PHASES is in the order of their declaration");
    }
}
