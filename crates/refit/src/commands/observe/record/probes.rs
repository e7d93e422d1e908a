//! Probes of a recording: the program itself writes events and spans; counts are sampled.

use std::fmt;
use std::process::Child;
use std::sync::{Arc, OnceLock};

use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::record::{Phase, Record, What};
use refit_instruments::session::{Described, Kind, Session};
use refit_instruments::write::{Source, SourceBatch};
use refit_probe::reading::Reading;
use refit_probe::spec::Spec;
use refit_probe::steps::Watching;
use refit_probe::watch::Watch;
use refit_splice::process::Program;

use super::launch::command;
use crate::commands::code::program::{failure, open};
use crate::commands::code::{probe, watching};
use crate::failure::Failure;

/// Probes that are inserted into a program when it exists, and that the recorder reads from then
/// on.
#[derive(Debug, Default)]
pub(super) struct Probes(Arc<OnceLock<(Program, Watch)>>);

impl Probes {
    /// Returns the source that the recorder reads.
    pub(super) fn samples(&self, session: &'static Session) -> Samples {
        Samples { watched: Arc::clone(&self.0), session, known: None }
    }

    /// Inserts the probes into a process.
    pub(super) fn install(
        &self,
        id: u32,
        probes: &[Spec],
        session: &Session,
    ) -> Result<(), Failure> {
        if probes.iter().any(Spec::prints) {
            let obstacle = "printf writes to a terminal, not into a recording";
            let remedy = "use event for records, or `refit probe`";
            return Err(Failure::new(format!("watch process {id}"), obstacle, remedy));
        }
        let program = open(id)?;
        let watch = probe::install(&program, probes, Some(session))?;
        let _ = self.0.set((program, watch));
        Ok(())
    }

    /// Starts a command with the probes in it.
    pub(super) fn start(
        &self,
        words: &[String],
        probes: &[Spec],
        session: &Session,
    ) -> Result<Child, Failure> {
        let mut started = command(words, Some(&session.path()));
        let mut child = refit_sys::launch::at_entry(&mut started).map_err(|e| {
            Failure::new(format!("run {}", words[0]), e.to_string(), "name a command that exists")
        })?;
        if let Err(failure) = self.install(child.id(), probes, session) {
            // The command was started only to be watched.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failure);
        }
        if let Some((program, _)) = self.0.get() {
            watching::go_on(program);
        }
        Ok(child)
    }

    /// Removes the probes.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        let Some((program, watch)) = self.0.get() else { return Ok(()) };
        let removed = watch.remove(program);
        let removed = removed.map_err(|why| failure(program.id(), &why.into()))?;
        probe::tell_kept(program.id(), &removed);
        Ok(())
    }
}

/// The counts of probes, as samples of a trace: numbers for counts, nanoseconds for times.
pub(super) struct Samples {
    watched: Arc<OnceLock<(Program, Watch)>>,
    session: &'static Session,
    /// The places and actions that are sampled, and their events.
    known: Option<Vec<(Watching, u32)>>,
}

impl fmt::Debug for Samples {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Samples").finish_non_exhaustive()
    }
}

impl Source for Samples {
    fn collect(&mut self, found: &mut SourceBatch) {
        let Some((program, watch)) = self.watched.get() else { return };
        let session = self.session;
        let known = self.known.get_or_insert_with(|| define(session, watch));
        let mut reader = watch.reader();
        for (watching, id) in known {
            // A program that has ended has no further results.
            let Ok(counts) = reader.read(watching) else { continue };
            let value = counts.keys.values().chain([&counts.all]).filter_map(value).sum();
            let (time, thread) = (session.now(), program.id());
            let what = What::new(*id, Phase::Sample);
            found.records.push((0, Record { time, what, thread, payload: [value, 0] }));
        }
    }
}

fn value(reading: &Reading) -> Option<u64> {
    match reading {
        Reading::Count(count) => Some(*count),
        Reading::Latency { nanos, .. } => Some(*nanos),
        Reading::Concurrency { inside, .. } => Some(*inside),
        Reading::Nothing
        | Reading::Exits { .. }
        | Reading::Folded { .. }
        | Reading::Kept(_)
        | Reading::Histogram(_)
        | Reading::Linear(_)
        | Reading::Durations { .. } => None,
    }
}

/// Returns the events of everything that can be sampled.
fn define(session: &Session, watch: &Watch) -> Vec<(Watching, u32)> {
    let places = watch
        .watched
        .iter()
        .flat_map(|place| place.actions.iter().map(move |action| (place, action)));
    let sampled = places.filter(|(_, watching)| watching.what.is_sampled());
    let events = sampled.filter_map(|(place, watching)| {
        let name = format!("{}:{} {}", place.module, place.name, watching.what);
        let described = Described {
            name: &name,
            manager: "probe",
            kind: Kind::Event,
            role: Role::Plain,
            fields: &[("value", FieldKind::U64)],
            parent: 0,
        };
        Some((watching.clone(), session.define(&described)?))
    });
    events.collect()
}
