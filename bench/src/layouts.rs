//! Optimises programs under load, and lets the results be: figures of the code, gains as refit
//! measures them, and the work that is counted outside of refit with and without the copies: by
//! load generators, or by the lines that a program writes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refit_optimize::interval::Interval;
use refit_optimize::layout::Figures;
use refit_optimize::prove::LOOKS;
use refit_optimize::{Options, Outcome, Step, Verdict, optimize};
use refit_splice::Installed;
use refit_splice::process::{Program, Refusal, STOP_TIMEOUT, Still, Stops};
use refit_splice::remains;

use crate::server::{self, Load, Start};
use crate::stats::Sample;
use crate::worker::Worker;

/// Number of pairs of loads with and without the copies.
const ROUNDS: usize = 6;
/// libclang, which the script that uses it expects as its argument.
const CLANG: &str = "/usr/lib/llvm-16/lib/libclang-16.so.1";

/// A program that has been optimised, or not.
pub(crate) struct LaidOut {
    pub(crate) name: &'static str,
    /// Functions and blocks, and the code before and after.
    pub(crate) laid_out: Option<(usize, usize, Figures, Figures)>,
    pub(crate) outcome: Option<Outcome>,
    /// Stops of the program in which nothing was done.
    pub(crate) empty_stops: Stops,
    /// Time from the beginning to the verdict, and how much of that the copies in the old order
    /// took, which are measured for longer than `refit optimize` does.
    pub(crate) took: Duration,
    pub(crate) placebo: Duration,
    /// Requests, or units of work, per second without and with the copies.
    pub(crate) rates: Option<[Sample; 2]>,
    pub(crate) trouble: Option<String>,
}

pub(crate) fn measure() -> Vec<LaidOut> {
    let servers = [
        ("mariadbd, sysbench oltp_point_select", server::mariadb as Start),
        ("a backend of postgres, pgbench -S", server::postgres_backend),
        ("redis-server, SET and GET", server::redis),
        ("refit mount, small files read", server::refit),
    ];
    let scripts = [
        ("perl, texts.pl", "perl", "texts.pl"),
        ("python3, texts.py", "/usr/bin/python3", "texts.py"),
        ("php, texts.php", "php", "texts.php"),
    ];
    let servers = servers.into_iter().map(|(name, start)| noted(name, |one| serve(start, one)));
    let scripts = scripts
        .into_iter()
        .map(|(name, with, script)| noted(name, |one| script_of(with, script, one)));
    let clang = std::iter::once_with(|| noted("libclang, parse.py", clang));
    let models = [("a model of verilator, 100 units", "100"), ("the same, 400 units", "400")];
    let models = models.into_iter().map(|(name, units)| noted(name, |one| model(units, one)));
    servers.chain(scripts).chain(clang).chain(models).collect()
}

fn noted(name: &'static str, measure: impl FnOnce(&mut LaidOut) -> Result<(), String>) -> LaidOut {
    eprintln!("optimize: {name}");
    let (laid_out, outcome, empty_stops) = Default::default();
    let (took, placebo, rates, trouble) = Default::default();
    let mut one = LaidOut { name, laid_out, outcome, empty_stops, took, placebo, rates, trouble };
    one.trouble = measure(&mut one).err();
    one
}

/// Returns a file of the loads.
pub(crate) fn load(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("loads").join(name)
}

/// Optimises a script's interpreter; the script works for ever.
fn script_of(with: &str, script: &str, one: &mut LaidOut) -> Result<(), String> {
    run(Command::new(with).arg(load(script)), None, one)
}

/// Optimises a compiler's library, which has tens of megabytes of code.
fn clang(one: &mut LaidOut) -> Result<(), String> {
    let mut python = Command::new("/usr/bin/python3");
    run(python.arg(load("parse.py")).arg(CLANG), Some("libclang"), one)
}

/// Optimises a model of hardware, which is a program with much code.
fn model(units: &str, one: &mut LaidOut) -> Result<(), String> {
    let folder = server::folder()?;
    let design = Command::new("python3").arg(load("model.py")).arg(units).output();
    let design = design.map_err(|e| e.to_string())?.stdout;
    std::fs::write(folder.path().join("model.v"), design).map_err(|e| e.to_string())?;
    let mut build = Command::new("verilator");
    build.args(["--cc", "--exe", "--build", "-Wno-fatal", "-O3", "-CFLAGS", "-O2", "-j", "2"]);
    build.args(["--top-module", "model", "model.v"]).arg(load("model.cc"));
    let built = build.current_dir(folder.path()).output().map_err(|e| e.to_string())?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    run(&mut Command::new(folder.path().join("obj_dir/Vmodel")), None, one)
}

/// Optimises a file of a program that works for ever.
fn run(command: &mut Command, file: Option<&str>, one: &mut LaidOut) -> Result<(), String> {
    let worker = Worker::start(command)?;
    let program = Program::open(worker.id()).map_err(|e| e.to_string())?;
    optimise(&program, file, one)?;
    one.rates = with_and_without(&program, one, &|| worker.rate())?;
    remains::repair(&program).map(drop).map_err(|e| e.to_string())
}

/// Optimises a server while it is loaded, then loads it with and without the copies.
fn serve(start: Start, one: &mut LaidOut) -> Result<(), String> {
    let folder = server::folder()?;
    let serving = start(folder.path())?;
    let program = Program::open(serving.worker()?).map_err(|e| e.to_string())?;
    (serving.load)()?;
    while_loaded(&serving.load, || optimise(&program, None, one))?;
    one.rates = with_and_without(&program, one, &serving.load)?;
    remains::repair(&program).map(drop).map_err(|e| e.to_string())
}

/// Counts what is done per second without the copies and with them, if they were kept.
fn with_and_without(
    program: &Program,
    one: &LaidOut,
    load: &dyn Fn() -> Result<f64, String>,
) -> Result<Option<[Sample; 2]>, String> {
    let installed = one.outcome.as_ref().and_then(|outcome| outcome.installed.as_ref());
    installed.map(|installed| compare(program, installed, 2 * ROUNDS, load)).transpose()
}

/// Measures something without the copies and with them, in turns.
pub(crate) fn compare(
    program: &Program,
    installed: &Installed,
    rounds: usize,
    mut measure: impl FnMut() -> Result<f64, String>,
) -> Result<[Sample; 2], String> {
    let mut samples = [Sample::default(), Sample::default()];
    for round in 0..rounds {
        // With, without, without, with.
        let with = matches!(round % 4, 0 | 3);
        let changed =
            if with { installed.enter(program, || ()) } else { installed.leave(program, || ()) };
        changed.map_err(|e| e.to_string())?;
        samples[usize::from(with)].push(measure()?);
    }
    Ok(samples)
}

fn optimise(program: &Program, file: Option<&str>, one: &mut LaidOut) -> Result<(), String> {
    let (began, mut laid_out) = (Instant::now(), Duration::ZERO);
    let file = file.map(str::to_owned);
    let options = Options { placebo: LOOKS[LOOKS.len() - 1], file, ..Options::default() };
    let outcome = optimize(program, &options, &mut |step| {
        let now = began.elapsed();
        eprintln!("  {:.1} s: {step:?}", now.as_secs_f64());
        match step {
            Step::LaidOut(functions, blocks, before, after) => {
                one.laid_out = Some((*functions, *blocks, *before, *after));
                laid_out = now;
            }
            Step::Placebo(_) => one.placebo = now - laid_out,
            _ => {}
        }
    });
    one.took = began.elapsed();
    let outcome = outcome.map_err(|e| e.to_string())?;
    one.empty_stops = empty_stops(program.id(), outcome.stops.count)?;
    one.outcome = Some(outcome);
    Ok(())
}

/// Stops a program as often as that, and does nothing to it: what these stops take is due to the
/// machine and to its load.
fn empty_stops(id: u32, count: usize) -> Result<Stops, String> {
    let program = Program::open(id).map_err(|e| e.to_string())?;
    for _ in 0..count {
        let nothing = |_: &mut Still<'_>| Ok::<_, Refusal>(());
        program.stand_still(STOP_TIMEOUT, nothing).map_err(|e| e.to_string())?;
        // The program works meanwhile for as long as in a slot of a proof: it is stopped while it
        // runs, and with as much in its caches.
        thread::sleep(Options::default().slot);
    }
    Ok(program.stops())
}

/// Loads a server again and again while something is done.
pub(crate) fn while_loaded(
    load: &Load,
    work: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), String> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            // Relaxed: only the end of the loop depends on it.
            done.store(true, Ordering::Relaxed);
            result
        });
        let mut loaded = Ok(());
        while loaded.is_ok() && !done.load(Ordering::Relaxed) {
            loaded = load().map(drop);
        }
        let worked = worker.join().map_err(|_| "the optimisation has panicked".to_owned())?;
        loaded.and(worked)
    })
}

/// Returns a gain and its interval in percent.
pub(crate) fn percent(gain: &Interval) -> String {
    let [estimate, low, high] = [gain.estimate, gain.low, gain.high].map(|part| part * 100.0);
    format!("{estimate:+.1} ({low:+.1} – {high:+.1})")
}

/// Returns a verdict in a word.
pub(crate) fn verdict(outcome: &Outcome) -> &'static str {
    match outcome.verdict {
        Verdict::Kept(_) => "kept",
        Verdict::Undone(_) => "undone",
        Verdict::Unproved | Verdict::FromProfile | Verdict::Rehearsed => "not proved",
    }
}
