//! `refit probe` and `refit repair`: watching the functions of programs that run, and cleaning up after it.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use refit_code::lines::Lines;
use refit_code::probe::modules;
use refit_code::probe::spec::{Do, Spec};
use refit_code::probe::watch::{self, Error, Prepared, Reading, Watch, Watched};
use refit_code::process::Program;
use refit_code::splice::remains;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::commands::{interruption, sleep};
use crate::failure::Failure;
use crate::format;
use crate::histogram::bars;
use crate::output::Output;
use crate::table::{Align, Table};

/// How soon the end of a program, of a time or Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(20);
/// How many refused places are told one by one.
const TOLD: usize = 5;

/// Arguments of `refit probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
A probe is PLACE { ACTION, … }. Places: uprobe:FILE:FUNCTION (its entry; * and ? in names), insn:FILE:0xADDRESS, \
insn:FILE:FUNCTION+0xOFFSET; several with commas between. FILE is a library or the program by its file name, or * for all. \
Actions: count, latency (calls and time from entry to exit), histogram arg0 … arg5 or of a register.

Example:
  refit probe -p 4711 -e 'uprobe:redis-server:lookupKey* { count }'
  refit probe -p 4711 -e 'uprobe:libc:malloc { latency, histogram arg0 }' --interval 1s
  refit probe -e 'uprobe:sqlite3:sqlite3VdbeExec { latency }' -- sqlite3 db 'select 1'

Ctrl-C prints what was counted, and takes everything out again.")]
pub(crate) struct ProbeArgs {
    /// Watch this process
    #[arg(short, long, value_name = "PID", required_unless_present = "command")]
    #[arg(conflicts_with = "command")]
    pid: Option<u32>,

    /// What to watch, and how; several at once
    #[arg(short = 'e', long = "expression", value_name = "PROBE", required = true)]
    probes: Vec<Spec>,

    /// List the places that the probes name, and do nothing
    #[arg(short, long)]
    list: bool,

    /// With --list: tell the file and line of source of each place, from debug information
    #[arg(long, requires = "list")]
    lines: bool,

    /// Print what would change in the program, and do nothing
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,

    /// Print what was counted each time this has gone by
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME")]
    interval: Option<Duration>,

    /// For how long; otherwise until the program ends, or Ctrl-C
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    time: Option<Duration>,

    /// Start this program and watch it from its first instruction on
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Watches.
pub(crate) fn run(args: &ProbeArgs, out: &mut Output) -> Result<(), Failure> {
    let interrupted = interruption()?;
    let mut child = match args.pid {
        Some(_) => None,
        None => Some(start(&args.command)?),
    };
    let id = args.pid.or(child.as_ref().map(Child::id)).unwrap_or_default();
    let watched = watch(args, id, child.as_mut(), &interrupted, out);
    let Some(mut child) = child else { return watched };
    if watched.is_err() || args.list || args.dry_run {
        // It was started to be watched only.
        let _ = child.kill();
        let _ = child.wait();
        return watched;
    }
    match child.try_wait()? {
        Some(status) if !status.success() => Err(Failure::new(
            format!("watch {}", args.command[0]),
            format!("the command failed: {status}"),
            "see what it said; what was counted stands above",
        )),
        Some(_) => Ok(()),
        None => {
            eprintln!("refit: the command goes on as process {id}");
            Ok(())
        }
    }
}

/// Starts a program that waits for us before its first instruction.
fn start(command: &[String]) -> Result<Child, Failure> {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]);
    refit_sys::launch::at_entry(&mut started).map_err(|e| {
        Failure::new(format!("run {}", command[0]), e.to_string(), "name a program that is there")
    })
}

fn watch(
    args: &ProbeArgs,
    id: u32,
    child: Option<&mut Child>,
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    let failed = |error: Error| failure(id, &error);
    let program = Program::open(id).map_err(|refusal| failed(refusal.into()))?;
    if args.list {
        return list(&program, args, out);
    }
    let prepared = watch::prepare(&program, &args.probes).map_err(failed)?;
    tell_refused(&prepared);
    if args.dry_run {
        prepared.lines().try_for_each(|line| out.line(&line))?;
        return out.flush();
    }
    let watch = prepared.install(&program).map_err(failed)?;
    let stood = watch.stood();
    eprintln!(
        "refit: watching {} of process {id}, which stood still for {}; Ctrl-C ends",
        format::counted(watch.watched.len() as u64, "place"),
        format::nanos((stood.preparing + stood.changing).as_nanos() as u64),
    );
    let followed = follow(args, &program, child, &watch, interrupted, out);
    // Whatever happened to the output: the program gets its code back.
    let removed = watch.remove(&program);
    followed?;
    print(&watch, out)?;
    removed.map_err(|why| failed(why.into()))?;
    out.flush()
}

fn list(program: &Program, args: &ProbeArgs, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        module: String,
        name: String,
        address: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<String>,
    }
    let found =
        watch::list(program, &args.probes).map_err(|error| failure(program.id(), &error))?;
    let mut sources = BTreeMap::new();
    for (file, found) in found {
        let (module, name, address) = (file.name(), found.name, found.address);
        let line = args.lines.then(|| {
            let source = sources.entry(file.path.clone());
            // A file that cannot be read any more could be when it was listed.
            let source = source.or_insert_with(|| Lines::open(&file.file).ok().flatten());
            source.as_ref().and_then(|source| source.at(address).pop())
        });
        let line = line.flatten().map(|origin| origin.to_string());
        if out.json() {
            out.object(&Line { module, name, address, line })?;
        } else {
            let line = line.map_or_else(String::new, |line| format!("  {line}"));
            out.line(&format!("uprobe:{module}:{name}{line}"))?;
        }
    }
    out.flush()
}

/// Lets the program go on, and waits for the end: its own, that of the time, or Ctrl-C.
fn follow(
    args: &ProbeArgs,
    program: &Program,
    child: Option<&mut Child>,
    watch: &Watch,
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    let launched = child.is_some();
    if launched && let Some(process) = Pid::from_raw(program.id().cast_signed()) {
        // It stands at its entry; if it was killed meanwhile, that is seen below.
        let _ = kill_process(process, Signal::CONT);
    }
    let end = args.time.and_then(|time| Instant::now().checked_add(time));
    let mut next = args.interval.and_then(|interval| Instant::now().checked_add(interval));
    while end.is_none_or(|end| Instant::now() < end) && !program.ended() {
        if next.is_some_and(|next| Instant::now() >= next) {
            print(watch, out)?;
            out.flush()?;
            next = args.interval.and_then(|interval| Instant::now().checked_add(interval));
        }
        if !sleep(LOOK, interrupted) {
            break;
        }
    }
    Ok(())
}

fn tell_refused(prepared: &Prepared) {
    for (place, why) in prepared.refused.iter().take(TOLD) {
        eprintln!("refit: not watched: {place}: {why}");
    }
    if let Some(more) = prepared.refused.len().checked_sub(TOLD).filter(|more| *more > 0) {
        eprintln!("refit: not watched: {more} more");
    }
}

/// What one action of one place has told, for programs.
#[derive(Serialize)]
struct Told<'w> {
    module: &'w str,
    name: &'w str,
    address: u64,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nanos: Option<u64>,
    /// How many values had this many bits, from none on.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits: Option<Vec<u64>>,
}

fn print(watch: &Watch, out: &mut Output) -> Result<(), Failure> {
    let mut read = Vec::new();
    for place in &watch.watched {
        for &(action, first) in &place.actions {
            let reading = watch
                .read(action, first)
                .map_err(|e| Failure::new("read what was counted", e.to_string(), "try again"))?;
            read.push((place, action, reading));
        }
    }
    if out.json() {
        return read
            .iter()
            .try_for_each(|(place, action, reading)| out.object(&told(place, *action, reading)));
    }
    print_counts(&read, out)?;
    print_latencies(&read, out)?;
    print_histograms(&read, out)
}

fn told<'w>(place: &'w Watched, action: Do, reading: &Reading) -> Told<'w> {
    let (count, inside, nanos, bits) = match reading {
        Reading::Count(count) => (Some(*count), None, None, None),
        Reading::Nothing => (None, None, None, None),
        Reading::Latency { ended, inside, nanos } => {
            (Some(*ended), Some(*inside), Some(*nanos), None)
        }
        Reading::Histogram(cells) => (None, None, None, Some(cells.to_vec())),
    };
    let Watched { module, name, address, .. } = place;
    Told { module, name, address: *address, action: action.to_string(), count, inside, nanos, bits }
}

type Read<'w> = (&'w Watched, Do, Reading);

fn called(place: &Watched) -> String {
    format!("{}:{}", place.module, place.name)
}

fn print_counts(read: &[Read<'_>], out: &mut Output) -> Result<(), Failure> {
    let counts = read.iter().filter_map(|(place, _, reading)| match reading {
        Reading::Count(count) => Some((*count, *place)),
        _ => None,
    });
    let (mut reached, never): (Vec<_>, Vec<_>) = counts.partition(|(count, _)| *count > 0);
    if reached.is_empty() && never.is_empty() {
        return Ok(());
    }
    reached.sort_by(|(a, _), (b, _)| b.cmp(a));
    let mut table = Table::new(&[("COUNT", Align::Right), ("PLACE", Align::Left)]);
    for (count, place) in reached {
        table.row(vec![format::count(count), called(place)]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))?;
    match never.len() as u64 {
        0 => Ok(()),
        places => out.line(&format!("{} never reached", format::counted(places, "place"))),
    }
}

fn print_latencies(read: &[Read<'_>], out: &mut Output) -> Result<(), Failure> {
    let mut latencies: Vec<_> = read
        .iter()
        .filter_map(|(place, _, reading)| match reading {
            Reading::Latency { ended, inside, nanos } => Some((*nanos, *ended, *inside, *place)),
            _ => None,
        })
        .collect();
    if latencies.is_empty() {
        return Ok(());
    }
    latencies.sort_by_key(|latency| std::cmp::Reverse(latency.0));
    let right = |title| (title, Align::Right);
    let columns =
        [right("TOTAL"), right("CALLS"), right("MEAN"), right("INSIDE"), ("PLACE", Align::Left)];
    let mut table = Table::new(&columns);
    for (nanos, ended, inside, place) in latencies {
        let mean = match nanos.checked_div(ended + inside) {
            Some(mean) => format::nanos(mean),
            None => "-".to_owned(),
        };
        let (calls, inside) = (format::count(ended), format::count(inside));
        table.row(vec![format::nanos(nanos), calls, mean, inside, called(place)]);
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

fn print_histograms(read: &[Read<'_>], out: &mut Output) -> Result<(), Failure> {
    for (place, action, reading) in read {
        let Reading::Histogram(cells) = reading else { continue };
        out.line(&format!("{action} at {}", called(place)))?;
        let from = |bits: usize| match bits {
            0 => "0".to_owned(),
            bits => format::count(1 << (bits - 1)),
        };
        bars(&cells[..], from).iter().try_for_each(|line| out.line(line))?;
    }
    Ok(())
}

fn failure(id: u32, error: &Error) -> Failure {
    let remedy = match error {
        Error::NoModule { .. } => "name one of these, or * for all",
        Error::NoFunction { .. } => "see `refit funcs` for what there is",
        Error::Splice(_) => "see docs/splice.md for what can be watched",
        _ => "see `refit funcs` for what there is",
    };
    Failure::new(format!("watch process {id}"), error.to_string(), remedy)
}

/// Arguments of `refit repair`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit repair -p 4711\n  refit repair -p 4711 --verify")]
pub(crate) struct RepairArgs {
    /// The process
    #[arg(short, long, value_name = "PID")]
    pid: u32,

    /// Change nothing; say whether all its code is what its files say
    #[arg(long)]
    verify: bool,
}

/// Takes out what a killed refit has left in a program, or says that there is nothing.
pub(crate) fn repair(args: &RepairArgs, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        areas: usize,
        sites: usize,
        foreign: usize,
        kept: usize,
    }
    let id = args.pid;
    let program = Program::open(id).map_err(|refusal| failure(id, &refusal.into()))?;
    if args.verify {
        return verify(&program, out);
    }
    let removed = remains::repair(&program).map_err(|why| failure(id, &why.into()))?;
    let remains::Removed { areas, sites, foreign, kept, .. } = removed;
    if out.json() {
        out.object(&Line { areas, sites, foreign, kept })?;
    } else if areas + sites + foreign + kept == 0 {
        out.line("nothing of refit's is in it")?;
    } else {
        let (sites, areas) =
            (format::counted(sites as u64, "site"), format::counted(areas as u64, "patch area"));
        out.line(&format!("{sites} taken out, {areas} given back"))?;
    }
    out.flush()?;
    if foreign + kept > 0 {
        return Err(Failure::new(
            format!("repair process {id}"),
            format!("{foreign} sites were changed by somebody else, {kept} patch areas are in use"),
            "end the other tool first; ask again for areas that are in use",
        ));
    }
    Ok(())
}

fn verify(program: &Program, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        files: usize,
        areas: usize,
        differences: Vec<String>,
    }
    let id = program.id();
    let failed =
        |obstacle: String| Failure::new(format!("verify process {id}"), obstacle, "try as root");
    let mapped = modules::of(program).map_err(|refusal| failed(refusal.to_string()))?;
    let mut differences = Vec::new();
    for file in &mapped {
        let found =
            file.differences(program).map_err(|e| failed(format!("{}: {e}", file.name())))?;
        differences.extend(found.iter().map(|address| format!("{}: {address:#x}", file.name())));
    }
    let areas = remains::find(program).map_err(|refusal| failed(refusal.to_string()))?.len();
    if out.json() {
        out.object(&Line { files: mapped.len(), areas, differences: differences.clone() })?;
    } else {
        out.line(&format!(
            "{} of code compared, {}",
            format::counted(mapped.len() as u64, "file"),
            if differences.is_empty() { "all as on disk" } else { "not all as on disk" }
        ))?;
    }
    out.flush()?;
    if differences.is_empty() && areas == 0 {
        return Ok(());
    }
    let mut obstacle = format!("{areas} patch areas are mapped");
    if let Some(first) = differences.first() {
        obstacle = format!(
            "code differs from its file at {} places, first {first}; {obstacle}",
            differences.len()
        );
    }
    Err(Failure::new(
        format!("verify process {id}"),
        obstacle,
        "`refit repair` takes out what refit has put there",
    ))
}
