//! A recording: who takes part, how long it goes on, and what it came to.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refit_instance::{Kind, Refusal};
use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{
    Mode, Options, Recorder, Rotation, Scheduler, Source, Summary, Unwind, Watched,
};
use refit_probe::unwinder::Unwinder;
use refit_sys::perf::StackTarget;
use refit_sys::{process, thread as this_thread};

use super::args::{ModeArg, RecordArgs};
use super::launch::start;
use super::probes::Probes;
use crate::failure::Failure;
use crate::instances::{self, Live};

/// The interval at which the end of a command, of a time, and Ctrl-C are noticed: only the summary
/// waits for that.
const END_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The outcome of a recording.
pub(super) struct Recorded {
    pub(super) summary: Summary,
    pub(super) took: Duration,
    /// The exit status of the command; `None` if there was none, or it continues.
    pub(super) status: Option<ExitStatus>,
    /// Explanations of data that is missing from the trace.
    pub(super) remarks: Vec<String>,
}

/// Whom a recording is about.
enum Target {
    Command(Child),
    Process(u32),
    Instances,
}

/// Records until the command ends, the time is over, or it is interrupted.
pub(super) fn record(
    args: &RecordArgs,
    only: Option<u32>,
    interrupted: &AtomicBool,
    quiet: bool,
) -> Result<Recorded, Failure> {
    let operation = || format!("record into {}", args.output.display());
    let mut geometry = Geometry::of_host();
    if let Some(bytes) = args.ring {
        geometry = geometry.with_ring_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if args.pid.is_none() && args.command.is_empty() && !args.probes.is_empty() {
        let obstacle = "--expression needs a process or a command";
        return Err(Failure::new(
            operation(),
            obstacle,
            "name a process with -p, or a command after --",
        ));
    }
    let mut live = instances_of(args, only)?;
    let session = Session::create(geometry).map_err(|e| {
        Failure::new(operation(), e.to_string(), "make the buffers smaller with --ring")
    })?;
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
        .map_err(|e| Failure::new(operation(), e.to_string(), "name another file with --output"))?;
    let begin = Instant::now();
    let ended = join(args, &mut live, session, &mut remarks)
        .and_then(|()| follow(args, session, &probes, interrupted, quiet));
    let took = begin.elapsed();
    // Before the recording ends: what the program writes until then is in it.
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

/// The instances that take part.
fn instances_of(args: &RecordArgs, only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let operation = "record";
    match args.pid {
        Some(pid) => {
            if process::living(pid).is_none() {
                let obstacle = format!("there is no process {pid}");
                return Err(Failure::new(operation, obstacle, "list processes with `ps`"));
            }
            // Any other process is recorded for its context switches.
            Ok(instances::live(operation, Some(pid)).unwrap_or_default())
        }
        None if args.command.is_empty() => instances::live(operation, only),
        // They are the system that the command runs on, if there are any.
        None => Ok(instances::live(operation, only).unwrap_or_default()),
    }
}

fn described(args: &RecordArgs, live: &[Live]) -> Vec<String> {
    match args.pid {
        _ if !args.command.is_empty() => args.command.clone(),
        Some(pid) => vec![format!("process {pid}")],
        None => live.iter().map(|live| format!("instance {}", live.pid)).collect(),
    }
}

/// Records the scheduler, or adds a remark that it cannot be.
fn scheduler(
    args: &RecordArgs,
    session: &'static Session,
    remarks: &mut Vec<String>,
) -> Vec<Box<dyn Source>> {
    const REMEDY: &str = "lower /proc/sys/kernel/perf_event_paranoid";
    if args.no_switches {
        return Vec::new();
    }
    let mut watched = watch(args, session, args.stacks);
    if let (true, Err(e)) = (args.stacks, &watched) {
        remarks.push(format!("no stacks: {e}; {REMEDY}"));
        watched = watch(args, session, false);
    }
    match watched {
        Ok(scheduler) => vec![Box::new(scheduler)],
        Err(e) => {
            remarks.push(format!("no context switches: {e}; {REMEDY}"));
            Vec::new()
        }
    }
}

/// Watches the scheduler: for the process that `-p` names; without `-p`, for all processes where
/// that is permitted, otherwise for the recorded ones.
fn watch(args: &RecordArgs, session: &'static Session, stacks: bool) -> io::Result<Scheduler> {
    let threads = match args.pid {
        Some(pid) => process::threads(instances::serving_process(pid)),
        // A command is made by this thread, and what it makes is watched as well.
        None => vec![this_thread::id()],
    };
    // Without a process or a command, the machine is examined.
    let subject = args.pid.is_some() || !args.command.is_empty();
    let watch = |watched: Option<&[u32]>| {
        let of = subject.then_some(&threads[..]).or(watched);
        let stacks = stacks.then(|| {
            let unwind: Box<dyn Unwind> = Box::new(Unwinder::default());
            (StackTarget { threads: of, bytes: args.stack_bytes }, unwind)
        });
        let ring = args.ring.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX / 2));
        Scheduler::watch(session, Watched { threads: watched, stacks, ring })
    };
    // A named process is the subject of the recording; otherwise the machine is, as far as it may
    // be observed.
    match args.pid {
        Some(_) => watch(Some(&threads)),
        None => watch(None).or_else(|_| watch(Some(&threads))),
    }
}

/// Has the instances take part. One that too many others record is left out, with a remark, unless
/// there is nothing else to record.
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
                remarks.push(format!("instance {} is not recorded: {obstacle}; {remedy}", one.pid));
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

/// Starts what is to be recorded and waits for its end; how the command ended.
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
                probes.install(instances::serving_process(pid), &args.probes, session)?;
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
        // Nothing notifies of all three: an interruption, the command's end, the process's end.
        thread::sleep(END_POLL_INTERVAL);
    }
    if let Target::Command(child) = &target {
        say!("refit: the recording has ended; the command continues as process {}", child.id());
    }
    Ok(None)
}
