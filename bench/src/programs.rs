//! Measures programs of Debian with all their functions watched at once, libraries included: first
//! entries and exits, then every basic block.
//!
//! Each program runs by turns unmodified, with `{ count, latency }` at every function, and with a
//! flag at every block (whole functions run in copies where blocks are short; flags stay). Its
//! output must be the same each time. The time is that from its first instruction to its end, so it
//! does not include the analysis.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use refit_probe::cover::{self, Blocks, Tally, Watching};
use refit_probe::watch;
use refit_splice::StopTimes;
use refit_splice::process::Program;
use rustix::process::{Pid, Signal, kill_process};

use crate::stats::Sample;

const ROUNDS: usize = 3;
const SQL: &str = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 1000000) \
                   select sum(x), max(x % 7), count(distinct x % 1000) from c";
const PYTHON: &str = "import json, hashlib\nfor i in range(20):\n  \
                      t = json.dumps(list(range(50000)))\nprint(len(json.loads(t)), hashlib.sha256(t.encode()).hexdigest())";
const PERL: &str = "my %h; $h{$_ % 1000} .= chr(65 + $_ % 26) for 1 .. 1000000; \
                    print join(q(,), map { length $h{$_} } sort keys %h)";
const NODE: &str = "const { createHash } = require('crypto'), words = new Map();\n\
                    for (let i = 0; i < 300000; i++) words.set('w' + i * 7 % 1009, (words.get('w' + i * 7 % 1009) || 0) + i);\n\
                    const text = JSON.stringify([...words].sort());\n\
                    console.log(createHash('sha256').update(text).digest('hex'), text.match(/[0-9]+/g).length, text.length);";
const BASH: &str = "for ((i = 0; i < 30000; i++)); do x=${x:0:100}$((i * i)); done; echo $x";

/// The watched parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Nothing,
    Functions,
    Blocks,
}

/// The results of one program.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    /// The number of functions that are watched, and of all.
    pub(crate) functions: (usize, usize),
    /// The number of functions of each file whose entry can be watched, and of all.
    pub(crate) entries: BTreeMap<String, (usize, usize)>,
    /// The number of changes: jumps, short jumps, copies of functions.
    pub(crate) ways: [usize; 3],
    pub(crate) blocks: Tally,
    /// The time for which the program was stopped, in ms, for functions and for blocks.
    pub(crate) stood: [Sample; 2],
    /// Run time in seconds: unmodified, with functions watched, with blocks watched.
    pub(crate) took: [Sample; 3],
    pub(crate) same: bool,
    pub(crate) trouble: Option<String>,
    /// The reason that its blocks could not be watched, if only its functions could.
    pub(crate) no_blocks: Option<String>,
}

pub(crate) fn measure() -> Vec<Measured> {
    let own = std::env::current_exe().unwrap_or_default();
    let refit = std::env::var("REFIT").unwrap_or_else(|_| "refit".to_owned());
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let own = own.to_string_lossy();
    let programs: [(&str, Vec<&str>); 8] = [
        ("sqlite3", vec!["sqlite3", ":memory:", SQL]),
        ("python3", vec!["/usr/bin/python3", "-c", PYTHON]),
        ("git log --stat", vec!["git", "-C", repository, "log", "--stat", "-100", "--format=%H"]),
        ("xz -T2", vec!["xz", "-T2", "-2", "-c", &own]),
        ("bash", vec!["bash", "-c", BASH]),
        ("perl", vec!["/usr/bin/perl", "-e", PERL]),
        ("node", vec!["node", "-e", NODE]),
        ("refit (Rust)", vec![&refit, "--json", "funcs", "-p", "/usr/bin/git"]),
    ];
    let one = |(name, command): &(&'static str, Vec<&str>)| {
        let mut measured = Measured { name, same: true, ..Measured::default() };
        measured.trouble = program(command, &mut measured).err();
        measured
    };
    programs.iter().map(one).collect()
}

fn program(command: &[&str], into: &mut Measured) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut expected = None;
    // The first round fills caches, and is for the analysis.
    for round in 0..=ROUNDS {
        for (number, watched) in
            [Watched::Nothing, Watched::Functions, Watched::Blocks].into_iter().enumerate()
        {
            if watched == Watched::Blocks && into.no_blocks.is_some() {
                continue;
            }
            let said = folder.path().join("said");
            let (took, stood) = match run(command, watched, &said, into) {
                Err(why) if watched == Watched::Blocks => {
                    into.no_blocks = Some(why);
                    continue;
                }
                ended => ended?,
            };
            let output = fs::read(&said).map_err(|e| e.to_string())?;
            into.same &= *expected.get_or_insert_with(|| output.clone()) == output;
            if round == 0 {
                continue;
            }
            into.took[number].push(took);
            if number > 0 {
                let stood = stood.all();
                into.stood[number - 1].push(stood.as_secs_f64() * 1e3);
            }
        }
    }
    Ok(())
}

/// Runs the program once; returns the seconds, and the time for which it was stopped before.
fn run(
    command: &[&str],
    watched: Watched,
    said: &Path,
    into: &mut Measured,
) -> Result<(f64, StopTimes), String> {
    let output = File::create(said).map_err(|e| e.to_string())?;
    let mut started = Command::new(command[0]);
    started.args(&command[1..]).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let mut child = refit_sys::launch::at_entry(&mut started).map_err(|e| e.to_string())?;
    let ended = watch_and_end(&mut child, watched, into);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

fn watch_and_end(
    child: &mut Child,
    watched: Watched,
    into: &mut Measured,
) -> Result<(f64, StopTimes), String> {
    let program = Program::open(child.id()).map_err(|e| e.to_string())?;
    let stood = match watched {
        Watched::Nothing => StopTimes::default(),
        Watched::Functions => functions(&program, into)?,
        Watched::Blocks => blocks(&program, into)?,
    };
    let began = Instant::now();
    let process = Pid::from_raw(child.id().cast_signed()).ok_or("no number")?;
    kill_process(process, Signal::CONT).map_err(|e| e.to_string())?;
    let status = child.wait().map_err(|e| e.to_string())?;
    let took = began.elapsed().as_secs_f64();
    if status.success() { Ok((took, stood)) } else { Err(format!("it ended with {status}")) }
}

fn prepare(program: &Program, probe: &str) -> Result<watch::Prepared<'static>, String> {
    let spec = probe.parse().map_err(|e| format!("{e}"))?;
    watch::prepare(program, &[spec], None).map_err(|e| e.to_string())
}

/// Returns the entries that can be watched where nothing but entries is; a refused one is reported
/// as `FILE:FUNCTION`.
fn entries(program: &Program) -> Result<BTreeMap<String, (usize, usize)>, String> {
    let prepared = prepare(program, "uprobe:*:* { count }")?;
    let mut entries = BTreeMap::<_, (usize, usize)>::new();
    for watched in &prepared.watched {
        let (had, all) = entries.entry(watched.module.clone()).or_default();
        (*had, *all) = (*had + 1, *all + 1);
    }
    for (label, _) in &prepared.refused {
        let file = label.split_once(':').map_or(label.as_str(), |(file, _)| file);
        entries.entry(file.to_owned()).or_default().1 += 1;
    }
    Ok(entries)
}

fn functions(program: &Program, into: &mut Measured) -> Result<StopTimes, String> {
    if into.entries.is_empty() {
        into.entries = entries(program)?;
    }
    let prepared = prepare(program, "uprobe:*:* { count, latency }")?;
    into.functions = (prepared.watched.len(), prepared.watched.len() + prepared.refused.len());
    into.ways = [0; 3];
    for line in prepared.lines() {
        let way = match &line {
            line if line.contains("copy of the function") => 2,
            line if line.contains("short jump") => 1,
            _ => 0,
        };
        into.ways[way] += 1;
    }
    let watch = prepared.install(program).map_err(|e| e.to_string())?;
    Ok(watch.stood())
}

fn blocks(program: &Program, into: &mut Measured) -> Result<StopTimes, String> {
    let prepared = cover::prepare(program, &["*".to_owned()], Blocks::All, Watching::Flags);
    let cover =
        prepared.and_then(|prepared| prepared.install(program)).map_err(|e| e.to_string())?;
    let functions = cover.files.iter().flat_map(|file| &file.functions);
    into.blocks = functions.fold(Tally::default(), |all, one| all.and(cover.tally(one)));
    Ok(cover.stood())
}
