//! BOLT on the interpreters that refit optimises while they run: the same samples that anybody can
//! take here (no branch records), the order of blocks, cold blocks apart. Functions stay where they
//! are, since the files have no relocations. The program has to be started anew.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::server;
use crate::stacks::children_time;
use crate::stats::Sample;

/// Number of pairs of runs of the program as it is and of the other one.
const PAIRS: usize = 10;

/// An interpreter that BOLT has optimised.
pub(crate) struct Bolted {
    pub(crate) name: &'static str,
    /// Time for sampling, and for making the new file.
    pub(crate) took: [Duration; 2],
    /// The gain: how much more is done in the same processor time, in percent.
    pub(crate) gain: Sample,
    pub(crate) trouble: Option<String>,
}

pub(crate) fn measure() -> Vec<Bolted> {
    let interpreters = [
        ("perl, texts.pl", "perl", "texts.pl", "1200"),
        ("python3, texts.py", "/usr/bin/python3", "texts.py", "120"),
        ("php, texts.php", "php", "texts.php", "2500"),
    ];
    let each = interpreters.into_iter().map(|(name, program, script, rounds)| {
        eprintln!("bolt: {name}");
        let mut one =
            Bolted { name, took: Default::default(), gain: Sample::default(), trouble: None };
        one.trouble = optimise(&mut one, program, script, rounds).err();
        one
    });
    each.collect()
}

fn optimise(one: &mut Bolted, program: &str, script: &str, rounds: &str) -> Result<(), String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("loads").join(script);
    let folder = server::folder()?;
    let began = Instant::now();
    let samples = sample(program, &script, folder.path())?;
    one.took[0] = began.elapsed();
    let program = std::fs::canonicalize(found(program)?).map_err(|e| e.to_string())?;
    let new = bolt(&program, &samples, folder.path())?;
    one.took[1] = began.elapsed() - one.took[0];
    for pair in 0..PAIRS {
        // Old, new; new, old.
        let order = if pair % 2 == 0 { [&program, &new] } else { [&new, &program] };
        let mut times = order.map(|which| run(which, &script, rounds));
        if pair % 2 == 1 {
            times.reverse();
        }
        let [old, new] = times;
        one.gain.push((old? / new? - 1.0) * 100.0);
    }
    Ok(())
}

/// Returns the path of a program.
fn found(program: &str) -> Result<PathBuf, String> {
    let folders = std::env::var("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&folders).map(|folder| folder.join(program));
    all.find(|path| path.is_file()).ok_or(format!("there is no {program}"))
}

/// Samples a program that works for ever for some seconds.
fn sample(program: &str, script: &Path, folder: &Path) -> Result<PathBuf, String> {
    let mut works = quiet(Command::new(program).arg(script)).spawn().map_err(|e| e.to_string())?;
    let samples = folder.join("samples");
    let id = works.id().to_string();
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "4000", "-p", &id, "-o"]).arg(&samples);
    let sampled = ends(perf.args(["--", "sleep", "5"]));
    works.kill().and_then(|()| works.wait()).map_err(|e| e.to_string())?;
    sampled.map(|()| samples)
}

fn bolt(program: &Path, samples: &Path, folder: &Path) -> Result<PathBuf, String> {
    let (profile, new) = (folder.join("profile"), folder.join("program"));
    let mut aggregate = Command::new("llvm-bolt-16");
    aggregate.args(["-aggregate-only", "-nl", "-p"]).arg(samples).arg("-o").arg(&profile);
    ends(aggregate.arg(program))?;
    let mut optimise = Command::new("llvm-bolt-16");
    optimise.arg(program).arg("-o").arg(&new).arg("-data").arg(&profile);
    optimise.args(["-reorder-blocks=ext-tsp", "-split-functions", "-split-all-cold"]);
    ends(&mut optimise)?;
    Ok(new)
}

/// Runs a program to its end; returns the processor time.
fn run(program: &Path, script: &Path, rounds: &str) -> Result<f64, String> {
    let before = children_time()?;
    ends(Command::new(program).arg(script).arg(rounds))?;
    Ok((children_time()? - before).as_secs_f64())
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn ends(command: &mut Command) -> Result<(), String> {
    let ended = quiet(command).status().map_err(|e| format!("{command:?}: {e}"))?;
    if ended.success() { Ok(()) } else { Err(format!("{command:?}: {ended}")) }
}
