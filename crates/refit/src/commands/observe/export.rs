//! `refit export`: a trace in the format of another tool.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::builder::ValueHint;
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use refit_instruments::analysis::Filter;
use refit_instruments::export::{self, Error, Folded};
use refit_instruments::read::Trace;

use super::trace::{self, Selection};
use crate::failure::Failure;

/// Arguments of `refit export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit export water.trace --to perfetto -o water.pftrace
  refit export water.trace --to folded --svg -o water.svg
  refit export water.trace --to folded --off-cpu --svg -o waits.svg
  refit export water.trace --to ndjson --time ..1s | jq .event

Open the first file at https://ui.perfetto.dev, and a file made with --to firefox at https://profiler.firefox.com.")]
pub(crate) struct ExportArgs {
    /// Trace to export; for a trace of several files, name the first
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Format of the output
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,

    /// Output file, replaced when everything is written (default: standard output)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Draw a flame graph instead of writing the stacks
    #[arg(long)]
    svg: bool,

    /// Fold the stacks on which threads stood while they had no processor, instead of intervals
    #[arg(long)]
    off_cpu: bool,

    #[command(flatten)]
    selection: Selection,
}

/// The formats into which a trace can be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A timeline for ui.perfetto.dev and trace_processor
    Perfetto,
    /// One line per stack with its time in ns, for flame graphs
    Folded,
    /// A profile for profiler.firefox.com
    Firefox,
    /// One JSON object per record, one per line
    Ndjson,
}

/// Writes the export.
pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    if args.svg && args.to != Format::Folded {
        let text = "--svg draws stacks: use it with --to folded";
        return Err(Failure::usage(ErrorKind::ArgumentConflict, text));
    }
    if args.off_cpu && args.to != Format::Folded {
        let text = "--off-cpu selects what is folded: use it with --to folded";
        return Err(Failure::usage(ErrorKind::ArgumentConflict, text));
    }
    let trace = trace::open("export", &args.files)?;
    let filter = args.selection.filter(&trace);
    match &args.output {
        None => {
            let mut to = BufWriter::new(io::stdout().lock());
            write(args, &trace, &filter, &mut to).map_err(|e| failure(&e))?;
            Ok(to.flush()?)
        }
        Some(path) => replace(path, |to| write(args, &trace, &filter, to)).map_err(|e| match e {
            Error::Write(e) => Failure::new(
                format!("export to {}", path.display()),
                e.to_string(),
                "make room, or name a file that you may write to",
            ),
            e => failure(&e),
        }),
    }
}

fn write(
    args: &ExportArgs,
    trace: &Trace,
    filter: &Filter,
    to: &mut dyn Write,
) -> Result<(), Error> {
    let what = if args.off_cpu { Folded::OffCpu } else { Folded::Intervals };
    match args.to {
        Format::Perfetto => export::perfetto(trace, filter, to),
        Format::Folded if args.svg => export::flame_graph(trace, filter, what, to),
        Format::Folded => export::folded(trace, filter, what, to),
        Format::Firefox => export::firefox(trace, filter, to),
        Format::Ndjson => export::ndjson(trace, filter, to),
    }
}

/// Writes to a temporary file beside the target and renames it when it is complete, so that the
/// target is never half-written.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), Error>,
) -> Result<(), Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // The mode of any new file, since the user's mask determines its readers.
    let mode = Permissions::from_mode(0o666);
    let beside =
        tempfile::Builder::new().permissions(mode).tempfile_in(directory.unwrap_or(Path::new(".")));
    // Without the name of the temporary file, which the user did not ask for.
    let mut beside = beside.map_err(|e| io::Error::from(e.kind()))?;
    let mut to = BufWriter::new(beside.as_file_mut());
    write(&mut to)?;
    to.flush()?;
    drop(to);
    beside.persist(path).map_err(|e| Error::Write(e.error))?;
    Ok(())
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Read(e) => trace::refusal("export", e),
        Error::Write(e) if e.kind() == io::ErrorKind::BrokenPipe => Failure::Unread,
        Error::Write(e) => Failure::new("export", e.to_string(), "make room for the output"),
        e @ (Error::TooMuch | Error::Nothing) => trace::refusal("export", e),
    }
}
