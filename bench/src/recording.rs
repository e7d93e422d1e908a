//! Measures the cost of a record: refit's instruments, the bare clock under them, LTTng-UST and the
//! `tracing` crate.
//!
//! All contenders write 16 bytes of payload into a recording that is really written to files. They
//! run in turn, round after round; a round is short enough for every buffer to hold it, and rounds
//! that lost records are reported.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use refit_instruments::instrument::{self, Event, Instrument};
use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Options, Recorder, Rotation, Summary};

use crate::stats::Sample;

static EVENT: Event = Event::new("bench", "event");
static SUSPENDED: Event = Event::new("bench", "suspended");

/// The number of events of a round.
const EVENTS: u64 = 50_000;
const ROUNDS: usize = 31;
/// The ring size for rounds: one round fits, and the caches hold it.
const ROUND_BYTES: usize = 4 << 20;
/// The ring size for the sustained recording: all records that arrive while the kernel makes a
/// writer wait for the disk.
const SUSTAINED_BYTES: usize = 128 << 20;

/// Nanoseconds per event, and the results of the sustained recording.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) event: Sample,
    pub(crate) two: Sample,
    /// The time over the bare loop.
    pub(crate) suspended: Sample,
    pub(crate) clock: Sample,
    pub(crate) tracing: Sample,
    /// Empty where LTTng is not installed.
    pub(crate) lttng: Sample,
    pub(crate) lost: u64,
    pub(crate) sustained: Option<Sustained>,
}

/// A recording of some seconds on two processors.
pub(crate) struct Sustained {
    pub(crate) seconds: f64,
    pub(crate) summary: Summary,
    /// The memory of this process in bytes, after a quarter of the time and at the end.
    pub(crate) memory: [u64; 2],
}

fn time(mut step: impl FnMut(u64)) -> f64 {
    let began = Instant::now();
    for n in 0..EVENTS {
        step(black_box(n));
    }
    began.elapsed().as_nanos() as f64 / EVENTS as f64
}

/// Starts a recorder of this process with rings of this size.
fn recorder(
    path: &Path,
    rotation: Rotation,
    ring_bytes: usize,
) -> Option<(&'static Session, Recorder)> {
    let session = Session::create(Geometry::of_host().with_ring_bytes(ring_bytes)).ok()?;
    instrument::attach(session);
    let options = Options { rotation, ..Options::default() };
    Some((session, Recorder::start(session, path, options).ok()?))
}

pub(crate) fn measure(seconds: u64) -> Recording {
    let mut measured = Recording::default();
    let Ok(dir) = tempfile::tempdir() else { return measured };
    let Some((session, own)) =
        recorder(&dir.path().join("refit"), Rotation::default(), ROUND_BYTES)
    else {
        return measured;
    };
    let mut lttng = Lttng::start(dir.path());
    let Ok(file) = File::create(dir.path().join("tracing")) else { return measured };
    let (writer, _guard) = tracing_appender::non_blocking(file);
    let subscriber = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).finish();
    let dispatch = tracing::Dispatch::new(subscriber);
    SUSPENDED.suspend();
    for round in 0..=ROUNDS {
        let of_round = [
            time(|_| {
                black_box(refit_sys::clock::counter());
            }),
            quiet(session, || time(|n| EVENT.record([n, n]))),
            quiet(session, two),
            // The loop itself takes longer.
            time(|n| SUSPENDED.record([n, n])) - time(drop),
            tracing::dispatcher::with_default(&dispatch, || time(|n| tracing::info!(a = n, b = n))),
        ];
        let lttng = lttng.as_mut().and_then(Lttng::round);
        // The first round warms up.
        if round > 0 {
            let Recording { clock, event, two, suspended, tracing, .. } = &mut measured;
            let samples = [clock, event, two, suspended, tracing];
            samples.into_iter().zip(of_round).for_each(|(sample, ns)| sample.push(ns));
            lttng.into_iter().for_each(|ns| measured.lttng.push(ns));
        }
    }
    drop(lttng);
    measured.lost = own.stop().end.lost_full;
    measured.sustained = sustained(dir.path(), seconds);
    measured
}

/// Measures after the recorder has written everything, as LTTng's has between its rounds.
fn quiet(session: &'static Session, measure: impl FnOnce() -> f64) -> f64 {
    let manager = instrument::Manager::new(session, "bench");
    let mut before = None;
    // The recorder writes its records at least twice per second.
    while before != Some(manager.volume()) {
        before = Some(manager.volume());
        std::thread::sleep(Duration::from_millis(600));
    }
    measure()
}

/// Measures two threads at once; returns the mean of both.
fn two() -> f64 {
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| time(|n| EVENT.record([n, n]))));
        threads.map(|thread| thread.join().unwrap_or(f64::NAN)).iter().sum::<f64>() / 2.0
    })
}

/// Records as many events as a session takes without a loss, up to 3 million per second and thread,
/// on two processors.
fn sustained(dir: &Path, seconds: u64) -> Option<Sustained> {
    const BATCH: u64 = 3000;
    const EVERY: Duration = Duration::from_millis(1);
    let rotation = Rotation { bytes: 1 << 30, keep: 2 };
    let (_, recorder) = recorder(&dir.join("sustained"), rotation, SUSTAINED_BYTES)?;
    let limit = Duration::from_secs(seconds);
    let began = Instant::now();
    let record = || {
        let mut next = EVERY;
        while began.elapsed() < limit {
            (0..BATCH).for_each(|n| EVENT.record([n, n]));
            std::thread::sleep(next.saturating_sub(began.elapsed()));
            // Time that the thread did not get is made up for by no more events than a ring holds.
            next = (next + EVERY).max(began.elapsed().saturating_sub(EVERY * 50));
        }
    };
    let early = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(record);
        }
        std::thread::sleep(limit / 4);
        memory()
    });
    let late = memory();
    let seconds = began.elapsed().as_secs_f64();
    Some(Sustained { seconds, summary: recorder.stop(), memory: [early, late] })
}

/// Returns the memory of this process in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// A session of LTTng and a program that records into it. The settings are its best ones: buffers
/// of the same size as refit's, discarding rather than blocking, only this event and no contexts.
struct Lttng {
    daemon: Child,
    program: Child,
    answers: BufReader<ChildStdout>,
}

impl Lttng {
    fn start(dir: &Path) -> Option<Self> {
        let program = std::env::var_os("LTTNG_EVENT")?;
        let output = format!("--output={}", dir.join("lttng").display());
        // A daemon may already be running; then this one ends at once.
        let quiet = Command::new("lttng-sessiond").arg("--no-kernel").stderr(Stdio::null()).spawn();
        let daemon = quiet.ok()?;
        let began = Instant::now();
        while said(&["lttng", "list"]).is_none() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(100));
        }
        said(&["lttng", "create", "refit-bench", &output])?;
        let sizes = ["--subbuf-size=1M", "--num-subbuf=4", "bench"];
        said(&[&["lttng", "enable-channel", "--userspace"][..], &sizes].concat())?;
        let event = ["--channel=bench", "refit_bench:event"];
        said(&[&["lttng", "enable-event", "--userspace"][..], &event].concat())?;
        said(&["lttng", "start"])?;
        let mut program = Command::new(program)
            .arg(EVENTS.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let answers = BufReader::new(program.stdout.take()?);
        Some(Self { daemon, program, answers })
    }

    /// Returns the nanoseconds per event.
    fn round(&mut self) -> Option<f64> {
        writeln!(self.program.stdin.as_mut()?).ok()?;
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // A process that cannot be killed has ended already.
        let _ = self.program.kill();
        let _ = self.program.wait();
        let _ = said(&["lttng", "destroy", "refit-bench"]);
        // Asked to end instead of killed, because it has consumers to end.
        let _ = said(&["kill", &self.daemon.id().to_string()]);
        let _ = self.daemon.wait();
    }
}

fn said(command: &[&str]) -> Option<()> {
    let output = Command::new(command[0]).args(&command[1..]).output().ok()?;
    if !output.status.success() {
        eprintln!("bench: {}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(())
}
