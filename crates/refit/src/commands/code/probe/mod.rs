//! `refit probe` and `refit repair`: watch functions of running programs, and clean up afterwards.

mod messages;
mod metrics;
mod outside;
mod print;
mod reading;
mod repair;
mod stacks;
mod tell;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;
use clap::error::ErrorKind;
use refit_analysis::lines::Lines;
use refit_instruments::session::Session;
use refit_probe::action::Do;
use refit_probe::script::Script;
use refit_probe::spec::{NotUnderstood, Spec};
use refit_probe::watch::{self, Error, Watch};
use refit_splice::process::Program;
use serde::Serialize;

use super::program::{failure, open, stopped};
use super::watching::{self, Course, Turn};
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

pub(crate) use repair::{RepairArgs, repair};
pub(crate) use tell::tell_kept;

use outside::Actions;
use reading::Watched;
use tell::tell_refused;
use trace::Trace;

/// Arguments of `refit probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
A probe is PLACE [/CONDITION/] { ACTION, … [by VALUE] }. \
Places, separated by commas: uprobe:FILE:FUNCTION (the entry; * and ? are wildcards), insn:FILE:0xADDRESS, insn:FILE:FUNCTION+0xOFFSET, usdt:FILE:[PROVIDER:]NAME (a static tracepoint). \
FILE is the file name of a library or of the program, or * for all. \
Actions: count, latency (calls and time from entry to exit), cpu (the same in CPU time), concurrency (threads inside), exits (the ways in which calls end), \
printf(\"FORMAT\", ARGUMENT, …), time(\"FORMAT\"), sum VALUE, avg VALUE, min VALUE, max VALUE, histogram VALUE (or latency or cpu, for the durations of calls), event [VALUE [, VALUE]] and span (records in the trace of --output). \
Values: arg0 … arg11, retval, pid, tid, cpu, registers, fields such as *(arg0 + 16), and casts of these such as (u32)arg1. \
With debug information, parameters by name and members: args->request->uri, ((struct request *)arg0)->sizes[1]. \
Conditions: numbers that are not 0, such as VALUE == 1, @NAME[KEY] or comm == \"bash\", combined with && and ||. \
Maps add up all places of a probe, in bpftrace's words: @NAME[KEY, …] = count(), sum(VALUE), avg(VALUE), min(VALUE), max(VALUE) or hist(VALUE), \
separated by semicolons; NAME and [KEY, …] may be left out. Also stats(VALUE) and lhist(VALUE, FROM, TO, STEP). \
Maps keep numbers: @NAME[KEY, …] = NUMBER, +=, ++, delete(@NAME[KEY, …]); variables too: $NAME = NUMBER. \
Numbers are computed as in C. if (CONDITION) { … } else { … } runs one of two blocks. \
Keys and arguments are values, str(VALUE) or str(VALUE, N) (the text at an address), ustack or ustack(N) (the stack with at most N frames), usym(VALUE), comm, func, probe; \
arguments also nsecs, elapsed and strftime(\"FORMAT\", nsecs). A probe of uretprobe:FILE:FUNCTION runs where the function returns. \
Several probes may follow each other, in a file too, with comments, and with BEGIN { printf(\"…\") }, END { … } and interval:s:1 { print(@NAME); clear(@NAME) }.

Example:
  refit probe -p 4711 -e 'uprobe:redis-server:lookupKey* { count }'
  refit probe -p 4711 -e 'uprobe:libc:malloc /arg0 > 4096/ { count, histogram arg0, by tid }' --interval 1s
  refit probe -p 4711 -e 'uprobe:libc:*alloc { @calls[tid] = count(); @bytes = sum(arg0) }'
  refit probe -p 4711 -e 'uprobe:libsqlite3:sqlite3_prepare_v2 { printf(\"%d %s\\n\", tid, str(arg1)) }'
  refit probe -p 4711 -e 'uprobe:libc:getaddrinfo { @start[tid] = nsecs } uretprobe:libc:getaddrinfo /@start[tid]/ { @us = hist((nsecs - @start[tid]) / 1000); delete(@start[tid]) }'
  refit probe -p 4711 -e 'uprobe:libc:malloc { @bytes[ustack] = sum(arg0) }' --for 10s --svg malloc.svg
  refit probe -e 'uprobe:libsqlite3:sqlite3_step { latency, cpu }' -- sqlite3 db 'select 1'
  refit probe -p 4711 -e 'uprobe:nginx:ngx_http_* { span }' -o nginx.trace --for 5s

Ctrl-C prints the counts and removes all probes.")]
pub(crate) struct ProbeArgs {
    /// Probe the processes with these IDs
    #[arg(short, long, value_name = "PID", required_unless_present = "command")]
    #[arg(conflicts_with = "command", value_delimiter = ',')]
    pid: Vec<u32>,

    /// Probe, or several, as below; may be repeated
    #[arg(
        short = 'e',
        long = "expression",
        value_name = "PROBE",
        required_unless_present = "script"
    )]
    probes: Vec<String>,

    /// File with probes
    #[arg(value_name = "SCRIPT", value_hint = ValueHint::FilePath)]
    script: Option<PathBuf>,

    /// Only list the places of the probes
    #[arg(short, long)]
    list: bool,

    /// With --list, show the source file and line of each place, from debug information
    #[arg(long, requires = "list")]
    lines: bool,

    /// Only print what would change in the program
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,

    /// Print the counts so far at this interval
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME")]
    interval: Option<Duration>,

    /// End after this time (default: when the program ends, or at Ctrl-C)
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    time: Option<Duration>,

    /// Print the counts as OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    openmetrics: bool,

    /// Write records of events and spans to this trace
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,

    #[command(flatten)]
    stacks: stacks::StackFiles,

    /// Program to start, and to probe from its first instruction
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Watches.
pub(crate) fn run(args: &ProbeArgs, out: &mut Output) -> Result<(), Failure> {
    let script = script(args)?;
    args.stacks.check(&script.probes)?;
    if args.openmetrics && messages::are_written(&script) {
        let obstacle = "printf writes between the metrics";
        return Err(Failure::new("watch", obstacle, "leave out --openmetrics or printf"));
    }
    let interrupted = interruption()?;
    if !args.pid.is_empty() {
        return watch(args, &script, &args.pid, &interrupted, out);
    }
    let end = args.list || args.dry_run;
    watching::with(None, &args.command, end, |id| watch(args, &script, &[id], &interrupted, out))
}

/// Returns all probes: those of the file, then the others.
fn script(args: &ProbeArgs) -> Result<Script, Failure> {
    let mut all = Script::default();
    if let Some(path) = &args.script {
        let failed = |obstacle: String, remedy| {
            Failure::new(format!("run the script {}", path.display()), obstacle, remedy)
        };
        let text = fs::read_to_string(path)
            .map_err(|e| failed(e.to_string(), "name a file that can be read"))?;
        let parsed = parse(&text);
        all.extend(parsed.map_err(|e| failed(e.to_string(), "see docs/guide/probe.md"))?);
    }
    for probe in &args.probes {
        let wrong = |error| Failure::usage(ErrorKind::ValueValidation, error);
        all.extend(parse(probe).map_err(wrong)?);
    }
    Ok(all)
}

/// Parses probes; shows the place of an error.
fn parse(text: &str) -> Result<Script, NotUnderstood> {
    let parsed = text.parse::<Script>();
    let mark = parsed.as_ref().err().and_then(NotUnderstood::mark);
    mark.iter().flatten().for_each(|line| say!("{line}"));
    parsed
}

fn watch(
    args: &ProbeArgs,
    script: &Script,
    ids: &[u32],
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    let programs: Vec<Program> = ids.iter().map(|&id| open(id)).collect::<Result<_, _>>()?;
    if args.list {
        return programs.iter().try_for_each(|program| list(program, args, &script.probes, out));
    }
    if args.dry_run {
        return programs.iter().try_for_each(|program| plan(program, &script.probes, out));
    }
    let command = match &args.command[..] {
        [] => args.pid.iter().map(|pid| format!("process {pid}")).collect(),
        command => command.to_vec(),
    };
    let trace = Trace::begin(&script.probes, args.output.as_deref(), command)?;
    let mut watched = Vec::new();
    let mut actions = Actions::new(script);
    let seen = programs
        .iter()
        .try_for_each(|program| {
            let watch = install(program, &script.probes, trace.as_ref().map(Trace::session))?;
            watched.push(Watched { program, watch });
            Ok(())
        })
        .and_then(|()| actions.begin(&watched, out))
        .and_then(|()| follow(args, &programs, &mut watched, &mut actions, interrupted, out));
    // In spite of errors of the output, the programs get their code back.
    let removed: Vec<Result<(), Failure>> = watched
        .iter()
        .map(|Watched { program, watch }| {
            let removed = watch.remove(program);
            let removed = removed.map_err(|why| failure(program.id(), &why.into()))?;
            tell_kept(program.id(), &removed);
            Ok(())
        })
        .collect();
    let ended = trace.map(|trace| trace.end(out));
    seen?;
    messages::print(&watched, out)?;
    actions.end(&watched, out)?;
    let read = actions.read(&watched)?;
    print::print(args.openmetrics, &read, watched.len() > 1, out)?;
    args.stacks.write(&read)?;
    removed.into_iter().collect::<Result<(), _>>()?;
    messages::tell_lost(&watched);
    ended.transpose()?;
    out.flush()
}

fn follow(
    args: &ProbeArgs,
    programs: &[Program],
    watched: &mut [Watched<'_>],
    actions: &mut Actions<'_>,
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    let launched = args.pid.is_empty();
    let course = Course { launched, time: args.time, interval: args.interval };
    course.follow(programs, interrupted, |turn| match turn {
        Turn::Tell => {
            let read = actions.read(watched)?;
            print::print(args.openmetrics, &read, watched.len() > 1, out)?;
            out.flush()
        }
        Turn::Look => {
            messages::print(watched, out)?;
            actions.between(watched, out)?;
            for Watched { program, watch } in watched.iter_mut() {
                // Sites that cannot be moved stay where they are; the log says why.
                let _ = watch.move_hot(program);
            }
            Ok(())
        }
    })
}

/// Inserts the probes into a program, and reports the refused places.
pub(crate) fn install(
    program: &Program,
    probes: &[Spec],
    session: Option<&Session>,
) -> Result<Watch, Failure> {
    let failed = |error: Error| failure(program.id(), &error);
    let prepared = watch::prepare(program, probes, session).map_err(failed)?;
    tell_refused(&prepared);
    let watch = prepared.install(program).map_err(failed)?;
    say!(
        "refit: watching {} of process {}, which was stopped for {}; Ctrl-C ends",
        format::counted(watch.watched.len() as u64, "place"),
        program.id(),
        stopped(watch.stood()),
    );
    Ok(watch)
}

/// A planned change of a program, for programs.
#[derive(Serialize)]
struct Planned<'a> {
    process: u32,
    change: &'a str,
}

fn plan(program: &Program, probes: &[Spec], out: &mut Output) -> Result<(), Failure> {
    // Records would need a session, and none is created for a dry run.
    let mut probes = probes.to_vec();
    for probe in &mut probes {
        let actions = probe.actions.iter_mut().map(|statement| &mut statement.what);
        for action in actions.filter(|action| action.records()) {
            *action = if action.is_timed() { Do::Latency } else { Do::Count };
        }
    }
    let prepared = watch::prepare(program, &probes, None);
    let prepared = prepared.map_err(|error| failure(program.id(), &error))?;
    tell_refused(&prepared);
    let json = out.json();
    prepared.lines().try_for_each(|change| match json {
        true => out.object(&Planned { process: program.id(), change: &change }),
        false => out.line(&change),
    })?;
    out.flush()
}

fn list(
    program: &Program,
    args: &ProbeArgs,
    probes: &[Spec],
    out: &mut Output,
) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        module: String,
        name: String,
        address: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<String>,
    }
    let found = watch::list(program, probes).map_err(|error| failure(program.id(), &error))?;
    let mut sources = BTreeMap::new();
    for (file, found) in found {
        let kind = if found.tracepoint.is_some() { "usdt" } else { "uprobe" };
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
            out.line(&format!("{kind}:{module}:{name}{line}"))?;
        }
    }
    out.flush()
}
