//! `refit drill`: shows where the time in a function goes, level by level.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;
use refit_instruments::export;
use refit_probe::drill::{self, Files, Level, Measured, Share, Silent, Spot};
use refit_probe::watch::Error;
use refit_splice::process::Program;
use serde::Serialize;

use super::flame;
use super::probe::tell_kept;
use super::program::{failure, open};
use super::watching::Course;
use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;
use crate::table::{Align, Table};

/// The width of the widest bar, in characters.
const BAR: f64 = 20.0;

/// Arguments of `refit drill`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit drill -p 4711 processCommand
  refit drill -p 4711 libsqlite3:sqlite3_step --for 5s --svg step.svg

At each level, drill measures one function and its calls to each callee, then descends into the slowest callee. SHARE is the share of the first \
function's time. Jumps to other functions, and calls that cannot be measured, count as own time. drill removes all its probes between levels \
and at the end.")]
pub(crate) struct DrillArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID")]
    pid: u32,

    /// Function to begin with: NAME or FILE:NAME, with * and ? as wildcards
    #[arg(value_name = "FUNCTION")]
    function: String,

    /// Time to measure each level
    #[arg(long = "for", value_parser = format::parse_duration, value_name = "TIME", default_value = "2s")]
    time: Duration,

    /// Maximum number of levels
    #[arg(long, value_name = "LEVELS", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    depth: u32,

    /// Descend only into a callee with at least this share of the time, in percent
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
    share: f64,

    /// Draw a flame graph to this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

/// Parses `10` or `10%`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>().ok();
    let share = number.filter(|number| (0.0..=100.0).contains(number));
    share.map(|share| share / 100.0).ok_or(format!("`{text}` is not from 0% to 100%"))
}

/// A function on the path.
struct Step {
    name: String,
    spot: Spot,
    measured: Measured,
    /// Its share of the first one's time.
    share: f64,
}

impl Step {
    /// Returns `nanos` of this level as a share of the first one's time.
    fn share_of(&self, nanos: u64) -> f64 {
        if self.measured.nanos == 0 {
            return 0.0;
        }
        self.share * nanos as f64 / self.measured.nanos as f64
    }

    /// Returns the callee to continue with: the one that takes most, if it takes enough and is none
    /// of `before`.
    fn next(&self, least: f64, before: &[Step]) -> Option<&Share> {
        let callee = self.measured.callees.first()?;
        let spot = callee.function?;
        let again = before.iter().chain([self]).any(|step| step.spot == spot);
        (!again && self.share_of(callee.nanos) >= least).then_some(callee)
    }
}

/// Runs the command.
pub(crate) fn run(args: &DrillArgs, out: &mut Output) -> Result<(), Failure> {
    let interrupted = interruption()?;
    let failed = |error: Error| failure(args.pid, &error);
    let program = open(args.pid)?;
    let mut files = Files::new(&program).map_err(|refusal| failed(refusal.into()))?;
    let spot = files.find(&args.function).map_err(failed)?;
    let first = level(args, &program, &mut files, spot, &interrupted)?.map_err(|silent| {
        let remedy = match silent {
            Silent::NotCalled => "make the program call it, or measure for longer with --for",
            Silent::InCall { .. } => {
                "begin with the function that it waits for, or measure for longer with --for"
            }
        };
        Failure::new(format!("drill into {}", files.name(spot)), silent.to_string(), remedy)
    })?;
    let mut path = vec![Step { name: files.name(spot), spot, measured: first, share: 1.0 }];
    let mut stopped = None;
    while let Some(last) = path.last()
        && (path.len() as u32) < args.depth
        && !interrupted.load(Ordering::Relaxed)
        && let Some(callee) = last.next(args.share, &path[..path.len() - 1])
        && let Some(spot) = callee.function
    {
        let (name, share) = (callee.name.clone(), last.share_of(callee.nanos));
        match level(args, &program, &mut files, spot, &interrupted) {
            Ok(Ok(measured)) => path.push(Step { name, spot, measured, share }),
            Ok(Err(silent)) => {
                stopped = Some(format!("{name}: {silent}"));
                break;
            }
            // The results so far are still useful.
            Err(failure) => {
                stopped = Some(failure.to_string());
                break;
            }
        }
    }
    if out.json() {
        out.object(&record(&path, 0))?
    } else {
        print(&path, out)?
    }
    if let Some(why) = stopped {
        say!("refit: stopped descending: {}", why.trim_start_matches("refit: "));
    }
    if let Some(file) = &args.svg {
        draw(&path, file)?;
    }
    out.flush()
}

/// Measures one function.
fn level(
    args: &DrillArgs,
    program: &Program,
    files: &mut Files,
    spot: Spot,
    interrupted: &AtomicBool,
) -> Result<Result<Measured, Silent>, Failure> {
    let failed = |error: Error| failure(args.pid, &error);
    let prepared = drill::prepare(files, spot).map_err(failed)?;
    say!(
        "refit: measuring {} and {} for {}",
        files.name(spot),
        format::counted(prepared.calls() as u64, "call"),
        format::nanos(args.time.as_nanos() as u64),
    );
    let level: Level = prepared.install(program, files).map_err(failed)?;
    let course = Course { launched: false, time: Some(args.time), interval: None };
    let followed = course.follow(std::slice::from_ref(program), interrupted, |_| Ok(()));
    // In spite of errors, the program gets its code back.
    let (removed, measured) = level.finish(program, files).map_err(failed)?;
    tell_kept(program.id(), &removed);
    followed?;
    Ok(measured)
}

fn print(path: &[Step], out: &mut Output) -> Result<(), Failure> {
    let right = |title| (title, Align::Right);
    let columns =
        [right("SHARE"), ("", Align::Left), right("TIME"), right("CALLS"), ("WHERE", Align::Left)];
    let mut table = Table::new(&columns);
    rows(path, 0, &mut table);
    table.lines().iter().try_for_each(|line| out.line(line))?;
    for step in path {
        if step.measured.recursive {
            out.line(&format!(
                "{} calls itself: times of inner calls are in the outer ones too",
                step.name
            ))?;
        }
        if step.measured.lost > 0 {
            let lost = format::counted(step.measured.lost, "call");
            out.line(&format!("not measured: {lost} in {}: too many threads", step.name))?;
        }
        let unmeasured = &step.measured.unmeasured;
        if let Some((name, _, why)) = unmeasured.first() {
            let sites: usize = unmeasured.iter().map(|(_, sites, _)| sites).sum();
            let sites = format::counted(sites as u64, "call");
            out.line(&format!("not measured: {sites} in {}, as {name}: {why}", step.name))?;
        }
    }
    Ok(())
}

/// Adds rows for the function at this place of the path: its own time and its callees, with the
/// next one of the path in its place.
fn rows(path: &[Step], depth: usize, table: &mut Table) {
    let Some(step) = path.get(depth) else { return };
    let (indent, measured) = ("  ".repeat(depth), &step.measured);
    let calls = |calls| Some(format::count(calls));
    table.row(row(
        step.share,
        measured.nanos,
        calls(measured.calls),
        format!("{indent}{}", step.name),
    ));
    let within = |name: &str| format!("{indent}  {name}");
    table.row(row(step.share_of(measured.own()), measured.own(), None, within("own time")));
    let next = path.get(depth + 1).map(|next| next.spot);
    let (mut others, mut time) = (0, 0);
    for callee in &measured.callees {
        let share = step.share_of(callee.nanos);
        if callee.function.is_some() && callee.function == next {
            rows(path, depth + 1, table);
        } else if share >= FEW {
            table.row(row(share, callee.nanos, calls(callee.calls), within(&callee.name)));
        } else if callee.calls > 0 {
            others += 1;
            time += callee.nanos;
        }
    }
    if others > 0 {
        let name = within(&format::counted(others, "other"));
        table.row(row(step.share_of(time), time, None, name));
    }
}

fn row(share: f64, nanos: u64, calls: Option<String>, name: String) -> Vec<String> {
    let bar = "█".repeat((share.clamp(0.0, 1.0) * BAR).round() as usize);
    let calls = calls.unwrap_or_default();
    vec![format!("{:.1} %", share * 100.0), bar, format::nanos(nanos), calls, name]
}

/// Callees with a smaller share are shown together.
const FEW: f64 = 0.005;

/// A function and the distribution of its time, for programs.
#[derive(Serialize)]
struct DrillRecord<'p> {
    name: &'p str,
    share: f64,
    calls: u64,
    nanos: u64,
    own_share: f64,
    own_nanos: u64,
    recursive: bool,
    lost: u64,
    callees: Vec<ToldCallee<'p>>,
    unmeasured: Vec<ToldUnmeasured<'p>>,
}

#[derive(Serialize)]
struct ToldCallee<'p> {
    name: &'p str,
    share: f64,
    calls: u64,
    sites: usize,
    nanos: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    drilled: Option<Box<DrillRecord<'p>>>,
}

#[derive(Serialize)]
struct ToldUnmeasured<'p> {
    name: &'p str,
    sites: usize,
    why: &'p str,
}

fn record(path: &[Step], depth: usize) -> DrillRecord<'_> {
    let step = &path[depth];
    let measured = &step.measured;
    let next = path.get(depth + 1).map(|next| next.spot);
    let callees = measured.callees.iter().map(|callee| {
        let deeper = callee.function.is_some() && callee.function == next;
        ToldCallee {
            name: &callee.name,
            share: step.share_of(callee.nanos),
            calls: callee.calls,
            sites: callee.sites,
            nanos: callee.nanos,
            drilled: deeper.then(|| Box::new(record(path, depth + 1))),
        }
    });
    let unmeasured = measured.unmeasured.iter();
    DrillRecord {
        name: &step.name,
        share: step.share,
        calls: measured.calls,
        nanos: measured.nanos,
        own_share: step.share_of(measured.own()),
        own_nanos: measured.own(),
        recursive: measured.recursive,
        lost: measured.lost,
        callees: callees.collect(),
        unmeasured: unmeasured
            .map(|(name, sites, why)| ToldUnmeasured { name, sites: *sites, why })
            .collect(),
    }
}

/// Draws the flame graph: times of deeper levels as shares of the first one's.
fn draw(path: &[Step], file: &Path) -> Result<(), Failure> {
    let whole = path.first().map_or(0, |step| step.measured.nanos) as f64;
    let mut lines = Vec::new();
    let mut stack = String::new();
    for (depth, step) in path.iter().enumerate() {
        let separator = if depth > 0 { ";" } else { "" };
        stack += &format!("{separator}{}", export::frame(&step.name));
        let next = path.get(depth + 1).map(|next| next.spot);
        let nanos = |share: f64| (share * whole).round() as u64;
        lines.push(format!("{stack} {}", nanos(step.share_of(step.measured.own()))));
        for callee in &step.measured.callees {
            if callee.function.is_none() || callee.function != next {
                let time = nanos(step.share_of(callee.nanos));
                lines.push(format!("{stack};{} {time}", export::frame(&callee.name)));
            }
        }
    }
    let title = path.first().map_or(String::new(), |step| format!("time in {}", step.name));
    flame::draw(&title, "ns", &lines, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_with_and_without_their_sign() {
        assert_eq!(percent("10"), Ok(0.1));
        assert_eq!(percent("50 %"), Ok(0.5));
        assert!(percent("101").is_err() && percent("-1").is_err() && percent("x").is_err());
    }
}
