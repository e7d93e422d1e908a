//! Optimises programs under load, and lets the results be: figures of the code, gains as refit
//! measures them, and the requests that the load generators count with and without the copies.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refit_optimize::interval::Interval;
use refit_optimize::layout::Figures;
use refit_optimize::prove::LOOKS;
use refit_optimize::{Options, Outcome, Step, Verdict, optimize};
use refit_splice::process::Program;
use refit_splice::remains;

use crate::server::{self, Load, Start};
use crate::stats::Sample;

/// Number of pairs of loads with and without the copies.
const ROUNDS: usize = 6;

/// A program that has been optimised, or not.
pub(crate) struct LaidOut {
    pub(crate) name: &'static str,
    /// Functions and blocks, and the code before and after.
    pub(crate) laid_out: Option<(usize, usize, Figures, Figures)>,
    pub(crate) outcome: Option<Outcome>,
    /// Time from the beginning to the verdict.
    pub(crate) took: Duration,
    /// Requests per second without and with the copies.
    pub(crate) rates: Option<[Sample; 2]>,
    pub(crate) trouble: Option<String>,
}

pub(crate) fn measure() -> Vec<LaidOut> {
    let servers = [
        ("mariadbd, sysbench oltp_point_select", server::mariadb as Start),
        ("a backend of postgres, pgbench -S", server::postgres_backend),
        ("redis-server, SET and GET", server::redis),
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
    let model = std::iter::once_with(|| noted("a model of verilator, 100 units", model));
    servers.chain(scripts).chain(model).collect()
}

fn noted(name: &'static str, measure: impl FnOnce(&mut LaidOut) -> Result<(), String>) -> LaidOut {
    eprintln!("optimize: {name}");
    let (laid_out, outcome, took, rates, trouble) = Default::default();
    let mut one = LaidOut { name, laid_out, outcome, took, rates, trouble };
    one.trouble = measure(&mut one).err();
    one
}

/// Returns a file of the loads.
fn load(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("loads").join(name)
}

/// Optimises a script's interpreter; the script works for ever.
fn script_of(with: &str, script: &str, one: &mut LaidOut) -> Result<(), String> {
    run(Command::new(with).arg(load(script)), one)
}

/// Optimises a model of hardware, which is a program with much code.
fn model(one: &mut LaidOut) -> Result<(), String> {
    let folder = server::folder()?;
    let design = Command::new("python3").arg(load("model.py")).arg("100").output();
    let design = design.map_err(|e| e.to_string())?.stdout;
    std::fs::write(folder.path().join("model.v"), design).map_err(|e| e.to_string())?;
    let mut build = Command::new("verilator");
    build.args(["--cc", "--exe", "--build", "-Wno-fatal", "-O3", "-CFLAGS", "-O2", "-j", "2"]);
    build.args(["--top-module", "model", "model.v"]).arg(load("model.cc"));
    let built = build.current_dir(folder.path()).output().map_err(|e| e.to_string())?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    run(&mut Command::new(folder.path().join("obj_dir/Vmodel")), one)
}

/// Optimises a program that works for ever.
fn run(command: &mut Command, one: &mut LaidOut) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    // Only what the profile shows depends on this: an interpreter has read its script.
    thread::sleep(Duration::from_secs(1));
    let done = Program::open(child.id()).map_err(|e| e.to_string()).and_then(|program| {
        optimise(&program, one)?;
        remains::repair(&program).map(drop).map_err(|e| e.to_string())
    });
    let ended = child.kill().and_then(|()| child.wait());
    done.and_then(|()| ended.map(drop).map_err(|e| e.to_string()))
}

/// Optimises a server while it is loaded, then loads it with and without the copies.
fn serve(start: Start, one: &mut LaidOut) -> Result<(), String> {
    let folder = server::folder()?;
    let serving = start(folder.path())?;
    let program = Program::open(serving.worker()?).map_err(|e| e.to_string())?;
    (serving.load)()?;
    while_loaded(&serving.load, || optimise(&program, one))?;
    let Some(installed) = one.outcome.as_ref().and_then(|outcome| outcome.installed.as_ref())
    else {
        return Ok(());
    };
    let mut rates = [Sample::default(), Sample::default()];
    for round in 0..2 * ROUNDS {
        // With, without, without, with.
        let with = matches!(round % 4, 0 | 3);
        let changed =
            if with { installed.enter(&program, || ()) } else { installed.leave(&program, || ()) };
        changed.map_err(|e| e.to_string())?;
        rates[usize::from(with)].push((serving.load)()?);
    }
    one.rates = Some(rates);
    remains::repair(&program).map(drop).map_err(|e| e.to_string())
}

fn optimise(program: &Program, one: &mut LaidOut) -> Result<(), String> {
    let began = Instant::now();
    let options = Options { placebo: LOOKS[LOOKS.len() - 1], ..Options::default() };
    let outcome = optimize(program, &options, &mut |step| {
        eprintln!("  {:.1} s: {step:?}", began.elapsed().as_secs_f64());
        if let Step::LaidOut(functions, blocks, before, after) = step {
            one.laid_out = Some((*functions, *blocks, *before, *after));
        }
    });
    one.took = began.elapsed();
    one.outcome = Some(outcome.map_err(|e| e.to_string())?);
    Ok(())
}

/// Loads a server again and again while something is done.
fn while_loaded(
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
