//! An instance that is recorded: it joins the sessions of recorders, and tells of its changes
//! there.
//!
//! Its other parts have instruments of their own, which find the session by themselves.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Carries a change out, told to whoever records.
pub(crate) fn changing<T>(change: ChangeId, work: impl FnOnce() -> T) -> T {
    let _span = CHANGE.span([change, 0]);
    watch::during(change, work)
}

/// Has changes tell of their phases.
pub(crate) fn listen() {
    // Another instance in this process has done it already: that is as good.
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

/// Asks an instance to take part in a recording.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordRequest {
    /// Where the session of the recorder is, e.g. `/proc/4711/fd/5`.
    #[schema(value_type = String)]
    #[serde(with = "crate::path_text")]
    pub session: PathBuf,
}

/// Whether an instance takes part in a recording.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Recorded {
    /// Where the session of the first recorder is; none: it is not recorded.
    #[schema(value_type = Option<String>)]
    #[serde(with = "crate::path_text::optional")]
    pub session: Option<PathBuf>,
    /// Where the sessions of all recorders are; `session` is the first of them.
    #[schema(value_type = Vec<String>)]
    #[serde(default, with = "crate::path_text::several")]
    pub sessions: Vec<PathBuf>,
}

/// Which recording to leave.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EndRecordQuery {
    /// The path by which its session was joined; all, without.
    pub session: Option<String>,
}

/// The sessions that the instance takes part in, by the path at which each was asked for.
///
/// The lock is held while an instrument is attached or detached, so that they agree.
static ATTACHED: Mutex<Vec<(PathBuf, &'static Session)>> = Mutex::new(Vec::new());
/// How many recorders an instance serves at a time: the memory of each session is locked.
const MOST: usize = 8;

fn sessions() -> MutexGuard<'static, Vec<(PathBuf, &'static Session)>> {
    ATTACHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Joins a session, beside those of other recorders.
///
/// # Errors
/// There is none at the path, the instance takes part in it already, or in too many.
pub(crate) fn attach(asked: &RecordRequest) -> Result<(), Refusal> {
    let what = || format!("record into {}", asked.session.display());
    let mut all = sessions();
    // Those whose recorder was killed.
    leave(&mut all, |path, session| session.ended() || !path.exists());
    let busy = |obstacle: String| {
        Refusal::new(Kind::Busy, what(), obstacle, "end another recording first")
    };
    if all.iter().any(|(path, _)| *path == asked.session) {
        return Err(busy("the instance is recorded into it already".to_owned()));
    }
    if all.len() >= MOST {
        return Err(busy(format!("{MOST} others record the instance already")));
    }
    let session = Session::open(&asked.session).map_err(|error| {
        let remedy = "name the session of a recorder that runs, as `refit record` does";
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
    all.push((asked.session.clone(), session));
    Ok(())
}

/// Where the sessions are, for other processes, that the instance takes part in and whose
/// recorders are at work; in the order in which it has joined them.
pub(crate) fn attached() -> Vec<PathBuf> {
    let all = sessions();
    let live = all.iter().filter(|(path, session)| !session.ended() && path.exists());
    live.map(|(_, session)| session.path()).collect()
}

/// Leaves the session that was asked for by this path, or all, and gives their memory back.
pub(crate) fn detach(asked: Option<&Path>) {
    leave(&mut sessions(), |path, _| asked.is_none_or(|asked| path == asked));
}

/// Leaves those of which this is so.
fn leave(
    all: &mut Vec<(PathBuf, &'static Session)>,
    mut which: impl FnMut(&Path, &Session) -> bool,
) {
    for (_, session) in all.extract_if(.., |(path, session)| which(path, session)) {
        instrument::leave(session);
        // Memory that cannot be given back is all that a refusal comes to.
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
