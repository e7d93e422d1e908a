//! Sessions of probes: sites that are installed in a program together, and removed together, with
//! an event of the log for each step.
//!
//! The events of a session, and those of the splices within it (`refit_splice`), share the span
//! `probes{probe=N process=PID kind=…}`, so that a hang between two of them shows in
//! `refit debug-dump` or with `--log refit_probe=debug`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::Files;
use crate::finder;
use refit_instruments::session::Session;
use refit_splice::process::Program;
use refit_splice::remains::{self, Removed, Which};
use refit_splice::{Installed, Moved, Plan, Why};
use tracing::{Span, debug, debug_span, warn};

/// The number of the last session of this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A session of probes in one program.
#[derive(Debug)]
pub(crate) struct ProbeSession {
    /// The span of its events, whose number distinguishes the sessions of this process.
    span: Span,
}

impl ProbeSession {
    /// Begins a session of this kind (`watch`, `cover`, `drill`), and installs its sites in the
    /// program, whose files are given. Records go to `records`.
    pub(crate) fn install(
        kind: &'static str,
        program: &Program,
        files: &mut Files,
        mut plan: Plan,
        cells: u32,
        records: Option<&Session>,
    ) -> Result<(Self, Installed), Why> {
        let probe = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Self { span: debug_span!("probes", probe, process = program.id(), kind) };
        let entered = session.span.enter();
        debug!(sites = plan.len(), "probes are being installed");
        finder::add(program, files, &mut plan);
        let installed = Installed::new(program, &plan, cells, records);
        match &installed {
            Ok(installed) => debug!(stood = ?installed.stood, "probes installed"),
            Err(why) => warn!(%why, "probes refused"),
        }
        drop(entered);
        Ok((session, installed?))
    }

    /// Records that sites were removed before the end of the session, or why not.
    pub(crate) fn relieved(&self, sites: usize, outcome: Result<(), &Why>) {
        let _entered = self.span.enter();
        match outcome {
            Ok(()) => debug!(sites, "reached sites removed"),
            Err(why) => debug!(sites, %why, "reached sites stay for now"),
        }
    }

    /// Records that sites were moved, or why not.
    pub(crate) fn moved(&self, outcome: &Result<Option<Moved>, Why>) {
        let _entered = self.span.enter();
        match outcome {
            Ok(None) => {}
            Ok(Some(moved)) => debug!(?moved, "hot sites moved"),
            Err(why) => debug!(%why, "hot sites stay"),
        }
    }

    /// Ends the session: removes everything that refit has put into the program. All counts end at
    /// the same moment.
    pub(crate) fn remove(&self, program: &Program) -> Result<Removed, Why> {
        self.ends(program, remains::take_out)
    }

    /// Ends the session in several stops, if there are many sites, which are shorter than one.
    pub(crate) fn remove_in_parts(&self, program: &Program) -> Result<Removed, Why> {
        self.ends(program, remains::take_out_in_parts)
    }

    fn ends(
        &self,
        program: &Program,
        take_out: fn(&Program, Which) -> Result<Removed, Why>,
    ) -> Result<Removed, Why> {
        let _entered = self.span.enter();
        debug!("probes are being removed");
        let removed = match take_out(program, Which::Probes) {
            // The code of a program ends with it.
            Err(_) if program.ended() => Ok(Removed::default()),
            repaired => repaired,
        };
        match &removed {
            Ok(removed) => debug!(kept = removed.kept, "probes removed"),
            Err(why) => warn!(%why, "probes cannot be removed"),
        }
        removed
    }
}
