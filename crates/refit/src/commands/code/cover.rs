//! `refit cover`: reports the basic blocks of a program that are reached.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::ValueHint;
use refit_probe::cover::{self, Blocks, Cover, Function, Prepared, Tally, Watching};
use refit_probe::watch::Error;
use refit_probe::{drcov, lcov};
use refit_splice::process::Program;
use serde::Serialize;

use super::probe::tell_kept;
use super::program::{failure, open, stopped};
use super::watching::{self, Course, Turn};
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;
use crate::table::{Align, Table};

/// The interval at which flags are checked, and newly loaded files.
const LOOK: Duration = Duration::from_millis(100);
/// Number of blocks that are reported if they are counted.
const HOTTEST: usize = 20;

/// Arguments of `refit cover`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit cover -p 4711
  refit cover --module '*' --functions -- sqlite3 data.db 'select count(*) from t'
  refit cover --drcov run.drcov -- ./server
  refit cover --counts --lcov run.info -- ./server

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

    /// Count how often each block runs, as RUNS; the probes stay until the end
    #[arg(long)]
    counts: bool,

    /// Report this many of the blocks that run most often (default: 20)
    #[arg(long, value_name = "N", requires = "counts")]
    hottest: Option<usize>,

    /// Report also each function
    #[arg(long)]
    functions: bool,

    /// Write the reached blocks to this file in drcov format, for Lighthouse, Ghidra and others
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    drcov: Option<PathBuf>,

    /// Write the lines of source that were run to this file in LCOV format, for genhtml and others;
    /// needs debug information
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    lcov: Option<PathBuf>,

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
    let watching = if args.counts { Watching::Counters } else { Watching::Flags };
    let prepared = cover::prepare(&program, &args.modules, which, watching).map_err(failed)?;
    tell_refused(&prepared);
    let mut cover = prepared.install(&program).map_err(failed)?;
    say!(
        "refit: watching {} of process {id}, which was stopped for {}; Ctrl-C ends",
        format::counted(cover.left() as u64, "block"),
        stopped(cover.stood()),
    );
    let mut arrived = Vec::new();
    let course = Course { launched: args.pid.is_none(), time: args.time, interval: args.interval };
    let mut next = Instant::now();
    let followed = course.follow(std::slice::from_ref(&program), interrupted, |turn| match turn {
        Turn::Tell => {
            look(&mut cover)?;
            print(&cover, args, out).and_then(|()| out.flush())
        }
        Turn::Look if Instant::now() < next => Ok(()),
        Turn::Look => {
            next = Instant::now() + LOOK;
            // Counters stay, so they are read when they are printed.
            if !args.counts {
                look(&mut cover)?;
                // A thread that cannot be stopped now (it waits for a vfork, a debugger has it) can
                // be later; failures are reported at the end.
                let _ = cover.relieve(&program, Instant::now());
            }
            tell_arrivals(&cover, &program, &args.modules, &mut arrived);
            Ok(())
        }
    });
    // In spite of errors of the output, the program gets its code back.
    let removed = cover.remove(&program);
    followed?;
    tell_relieved(&cover);
    print(&cover, args, out)?;
    write_files(&cover, args)?;
    tell_kept(program.id(), &removed.map_err(|why| failed(why.into()))?);
    out.flush()
}

fn look(cover: &mut Cover) -> Result<(), Failure> {
    cover.look().map_err(|e| Failure::new("read the reached blocks", e.to_string(), "try again"))
}

fn tell_arrivals(cover: &Cover, program: &Program, modules: &[String], arrived: &mut Vec<String>) {
    if modules.is_empty() {
        return;
    }
    for name in cover.arrivals(program, modules).unwrap_or_default() {
        if !arrived.contains(&name) {
            say!("refit: not watched: {name} was loaded after the start");
            arrived.push(name);
        }
    }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<u64>,
}

/// A block that was counted, for programs.
#[derive(Serialize)]
struct BlockRecord<'c> {
    module: &'c str,
    function: &'c str,
    block: u64,
    size: u64,
    runs: u64,
}

/// A file, with the coverage of its functions and their total.
struct Seen<'c> {
    file: &'c cover::File,
    functions: Vec<(&'c Function, Tally)>,
    all: Tally,
}

impl<'c> Seen<'c> {
    fn of(cover: &'c Cover, file: &'c cover::File) -> Self {
        let functions: Vec<_> =
            file.functions.iter().map(|function| (function, cover.tally(function))).collect();
        let all = functions.iter().fold(Tally::default(), |sum, (_, tally)| sum.and(*tally));
        Self { file, functions, all }
    }

    fn entered(&self) -> u64 {
        self.functions.iter().filter(|(_, tally)| tally.reached > 0).count() as u64
    }

    fn objects(&self, args: &CoverArgs, out: &mut Output) -> Result<(), Failure> {
        let record = |tally: Tally| CoverageRecord {
            module: &self.file.name,
            function: None,
            address: None,
            functions: None,
            functions_reached: None,
            reached: tally.reached,
            watched: tally.watched,
            blocks: tally.blocks,
            runs: args.counts.then_some(tally.runs),
        };
        out.object(&CoverageRecord {
            functions: Some(self.functions.len() as u64),
            functions_reached: Some(self.entered()),
            ..record(self.all)
        })?;
        let functions = if args.functions { &self.functions[..] } else { &[] };
        functions.iter().try_for_each(|(function, tally)| {
            let (name, address) = (Some(&*function.name), Some(function.address));
            out.object(&CoverageRecord { function: name, address, ..record(*tally) })
        })
    }
}

fn print(cover: &Cover, args: &CoverArgs, out: &mut Output) -> Result<(), Failure> {
    let seen: Vec<Seen<'_>> = cover.files.iter().map(|file| Seen::of(cover, file)).collect();
    if out.json() {
        seen.iter().try_for_each(|seen| seen.objects(args, out))?;
    } else {
        print_files(&seen, args, out)?;
        for seen in seen.iter().filter(|_| args.functions) {
            print_functions(seen, args, out)?;
        }
    }
    if args.counts { print_hottest(cover, args.hottest.unwrap_or(HOTTEST), out) } else { Ok(()) }
}

/// Returns a table with the columns of numbers, and these.
fn table(args: &CoverArgs, others: &[(&'static str, Align)]) -> Table {
    let columns = ["SHARE", "REACHED", "WATCHED", "BLOCKS", "RUNS"].map(|it| (it, Align::Right));
    let numbers = if args.counts { &columns[..] } else { &columns[..4] };
    Table::new(&[numbers, others].concat())
}

fn numbers(args: &CoverArgs, tally: Tally) -> Vec<String> {
    let counts = [tally.reached, tally.watched, tally.blocks, tally.runs].map(format::count);
    let counts = if args.counts { &counts[..] } else { &counts[..3] };
    [&[share(tally)], counts].concat()
}

fn print_files(seen: &[Seen<'_>], args: &CoverArgs, out: &mut Output) -> Result<(), Failure> {
    let mut table = table(args, &[("FUNCTIONS", Align::Right), ("FILE", Align::Left)]);
    for seen in seen {
        let of = [format::count(seen.entered()), format::count(seen.functions.len() as u64)];
        table
            .row([numbers(args, seen.all), vec![of.join(" of "), seen.file.name.clone()]].concat());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

fn print_functions(seen: &Seen<'_>, args: &CoverArgs, out: &mut Output) -> Result<(), Failure> {
    out.line("")?;
    let mut table = table(args, &[("FUNCTION", Align::Left)]);
    for (function, tally) in seen.functions.iter().filter(|(_, tally)| tally.reached > 0) {
        let name = format!("{}:{}", seen.file.name, function.name);
        table.row([numbers(args, *tally), vec![name]].concat());
    }
    table.lines().iter().try_for_each(|line| out.line(line))?;
    let never = seen.functions.len() as u64 - seen.entered();
    out.line(&format!("{} never reached", format::counted(never, "function")))
}

fn print_hottest(cover: &Cover, most: usize, out: &mut Output) -> Result<(), Failure> {
    let hottest = cover.hottest(most);
    let runs = |block| cover.runs(block).unwrap_or(0);
    if out.json() {
        return hottest.iter().try_for_each(|(file, function, block)| {
            out.object(&BlockRecord {
                module: &file.name,
                function: &function.name,
                block: block.address,
                size: block.size,
                runs: runs(block),
            })
        });
    }
    out.line("")?;
    let right = |title| (title, Align::Right);
    let mut table =
        Table::new(&[right("RUNS"), right("BYTES"), right("ADDRESS"), ("BLOCK", Align::Left)]);
    for (file, function, block) in hottest {
        let distance = block.address.wrapping_sub(function.address).cast_signed();
        let sign = if distance < 0 { '-' } else { '+' };
        let name = format!("{}:{}{sign}{:#x}", file.name, function.name, distance.unsigned_abs());
        let numbers = [format::count(runs(block)), format::count(block.size)];
        table.row([&numbers[..], &[format!("{:#x}", block.address), name]].concat());
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}

/// Returns the share of watched blocks that were reached.
fn share(tally: Tally) -> String {
    let tenths = (tally.reached * 1000).checked_div(tally.watched);
    tenths.map_or("-".to_owned(), |tenths| format!("{}.{} %", tenths / 10, tenths % 10))
}

/// Writes the files that are asked for.
fn write_files(cover: &Cover, args: &CoverArgs) -> Result<(), Failure> {
    if let Some(path) = &args.drcov {
        write_to(path, |to| drcov::write(cover, to))?;
    }
    let Some(path) = &args.lcov else { return Ok(()) };
    let without = write_to(path, |to| lcov::write(cover, to))?;
    for name in without {
        say!("refit: no lines of {name}: it has no debug information; install its -dbgsym package");
    }
    Ok(())
}

fn write_to<R>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<R>,
) -> Result<R, Failure> {
    let written = File::create(path).map(BufWriter::new).and_then(|mut to| {
        let written = write(&mut to)?;
        to.flush()?;
        Ok(written)
    });
    written.map_err(|e| {
        Failure::new(
            format!("write {}", path.display()),
            e.to_string(),
            "make room, or name a file that you may write to",
        )
    })
}
