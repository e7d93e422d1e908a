//! Measures what it costs to record where a thread stands when it loses the processor: refit, and
//! `perf record`, which copies stacks as well and leaves them to a later command.
//!
//! The program sleeps again and again below some frames that have no frame pointers. Each contender
//! runs it as its command, in turn, round after round.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::report::Report;
use crate::stats::Sample;
use crate::workload::refit;

/// The argument with which this program is the sleeping one.
pub(crate) const ARGUMENT: &str = "sleep-below-frames";
/// The number of sleeps of a round.
const SLEEPS: u32 = 20_000;
const ROUNDS: usize = 11;
const FRAMES: u32 = 30;

/// One way to run the program.
struct Contender {
    title: &'static str,
    command: Vec<String>,
    /// Nanoseconds of processor time of the program for each sleep.
    program: Sample,
    /// The same of the recorder.
    recorder: Sample,
    /// Bytes of the recording for each sleep.
    bytes: Sample,
}

/// The contenders, measured.
pub(crate) struct Stacks(Vec<Contender>);

/// Sleeps, and prints the processor time that it took in nanoseconds.
pub(crate) fn sleep_below_frames() {
    let began = own_time();
    for _ in 0..SLEEPS {
        below(black_box(FRAMES));
    }
    println!("{}", (own_time() - began).as_nanos());
}

#[inline(never)]
fn below(frames: u32) -> u32 {
    match frames {
        0 => std::thread::sleep(Duration::from_micros(50)),
        _ => drop(black_box(below(frames - 1))),
    }
    black_box(frames)
}

fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Returns the processor time of all children that have ended (proc_pid_stat(5), `cutime` and
/// `cstime`), to ten milliseconds.
pub(crate) fn children_time() -> Result<Duration, String> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(|e| e.to_string())?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: f64 =
        fields.split_whitespace().skip(13).take(2).filter_map(|f| f.parse::<f64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64))
}

pub(crate) fn measure() -> Result<Stacks, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = dir.path().join("recording");
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let to = file.display().to_string();
    let perf = ["perf", "record", "-q", "-e", "context-switches", "-c", "1"];
    let perf = perf.iter().chain(&["--call-graph", "dwarf,8192", "-o"]);
    let refit = |options: &[&str]| -> Vec<String> {
        let words = [&["record"], options, &["-o", &to, "--"]].concat();
        [refit()].into_iter().chain(words.into_iter().map(str::to_owned)).collect()
    };
    let contender = |title, command| Contender {
        title,
        command,
        program: Sample::default(),
        recorder: Sample::default(),
        bytes: Sample::default(),
    };
    let perf = perf.map(|word| (*word).to_owned()).chain([to.clone()]).collect();
    let mut all = vec![
        contender("the program alone", Vec::new()),
        contender("`refit record`", refit(&[])),
        contender("`refit record --stacks`", refit(&["--stacks"])),
        contender("`perf record --call-graph dwarf`", perf),
    ];
    // Its results are none; the peer is often not installed.
    all.retain(|one| one.round(&own, &file).is_ok());
    for _ in 0..ROUNDS {
        for contender in &mut all {
            let [program, recorder, bytes] = contender.round(&own, &file)?;
            contender.program.push(program);
            contender.recorder.push(recorder);
            contender.bytes.push(bytes);
        }
    }
    Ok(Stacks(all))
}

impl Contender {
    /// Runs the program once; returns the times and bytes for each sleep.
    fn round(&self, own: &Path, file: &Path) -> Result<[f64; 3], String> {
        let words =
            self.command.iter().map(AsRef::as_ref).chain([own.as_os_str(), ARGUMENT.as_ref()]);
        let words: Vec<&std::ffi::OsStr> = words.collect();
        let before = children_time()?;
        let output = Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).output();
        let output = output.map_err(|e| format!("{}: {e}", self.title))?;
        let all = (children_time()? - before).as_nanos() as f64;
        let said = String::from_utf8_lossy(&output.stdout);
        let program = said.lines().find_map(|line| line.parse::<f64>().ok());
        let program = program.ok_or_else(|| format!("{}: {said}", self.title))?;
        let bytes = file.metadata().map_or(0, |file| file.len()) as f64;
        let bytes = if self.command.is_empty() { 0.0 } else { bytes };
        Ok([program, (all - program).max(0.0), bytes].map(|sum| sum / f64::from(SLEEPS)))
    }
}

impl Report {
    pub(crate) fn stacks(&mut self, measured: Result<Stacks, String>) {
        let title = "Where a thread stands at each switch: a program that sleeps below 30 frames";
        let heads =
            ["what", "the program, ns a sleep", "the recorder, ns a sleep", "bytes a sleep"];
        let Some(Stacks(all)) = self.begin(title, "stacks", &heads, measured) else { return };
        for Contender { title, command, program, recorder, bytes } in all {
            let recorded = |sample: Sample| match command.is_empty() {
                true => String::new(),
                false => sample.show(0),
            };
            self.row(&[title.into(), program.show(0), recorded(recorder), recorded(bytes)]);
        }
    }
}
