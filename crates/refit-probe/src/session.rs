//! Sessions of probes: what is installed in a program at once, and removed at once, with an event
//! of the log for each step.
//!
//! The events of a session have the same number, `probe`, so that a hang between two of them shows
//! in `refit debug-dump` or with `--log refit_probe=debug`. The splices within (`refit_splice`) are
//! events with the same process.

use std::sync::atomic::{AtomicU64, Ordering};

use refit_instruments::session::Session;
use refit_splice::process::Program;
use refit_splice::remains::{self, Removed};
use refit_splice::{Installed, Plan, Why};
use tracing::{debug, warn};

/// The number of the last session of this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A session of probes in one program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeSession {
    /// Distinguishes the sessions of this process in the log.
    number: u64,
    process: u32,
}

impl ProbeSession {
    /// Begins a session of this kind (`watch`, `cover`, `drill`), and installs its sites in the
    /// program. Records go to `records`.
    pub(crate) fn install(
        kind: &'static str,
        program: &Program,
        plan: &Plan,
        cells: u32,
        records: Option<&Session>,
    ) -> Result<(Self, Installed), Why> {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Self { number, process: program.id() };
        let Self { number: probe, process } = session;
        debug!(probe, process, kind, sites = plan.len(), "probes are being installed");
        match Installed::new(program, plan, cells, records) {
            Ok(installed) => {
                debug!(probe, process, stood = ?installed.stood, "probes installed");
                Ok((session, installed))
            }
            Err(why) => {
                warn!(probe, process, %why, "probes refused");
                Err(why)
            }
        }
    }

    /// Records that sites were removed before the end of the session, or why not.
    pub(crate) fn relieved(self, sites: usize, outcome: Result<(), &Why>) {
        let Self { number: probe, process } = self;
        match outcome {
            Ok(()) => debug!(probe, process, sites, "reached sites removed"),
            Err(why) => debug!(probe, process, sites, %why, "reached sites stay for now"),
        }
    }

    /// Ends the session: removes everything that refit has put into the program.
    pub(crate) fn remove(self, program: &Program) -> Result<Removed, Why> {
        let Self { number: probe, process } = self;
        debug!(probe, process, "probes are being removed");
        let removed = match remains::repair(program) {
            // The code of a program ends with it.
            Err(_) if program.ended() => Ok(Removed::default()),
            repaired => repaired,
        };
        match &removed {
            Ok(removed) => debug!(probe, process, kept = removed.kept, "probes removed"),
            Err(why) => warn!(probe, process, %why, "probes cannot be removed"),
        }
        removed
    }
}
