//! Opens a process whose code is to be changed. A process that an instance of refit follows is
//! borrowed from it: a process has one tracer. The number of an instance means the process that
//! serves it, as everywhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use refit_instance::{Client, Kind, LentProgram};
use refit_probe::watch::Error;
use refit_splice::StopTimes;
use refit_splice::process::{Lender, Loan, Program, Refusal};
use refit_tracer::loan::{LoanAnswer, LoanRequest};

use crate::commands::programs::process::{self, RunningProcess};
use crate::failure::Failure;
use crate::format;
use crate::instances::serving_process;

/// Opens a process in which calls can be made.
///
/// # Errors
///
/// Its code cannot be changed, or another program traces it.
pub(crate) fn open(id: u32) -> Result<Program, Failure> {
    with_lender(id, Program::open, Program::open_lent)
}

/// Opens a process as [`open`] does, but also one whose system calls are filtered.
///
/// # Errors
///
/// Those of [`open`].
pub(crate) fn open_to_clean(id: u32) -> Result<Program, Failure> {
    with_lender(id, Program::open_to_clean, Program::open_lent_to_clean)
}

/// Why a program is not watched, with what to do.
pub(crate) fn failure(id: u32, error: &Error) -> Failure {
    let remedy = match error {
        Error::NoModule { .. } => "name one of these, or * for all",
        Error::Several { .. } => "name one of these",
        Error::NoFunction { .. } => "list functions with `refit funcs`",
        Error::NoTracepoint { there, .. } if there.is_empty() => {
            "list the tracepoints of a file with `readelf -n`"
        }
        Error::NoTracepoint { .. } => "name one of these",
        Error::Nothing { .. } | Error::Map { .. } | Error::Mixed => "see docs/guide/probe.md",
        Error::Splice(_) => "see the limitations in docs/guide/probe.md",
        _ => "list functions with `refit funcs`",
    };
    Failure::new(format!("watch process {id}"), error.to_string(), remedy)
}

/// Describes for how long a program was stopped.
pub(crate) fn stopped(stood: StopTimes) -> String {
    let [all, longest] = [stood.all(), stood.longest].map(|time| time.as_nanos() as u64);
    format!("{}, at most {} at once", format::nanos(all), format::nanos(longest))
}

fn with_lender(
    id: u32,
    open: impl FnOnce(u32) -> Result<Program, Refusal>,
    open_lent: impl FnOnce(u32, Arc<dyn Lender>, u32) -> Result<Program, Refusal>,
) -> Result<Program, Failure> {
    let id = serving_process(id);
    let failed = |refusal: Refusal| failure(id, &refusal.into());
    let refusal = match open(id) {
        Err(refusal @ Refusal::Traced { .. }) => refusal,
        opened => return opened.map_err(failed),
    };
    let RunningProcess { client, process, .. } =
        process::search(id)?.ok_or_else(|| failed(refusal))?;
    open_lent(id, Arc::new(InstanceLender(client)), process.process.filters).map_err(failed)
}

/// An instance that follows a process.
#[derive(Debug)]
struct InstanceLender(Client);

impl Lender for InstanceLender {
    fn lend(&self, process: u32, within: Duration) -> io::Result<Box<dyn Loan>> {
        let lent = self.0.lend(process, within).map_err(|refusal| match refusal.kind {
            Kind::Unknown => io::Error::new(io::ErrorKind::NotFound, refusal),
            _ => io::Error::other(refusal),
        })?;
        Ok(Box::new(Borrowed(lent)))
    }
}

/// A process that an instance lends.
#[derive(Debug)]
struct Borrowed(LentProgram);

impl Loan for Borrowed {
    fn receive(&mut self) -> io::Result<LoanAnswer> {
        self.0.receive()
    }

    fn send(&mut self, request: LoanRequest) -> io::Result<()> {
        self.0.send(request)
    }
}
