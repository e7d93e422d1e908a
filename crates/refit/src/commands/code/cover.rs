//! `refit cover`: reports the basic blocks of a program that are reached.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::ValueHint;
use refit_probe::cover::{self, Blocks, Cover, File, Function, Prepared, Tally};
use refit_probe::drcov;
use refit_probe::watch::Error;
use refit_splice::process::Program;
use serde::Serialize;

use super::probe::tell_kept;
use super::program::{failure, open};
use super::watching::{self, Course, Turn};
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;
use crate::table::{Align, Table};

/// The interval at which flags are checked, and newly loaded files.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `refit cover`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit cover -p 4711
  refit cover --module '*' --functions -- sqlite3 data.db 'select count(*) from t'
  refit cover --drcov run.drcov -- ./server

cover watches each block until it is reached, and then removes the probe. It does not watch blocks without room for a jump; SHARE is the share \
of watched blocks. It reports, but does not watch, libraries that the program loads later. Ctrl-C prints the result and removes all probes.")]
pub(crate) struct CoverArgs {
    /// Watch the process with this ID
    #[arg(short, long, value_name = "PID", required_unless_present = "command")]
    #[arg(conflicts_with = "command")]
    pid: Option<u32>,

    /// Watch mapped files whose path or file name matches; may be repeated (default: the program
    /// itself)
    #[arg(long = "module", value_name = "GLOB")]
    modules: Vec<String>,

    /// Watch also blocks without room for a jump: their functions run in copies, whose probes stay
    /// until the end
    #[arg(long)]
    all: bool,

    /// Report also each function
    #[arg(long)]
    functions: bool,

    /// Write the reached blocks to this file in drcov format, for Lighthouse, Ghidra and others
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    drcov: Option<PathBuf>,

    /// Print the result so far at this interval
    #[arg(long, value_parser = format::parse_duration, value_name = "TIME")]
    interval: Option<Duration>,

    /// End after this time (default: when the program ends, or at Ctrl-C)
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME")]
    time: Option<Duration>,

    /// Program to start, and to watch from its first instruction
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &CoverArgs, out: &mut Output) -> Result<(), Failure> {
    let interrupted = interruption()?;
    watching::with(args.pid, &args.command, false, |id| watch(args, id, &interrupted, out))
}

fn watch(
    args: &CoverArgs,
    id: u32,
    interrupted: &AtomicBool,
    out: &mut Output,
) -> Result<(), Failure> {
    let failed = |error: Error| failure(id, &error);
    let program = open(id)?;
    let which = if args.all { Blocks::All } else { Blocks::Roomy };
    let prepared = cover::prepare(&program, &args.modules, which).map_err(failed)?;
    tell_refused(&prepared);
    let mut cover = prepared.install(&program).map_err(failed)?;
    let stood = cover.stood();
    say!(
        "refit: watching {} of process {id}, which was stopped for {}; Ctrl-C ends",
        format::counted(cover.left() as u64, "block"),
        format::nanos((stood.preparing + stood.changing).as_nanos() as u64),
    );
    let mut arrived = Vec::new();
    let course = Course { launched: args.pid.is_none(), time: args.time, interval: args.interval };
    let mut next = Instant::now();
    let followed = course.follow(std::slice::from_ref(&program), interrupted, |turn| match turn {
        Turn::Tell => print(&cover, args.functions, out).and_then(|()| out.flush()),
        Turn::Look if Instant::now() < next => Ok(()),
        Turn::Look => {
            next = Instant::now() + LOOK;
            look(&mut cover, &program, &args.modules, &mut arrived)
        }
    });
    // In spite of errors of the output, the program gets its code back.
    let removed = cover.remove(&program);
    followed?;
    tell_relieved(&cover);
    print(&cover, args.functions, out)?;
    if let Some(path) = &args.drcov {
        write_drcov(&cover, path)?;
    }
    tell_kept(program.id(), &removed.map_err(|why| failed(why.into()))?);
    out.flush()
}

fn look(
    cover: &mut Cover,
    program: &Program,
    modules: &[String],
    arrived: &mut Vec<String>,
) -> Result<(), Failure> {
    cover
        .look()
        .map_err(|e| Failure::new("read the reached blocks", e.to_string(), "try again"))?;
    // A thread that cannot be stopped now (it waits for a vfork, a debugger has it) can be later;
    // failures are reported at the end.
    let _ = cover.relieve(program, Instant::now());
    if modules.is_empty() {
        return Ok(());
    }
    for name in cover.arrivals(program, modules).unwrap_or_default() {
        if !arrived.contains(&name) {
            say!("refit: not watched: {name} was loaded after the start");
            arrived.push(name);
        }
    }
    Ok(())
}

fn tell_refused(prepared: &Prepared) {
    for (&why, &blocks) in &prepared.refused {
        say!("refit: not watched: {}: {why}", format::counted(blocks, "block"));
    }
}

fn tell_relieved(cover: &Cover) {
    let relieved = cover.relieved;
    if cover.stops > 0 {
        say!(
            "refit: {} removed when reached, in {} of {} at most; {} left",
            format::counted(relieved.sites as u64, "site"),
            format::counted(cover.stops as u64, "stop"),
            format::nanos(relieved.stood.as_nanos() as u64),
            format::count(cover.left() as u64),
        );
    }
}

/// The coverage of a file or of a function, for programs.
#[derive(Serialize)]
struct CoverageRecord<'c> {
    module: &'c str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    functions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    functions_reached: Option<u64>,
    reached: u64,
    watched: u64,
    blocks: u64,
}

/// A file, with the coverage of its functions and their total.
struct Seen<'c> {
    file: &'c File,
    functions: Vec<(&'c Function, Tally)>,
    all: Tally,
}

impl<'c> Seen<'c> {
    fn of(cover: &'c Cover, file: &'c File) -> Self {
        let functions: Vec<_> =
            file.functions.iter().map(|function| (function, cover.tally(function))).collect();
        let all = functions.iter().fold(Tally::default(), |sum, (_, tally)| sum.and(*tally));
        Self { file, functions, all }
    }

    fn entered(&self) -> u64 {
        self.functions.iter().filter(|(_, tally)| tally.reached > 0).count() as u64
    }

    fn objects(&self, each: bool, out: &mut Output) -> Result<(), Failure> {
        let record = |tally: Tally| CoverageRecord {
            module: &self.file.name,
            function: None,
            address: None,
            functions: None,
            functions_reached: None,
            reached: tally.reached,
            watched: tally.watched,
            blocks: tally.blocks,
        };
        out.object(&CoverageRecord {
            functions: Some(self.functions.len() as u64),
            functions_reached: Some(self.entered()),
            ..record(self.all)
        })?;
        let functions = if each { &self.functions[..] } else { &[] };
        functions.iter().try_for_each(|(function, tally)| {
            let (name, address) = (Some(&*function.name), Some(function.address));
            out.object(&CoverageRecord { function: name, address, ..record(*tally) })
        })
    }
}

fn print(cover: &Cover, each: bool, out: &mut Output) -> Result<(), Failure> {
    let seen: Vec<Seen<'_>> = cover.files.iter().map(|file| Seen::of(cover, file)).collect();
    if out.json() {
        return seen.iter().try_for_each(|seen| seen.objects(each, out));
    }
    let right = |title| (title, Align::Right);
    let numbers = [right("SHARE"), right("REACHED"), right("WATCHED"), right("BLOCKS")];
    let cells = |tally: Tally| {
        let counts = [tally.reached, tally.watched, tally.blocks].map(format::count);
        [vec![share(tally)], counts.to_vec()].concat()
    };
    let mut table =
        Table::new(&[&numbers[..], &[("FUNCTIONS", Align::Right), ("FILE", Align::Left)]].concat());
    for seen in &seen {
        let of = [format::count(seen.entered()), format::count(seen.functions.len() as u64)];
        table.row([cells(seen.all), vec![of.join(" of "), seen.file.name.clone()]].concat());
    }
    table.lines().iter().try_for_each(|line| out.line(line))?;
    for seen in seen.iter().filter(|_| each) {
        out.line("")?;
        let mut table = Table::new(&[&numbers[..], &[("FUNCTION", Align::Left)]].concat());
        for (function, tally) in seen.functions.iter().filter(|(_, tally)| tally.reached > 0) {
            let name = format!("{}:{}", seen.file.name, function.name);
            table.row([cells(*tally), vec![name]].concat());
        }
        table.lines().iter().try_for_each(|line| out.line(line))?;
        let never = seen.functions.len() as u64 - seen.entered();
        out.line(&format!("{} never reached", format::counted(never, "function")))?;
    }
    Ok(())
}

/// Returns the share of watched blocks that were reached.
fn share(tally: Tally) -> String {
    let tenths = (tally.reached * 1000).checked_div(tally.watched);
    tenths.map_or("-".to_owned(), |tenths| format!("{}.{} %", tenths / 10, tenths % 10))
}

fn write_drcov(cover: &Cover, path: &std::path::Path) -> Result<(), Failure> {
    let written = std::fs::File::create(path).map(std::io::BufWriter::new).and_then(|mut to| {
        drcov::write(cover, &mut to)?;
        to.flush()
    });
    written.map_err(|e| {
        Failure::new(
            format!("write {}", path.display()),
            e.to_string(),
            "make room, or name a file that you may write to",
        )
    })
}
