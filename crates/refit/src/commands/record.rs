//! `refit record`: what instances, instrumented programs and the scheduler tell goes into a trace.
//!
//! ```text
//!   instances ── control API: join ─┐
//!   a command ── REFIT_SESSION ─────┼─► session (shared memory) ─► recorder ─► trace
//!   the scheduler ── perf events ───┘                              (a thread)
//! ```

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};
use refit_instance::{Kind, Refusal};
use refit_instruments::block::End;
use refit_instruments::session::{Geometry, Session, VARIABLE};
use refit_instruments::write::{Mode, Options, Recorder, Rotation, Scheduler, Source, Summary};
use refit_probe::spec::Spec;
use refit_sys::{process, thread as this_thread};
use serde::Serialize;

use crate::commands::interruption;
use crate::failure::Failure;
use crate::format;
use crate::instances::{self, Live};
use crate::output::Output;
use probes::Probes;

mod check;
mod probes;

/// The interval at which the end of a command, of a time or Ctrl-C is checked. Nothing but the
/// summary waits for it.
const LOOK: Duration = Duration::from_millis(20);

/// Arguments of `refit record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit record -o boot.trace -- ./server --port 8080
  refit record -p 4711 --for 10s
  refit record -p 4711 -e 'uprobe:nginx:ngx_http_* { span }' --for 10s
  refit record --mode flight --ring 64M
  refit report refit.trace

All instances of this user take part, unless -p names one. What a command records is what it is instrumented \
for, with the crate refit-instruments or refit.h; context switches are recorded of any program.")]
pub(crate) struct RecordArgs {
    /// Record this process alone: an instance, or any program for its context switches
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,

    /// Watch this in the process or command too: as for `refit probe`; counts are recorded as
    /// samples
    #[arg(short = 'e', long = "expression", value_name = "PROBE", conflicts_with = "check")]
    probes: Vec<Spec>,

    /// Where the trace goes
    #[arg(short, long, default_value = "refit.trace", value_name = "FILE")]
    #[arg(value_hint = ValueHint::FilePath)]
    output: PathBuf,

    /// Behavior when a buffer fills
    #[arg(long, value_enum, default_value = "stream")]
    mode: ModeArg,

    /// Size of each processor's buffer
    #[arg(long, value_parser = format::parse_size, value_name = "SIZE")]
    ring: Option<u64>,

    /// Begin another file once one is as large as this
    #[arg(long, value_parser = format::parse_size, value_name = "SIZE")]
    rotate: Option<u64>,

    /// Number of these files that stay; the oldest are removed
    #[arg(long, requires = "rotate", value_name = "N", default_value_t = 0)]
    keep: u32,

    /// For how long; otherwise until the command ends, or Ctrl-C
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    time: Option<Duration>,

    /// Leave context switches out
    #[arg(long)]
    no_switches: bool,

    /// Run the command by turns with and without recording, and report the difference
    #[arg(long, requires = "command")]
    check: bool,

    /// Number of runs with and without recording, for --check
    #[arg(long, requires = "check", default_value_t = 5, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..1000))]
    rounds: u32,

    /// The command to run
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

/// The behavior when a buffer fills.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Written as it comes; what finds no place is lost, and counted
    Stream,
    /// The oldest is forgotten; what is there at the end is written
    Flight,
    /// All processors stand still and write; nothing is lost, and the time is told
    Dump,
}

/// Runs the command.
pub(crate) fn run(args: &RecordArgs, only: Option<u32>, out: &mut Output) -> Result<(), Failure> {
    if args.check {
        return check::run(args, out);
    }
    let interrupted = interruption()?;
    survive_full_files()?;
    let recorded = record(args, only, &interrupted, false)?;
    tell(args, &recorded, out)?;
    let asked = || format!("record into {}", args.output.display());
    if let Some(trouble) = &recorded.summary.trouble {
        let remedy = "see that there is room for it; what could be written is there";
        return Err(Failure::new(asked(), trouble.to_string(), remedy));
    }
    let unwritten = recorded.summary.end.lost_unwritten;
    if unwritten > 0 {
        let obstacle = format!("{} could not be written", format::counted(unwritten, "record"));
        return Err(Failure::new(asked(), obstacle, "see that there is room for the file"));
    }
    match recorded.status {
        Some(status) if !status.success() => Err(Failure::new(
            format!("record {}", args.command[0]),
            format!("the command failed: {status}"),
            "see what it said; the trace is there",
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
        .map_err(|e| Failure::new("record", e.to_string(), "run it with fewer open files"))
}

/// The outcome of a recording.
struct Recorded {
    summary: Summary,
    took: Duration,
    /// The exit status of the command; `None` if there was none, or it continues.
    status: Option<ExitStatus>,
    /// Explanations of data that is missing from the trace.
    remarks: Vec<String>,
}

/// The target of a recording.
enum Target {
    Command(Child),
    Process(u32),
    Instances,
}

fn record(
    args: &RecordArgs,
    only: Option<u32>,
    interrupted: &AtomicBool,
    quiet: bool,
) -> Result<Recorded, Failure> {
    let asked = || format!("record into {}", args.output.display());
    let mut geometry = Geometry::of_host();
    if let Some(bytes) = args.ring {
        geometry = geometry.with_ring_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if args.pid.is_none() && args.command.is_empty() && !args.probes.is_empty() {
        let obstacle = "probes go into a process or a command, and none is named";
        return Err(Failure::new(asked(), obstacle, "name one with -p, or behind --"));
    }
    let mut live = instances_of(args, only)?;
    let session = Session::create(geometry)
        .map_err(|e| Failure::new(asked(), e.to_string(), "take smaller buffers with --ring"))?;
    let mut remarks = Vec::new();
    if !session.locked() {
        remarks.push("the buffers are not locked in memory: raise RLIMIT_MEMLOCK".into());
    }
    let probes = Probes::default();
    let mut sources = scheduler(args, session, &mut remarks);
    if !args.probes.is_empty() {
        sources.push(Box::new(probes.samples(session)));
    }
    let options = Options {
        mode: match args.mode {
            ModeArg::Stream => Mode::Stream,
            ModeArg::Flight => Mode::Flight,
            ModeArg::Dump => Mode::Dump,
        },
        rotation: Rotation { bytes: args.rotate.unwrap_or(0), keep: args.keep },
        command: described(args, &live),
        sources,
        ..Options::default()
    };
    let recorder = Recorder::start(session, &args.output, options)
        .map_err(|e| Failure::new(asked(), e.to_string(), "name another file with --output"))?;
    let begin = Instant::now();
    let ended = join(args, &mut live, session, &mut remarks)
        .and_then(|()| follow(args, session, &probes, interrupted, quiet));
    let took = begin.elapsed();
    // Removed before the recording ends, so that all records of the program until then are in it.
    let removed = probes.remove();
    for Live { pid, client } in &live {
        if let Err(refusal) = client.end_record(&session.path()) {
            remarks.push(format!("instance {pid}: {}", refusal.obstacle));
        }
    }
    let summary = recorder.stop();
    let status = ended?;
    removed?;
    Ok(Recorded { summary, took, status, remarks })
}

/// Returns the instances that take part.
fn instances_of(args: &RecordArgs, only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let asked = "record";
    match args.pid {
        Some(pid) => {
            if process::living(pid).is_none() {
                let obstacle = format!("there is no process {pid}");
                return Err(Failure::new(asked, obstacle, "see `ps` for what there is"));
            }
            // Any other process is recorded for its context switches.
            Ok(instances::live(asked, Some(pid)).unwrap_or_default())
        }
        None if args.command.is_empty() => instances::live(asked, only),
        // The instances are the system on which the command runs, if there are any.
        None => Ok(instances::live(asked, only).unwrap_or_default()),
    }
}

fn described(args: &RecordArgs, live: &[Live]) -> Vec<String> {
    match args.pid {
        _ if !args.command.is_empty() => args.command.clone(),
        Some(pid) => vec![format!("process {pid}")],
        None => live.iter().map(|live| format!("instance {}", live.pid)).collect(),
    }
}

/// Records the scheduler: for the process that `-p` names; without `-p`, for all processes where
/// that is permitted, otherwise for the recorded ones.
fn scheduler(
    args: &RecordArgs,
    session: &'static Session,
    remarks: &mut Vec<String>,
) -> Vec<Box<dyn Source>> {
    if args.no_switches {
        return Vec::new();
    }
    let threads = match args.pid {
        Some(pid) => process::threads(pid),
        // A command is created by this thread, and its children are watched as well.
        None => vec![this_thread::id()],
    };
    // A named process is the subject of the recording. Otherwise it is the machine, as far as
    // access permits.
    let watched = match args.pid {
        Some(_) => Scheduler::watch(session, Some(&threads)),
        None => {
            Scheduler::watch(session, None).or_else(|_| Scheduler::watch(session, Some(&threads)))
        }
    };
    match watched {
        Ok(scheduler) => vec![Box::new(scheduler)],
        Err(e) => {
            remarks.push(format!(
                "no context switches: {e}; lower /proc/sys/kernel/perf_event_paranoid"
            ));
            Vec::new()
        }
    }
}

/// Makes the instances take part. An instance that is recorded by too many others is left out, with
/// a remark, unless there is nothing else to record.
fn join(
    args: &RecordArgs,
    live: &mut Vec<Live>,
    session: &Session,
    remarks: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut first = None;
    let mut joined = Vec::new();
    for one in std::mem::take(live) {
        match one.client.record(&session.path()) {
            Ok(()) => joined.push(one),
            Err(refusal) if refusal.kind == Kind::Busy || one.has_ended(&refusal) => {
                let Refusal { obstacle, remedy, .. } = &refusal;
                remarks.push(format!("instance {} takes no part: {obstacle}; {remedy}", one.pid));
                first.get_or_insert(refusal);
            }
            Err(refusal) => {
                live.extend(joined);
                return Err(refusal.into());
            }
        }
    }
    *live = joined;
    match first {
        Some(refusal) if live.is_empty() && args.command.is_empty() && args.probes.is_empty() => {
            Err(refusal.into())
        }
        _ => Ok(()),
    }
}

/// Starts the recorded command and waits for its end; returns its exit status.
fn follow(
    args: &RecordArgs,
    session: &Session,
    probes: &Probes,
    interrupted: &AtomicBool,
    quiet: bool,
) -> Result<Option<ExitStatus>, Failure> {
    let mut target = match args.pid {
        Some(pid) => {
            if !args.probes.is_empty() {
                probes.install(pid, &args.probes, session)?;
            }
            Target::Process(pid)
        }
        None if args.command.is_empty() => Target::Instances,
        None if args.probes.is_empty() => {
            Target::Command(start(&args.command, Some(&session.path()), quiet)?)
        }
        None => Target::Command(probes.start(&args.command, &args.probes, session)?),
    };
    let end = args.time.and_then(|time| Instant::now().checked_add(time));
    while !interrupted.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        match &mut target {
            Target::Command(child) => {
                if let Some(status) = child.try_wait()? {
                    return Ok(Some(status));
                }
            }
            Target::Process(pid) if process::living(*pid).is_none() => break,
            Target::Process(_) | Target::Instances => {}
        }
        thread::sleep(LOOK);
    }
    if let Target::Command(child) = &target {
        say!("refit: the recording has ended; the command goes on as process {}", child.id());
    }
    Ok(None)
}

/// Returns the command to start; with the path of a session, the command finds that session.
fn command(command: &[String], session: Option<&Path>) -> Command {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]).env_remove(VARIABLE);
    if let Some(session) = session {
        started.env(VARIABLE, session);
    }
    started
}

/// Starts a command.
fn start(words: &[String], session: Option<&Path>, quiet: bool) -> Result<Child, Failure> {
    let mut started = command(words, session);
    if quiet {
        started.stdout(std::process::Stdio::null());
    }
    started.spawn().map_err(|e| {
        Failure::new(format!("run {}", words[0]), e.to_string(), "name a command that is there")
    })
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
        (lost_full, "found no place in their buffer: enlarge it with --ring"),
        (lost_torn, "were begun and never ended: their threads were killed or stopped"),
        (lost_old, "were forgotten on purpose: that is what a flight recorder does"),
    ];
    for (lost, why) in causes.iter().filter(|(lost, _)| *lost > 0) {
        say!("refit: {} {why}", format::counted(*lost, "record"));
    }
    Ok(())
}
