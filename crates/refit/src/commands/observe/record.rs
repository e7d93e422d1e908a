//! `refit record`: what instances, instrumented programs and the scheduler tell goes into a trace.
//!
//! ```text
//!   instances ── control API: join ─┐
//!   a command ── REFIT_SESSION ─────┼─► session (shared memory) ─► recorder ─► trace
//!   the scheduler ── perf events ───┘                              (a thread)
//! ```

mod args;
mod check;
mod launch;
mod probes;
mod recording;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use refit_instruments::block::End;
use serde::Serialize;

pub(crate) use args::RecordArgs;
use recording::{Recorded, record};

use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &RecordArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    if args.check {
        return check::run(args, out);
    }
    let interrupted = interruption()?;
    survive_full_files()?;
    let recorded = record(args, only, &interrupted, false)?;
    tell(args, &recorded, out)?;
    let operation = || format!("record into {}", args.output.display());
    if let Some(trouble) = &recorded.summary.trouble {
        let remedy = "make room; the file contains what could be written";
        return Err(Failure::new(operation(), trouble.to_string(), remedy));
    }
    let unwritten = recorded.summary.end.lost_unwritten;
    if unwritten > 0 {
        let obstacle = format!("{} could not be written", format::counted(unwritten, "record"));
        return Err(Failure::new(operation(), obstacle, "make room for the file"));
    }
    match recorded.status {
        Some(status) if !status.success() => Err(Failure::new(
            format!("record {}", args.command[0]),
            format!("the command failed: {status}"),
            "see its output; the trace is written",
        )),
        _ => Ok(()),
    }
}

/// Ignores the signal of `RLIMIT_FSIZE`, which would kill the process. A file that may not grow
/// further is then reported at the end like a full disk.
fn survive_full_files() -> Result<(), Failure> {
    let noted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted)
        .map(drop)
        .map_err(|e| Failure::new("record", e.to_string(), "run refit with fewer open files"))
}

/// The summary for programs.
#[derive(Serialize)]
struct RecordSummary<'a> {
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    file: &'a Path,
    files: u32,
    seconds: f64,
    #[serde(flatten)]
    end: End,
    dumps: u64,
    remarks: &'a [String],
}

fn tell(args: &RecordArgs, recorded: &Recorded, out: &mut Output) -> Result<(), Failure> {
    let Recorded { summary, took, remarks, .. } = recorded;
    if out.json() {
        return out.object(&RecordSummary {
            file: &args.output,
            files: summary.parts,
            seconds: took.as_secs_f64(),
            end: summary.end,
            dumps: summary.dumps,
            remarks,
        });
    }
    let file = args.output.display();
    let files = match summary.parts {
        1 => format!("{file}"),
        n => format!("{file} and {} more", n - 1),
    };
    let records = format::counted(summary.end.written, "record");
    out.line(&format!("{records} in {:.1} s: {files}", took.as_secs_f64()))?;
    if summary.dumps > 0 {
        out.line(&format!("{} stopped all processors", format::counted(summary.dumps, "dump")))?;
    }
    // Losses are reported last, where they are seen, and never left out.
    out.flush()?;
    remarks.iter().for_each(|remark| say!("refit: {remark}"));
    let End { lost_full, lost_torn, lost_old, .. } = summary.end;
    let causes = [
        (lost_full, "lost: their buffer was full; enlarge it with --ring"),
        (lost_torn, "incomplete: their threads were killed or stopped while they wrote"),
        (lost_old, "overwritten, as in flight mode the oldest are"),
    ];
    for (lost, why) in causes.iter().filter(|(lost, _)| *lost > 0) {
        say!("refit: {} {why}", format::counted(*lost, "record"));
    }
    Ok(())
}
