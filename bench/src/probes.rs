//! Measures the cost of a probe to a program: refit's spliced code, and bpftrace's uprobe, at the
//! same function of the same process.
//!
//! The program is this one, started once more: on demand it calls a function many times and reports
//! the time. Probes are inserted and removed between rounds.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Options, Recorder};
use refit_probe::spec::Spec;
use refit_probe::watch;
use refit_splice::process::Program;

use crate::stats::Sample;
use crate::watched::Watched;

/// The argument with which the program is the watched one.
pub(crate) const ARGUMENT: &str = "--watched";

const CALLS: u64 = 4_000_000;
/// The number of calls under bpftrace, which takes a hundred times as long.
const FEW: u64 = 100_000;
const ROUNDS: usize = 11;
/// The number of rounds of peers: starting and ending bpftrace takes seconds.
const PEER_ROUNDS: usize = 5;

/// Nanoseconds per call with one thread and with two, unless stated otherwise.
#[derive(Default)]
pub(crate) struct Probes {
    pub(crate) plain: [Sample; 2],
    /// The time with each of [`PROBES`].
    pub(crate) probes: [[Sample; 2]; PROBES.len()],
    pub(crate) clock: Sample,
    /// Empty where bpftrace is not installed.
    pub(crate) uprobe: Sample,
    /// Empty where Frida is not installed.
    pub(crate) frida: Sample,
    /// The time from the start until probes count, in ms.
    pub(crate) attach: Sample,
    /// The number of functions of a library that are counted at once, and the time for which the
    /// program is stopped for it, in ms.
    pub(crate) many: usize,
    pub(crate) stood: Sample,
}

/// The measured probes; `count`, `latency` and stacks have to reach a limit.
pub(crate) const PROBES: [&str; 15] = [
    "{ count }",
    "{ latency }",
    "{ histogram arg0 }",
    "/arg0 < 0/ { count }",
    "{ count, by tid }",
    "{ count, by arg0 }",
    "{ event arg0, tid }",
    "{ cpu }",
    "/*(rsp) == 0/ { count }",
    STACKS,
    TEXTS,
    MESSAGES,
    "{ @start[tid] = nsecs }",
    "{ @calls[tid]++ }",
    "{ $n = arg0 * 3 + 1; if ($n > 1000 && tid) { @sum = sum($n / 10) } }",
];
/// The stack of the probe, of which there are at least as many frames.
pub(crate) const STACKS: &str = "{ @[ustack(20)] = count() }";
const DEPTH: u64 = 20;
/// Counts by the text that is the second argument.
pub(crate) const TEXTS: &str = "{ @[str(arg1)] = count() }";
/// Writes messages; there is room for those of a round.
pub(crate) const MESSAGES: &str = r#"{ printf("%d %d", arg0, tid) }"#;

/// A text of the usual length.
const TEXT: &std::ffi::CStr = c"select id, name from people where id = ?";

/// The function that is watched.
#[inline(never)]
fn watched_by_bench(value: u64, text: *const u8) -> u64 {
    black_box(text);
    black_box(value) + 1
}

/// Calls it many times, this deep on the stack.
#[inline(never)]
fn descend(depth: u64, calls: u64) {
    if depth > 0 {
        black_box(descend)(depth - 1, calls);
    } else {
        (0..calls).for_each(|n| _ = black_box(watched_by_bench(n, TEXT.as_ptr().cast())));
    }
    // So that the call above is not the last action, which would not stay on the stack.
    black_box(depth);
}

/// Calls the function for each line `CALLS THREADS`; answers with ns per call.
pub(crate) fn serve() {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let mut words = line.split_whitespace().filter_map(|word| word.parse().ok());
        let (Some(calls), Some(threads)) = (words.next(), words.next()) else { return };
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| descend(DEPTH, calls));
            }
        });
        println!("{}", began.elapsed().as_nanos() as f64 / calls as f64);
    }
}

/// Returns the nanoseconds per call.
fn run(served: &mut Watched, calls: u64, threads: u64) -> Result<f64, String> {
    served.ask(&format!("{calls} {threads}"))
}

pub(crate) fn measure() -> Result<Probes, String> {
    let mut served = Watched::start(ARGUMENT)?;
    let program = Program::open(served.id()).map_err(|e| e.to_string())?;
    let mut measured = Probes::default();
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let session = Session::create(Geometry::of_host()).map_err(|e| e.to_string())?;
    let recorder = Recorder::start(session, &folder.path().join("trace"), Options::default())
        .map_err(|e| e.to_string())?;
    for round in 0..=ROUNDS {
        // The first round fills caches, and is for the analysis of the program.
        let mut scratch = Probes::default();
        let into = if round == 0 { &mut scratch } else { &mut measured };
        for threads in [1, 2] {
            into.plain[threads - 1].push(run(&mut served, CALLS, threads as u64)?);
        }
        for (number, probe) in PROBES.iter().enumerate() {
            let began = Instant::now();
            let watch = put_in(&program, &format!("func:*:*watched_by_bench* {probe}"), session)?;
            if number == 0 {
                into.attach.push(began.elapsed().as_secs_f64() * 1e3);
            }
            // Fewer calls, because a record must find a slot, and a system call takes its time.
            let calls = if number < 6 { CALLS } else { FEW };
            for threads in [1, 2] {
                into.probes[number][threads - 1].push(run(&mut served, calls, threads as u64)?);
            }
            watch.remove(&program).map_err(|e| e.to_string())?;
        }
        into.clock.push(clock());
    }
    drop(recorder.stop());
    measured.uprobe = peer(&mut served, &program)?;
    // The program can end in Frida's hands: what was measured before stays.
    measured.frida = frida(&mut served, &program).unwrap_or_else(|error| {
        eprintln!("bench: not measured with Frida: {error}");
        Sample::default()
    });
    (measured.many, measured.stood) = many(session)?;
    Ok(measured)
}

fn put_in(program: &Program, probe: &str, session: &Session) -> Result<watch::Watch, String> {
    let spec: Spec = probe.parse().map_err(|e| format!("{e}"))?;
    let prepared = watch::prepare(program, &[spec], Some(session)).map_err(|e| e.to_string())?;
    prepared.install(program).map_err(|e| e.to_string())
}

/// Returns the nanoseconds to read the time-stamp counter, in a loop.
fn clock() -> f64 {
    let began = Instant::now();
    (0..FEW).for_each(|_| _ = black_box(refit_sys::clock::counter()));
    began.elapsed().as_nanos() as f64 / FEW as f64
}

/// Measures the same function counted by bpftrace; returns an empty sample where it is not
/// installed.
fn peer(served: &mut Watched, program: &Program) -> Result<Sample, String> {
    let mut sample = Sample::default();
    let spec: Spec = "func:*:*watched_by_bench* { count }".parse().map_err(|e| format!("{e}"))?;
    let found = watch::list(program, &[spec]).map_err(|e| e.to_string())?;
    let (file, found) = found.first().ok_or("the function is not there")?;
    let probe = format!("uprobe:{}:{} {{ @ = count(); }}", file.path.display(), found.name);
    for _ in 0..PEER_ROUNDS {
        let mut command = Command::new("bpftrace");
        command.args(["-B", "line", "-p", &served.id().to_string(), "-e", &probe]);
        let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            return Ok(sample);
        };
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        // bpftrace announces that it attaches, and then does.
        let attaching = output.read_line(&mut line).is_ok_and(|bytes| bytes > 0);
        let plain = run(served, FEW, 1)?;
        let began = Instant::now();
        let mut cost = 0.0;
        while attaching && began.elapsed() < Duration::from_secs(20) && cost < 20.0 * plain.max(1.0)
        {
            cost = run(served, FEW, 1)?;
        }
        if attaching {
            sample.push(run(served, FEW, 1)?);
        }
        end_peer(&mut child)?;
    }
    Ok(sample)
}

/// Measures the same function counted by Frida, in C; returns an empty sample where it is not
/// installed.
fn frida(served: &mut Watched, program: &Program) -> Result<Sample, String> {
    let mut sample = Sample::default();
    let python = std::env::var("FRIDA_PYTHON").unwrap_or_default();
    let spec: Spec = "func:*:*watched_by_bench* { count }".parse().map_err(|e| format!("{e}"))?;
    let found = watch::list(program, &[spec]).map_err(|e| e.to_string())?;
    let (_, found) = found.first().ok_or("the function is not there")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/frida/count.py");
    for _ in 0..PEER_ROUNDS {
        let mut command = Command::new(&python);
        command.args([script, &served.id().to_string(), &format!("{:#x}", found.address)]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = piped.spawn() else { return Ok(sample) };
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        output.read_line(&mut line).map_err(|e| e.to_string())?;
        let attached = line.trim() == "attached";
        let took = run(served, CALLS, 1)?;
        drop(child.stdin.take());
        line.clear();
        output.read_line(&mut line).map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
        // A peer that has not counted has not been measured.
        if attached && line.trim().parse() == Ok(CALLS) {
            sample.push(took);
        }
    }
    Ok(sample)
}

/// Ends bpftrace. Version 0.17 loses a `SIGINT` that comes while it attaches, and would continue
/// for ever.
pub(crate) fn end_peer(child: &mut Child) -> Result<(), String> {
    const ASKED: usize = 20;
    const PAUSE: Duration = Duration::from_millis(500);
    for _ in 0..ASKED {
        if let Some(process) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            // bpftrace may have ended by itself.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::INT);
        }
        let begun = Instant::now();
        while begun.elapsed() < PAUSE {
            if child.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Ok(());
            }
            // Polls for the end of the process; nothing depends on the interval.
            std::thread::sleep(PAUSE / 100);
        }
    }
    let _ = child.kill();
    child.wait().map(drop).map_err(|e| e.to_string())
}

/// Measures all functions of sqlite's library counted at once.
fn many(session: &Session) -> Result<(usize, Sample), String> {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", ":memory:"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("sqlite3: {e}"))?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    let mut answers = BufReader::new(child.stdout.take().ok_or("no output")?);
    writeln!(stdin, "select 1;").map_err(|e| e.to_string())?;
    // Once the program has answered, everything is mapped.
    answers.read_line(&mut String::new()).map_err(|e| e.to_string())?;
    let program = Program::open(child.id()).map_err(|e| e.to_string())?;
    let (mut sites, mut stood) = (0, Sample::default());
    for _ in 0..ROUNDS {
        let watch = put_in(&program, "func:libsqlite3:sqlite3* { count }", session)?;
        sites = watch.watched.len();
        let time = watch.stood();
        stood.push((time.preparing + time.changing).as_secs_f64() * 1e3);
        watch.remove(&program).map_err(|e| e.to_string())?;
    }
    drop(stdin);
    child.wait().map_err(|e| e.to_string())?;
    Ok((sites, stood))
}
