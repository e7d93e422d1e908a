//! An instance that is recorded: it joins the session of a recorder, and tells of its changes there.
//!
//! Its other parts have instruments of their own, which find the session by themselves.

use std::io::ErrorKind;
use std::path::PathBuf;

use refit_change::watch::{self, Step};
use refit_change::{ChangeId, Phase};
use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::{self, Event};
use refit_instruments::session::{Session, SessionError};

use crate::refusal::{Kind, Refusal};
use crate::wire::RecordRequest;

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

/// Joins a session.
///
/// # Errors
/// There is none at the path, or the recorder of another one is at work.
pub(crate) fn attach(asked: &RecordRequest) -> Result<(), Refusal> {
    let what = || format!("record into {}", asked.session.display());
    if attached().is_some() {
        return Err(Refusal::new(
            Kind::Busy,
            what(),
            "the instance is recorded already",
            "end the other recording first",
        ));
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
    // The recorder of an earlier one was killed.
    detach();
    instrument::attach(session);
    Ok(())
}

/// Where the session is that the instance takes part in, if its recorder is at work.
pub(crate) fn attached() -> Option<PathBuf> {
    let path = instrument::current().filter(|session| !session.ended())?.path();
    path.exists().then_some(path)
}

/// Leaves the session, if there is one, and gives its memory back.
pub(crate) fn detach() {
    let before = instrument::current();
    instrument::detach();
    if let Some(session) = before {
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
