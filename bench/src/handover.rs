//! Measures how long requests wait while a server hands over to another program, or is killed.
//!
//! Two threads set the time of a file in a mount again and again, which is a request each. As many
//! other files are known as a third of the descriptors that a process may have, 100,000 at most,
//! and a tenth of them, 1,000 at most, are open.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::stats::Sample;
use crate::workload::refit;

const ROUNDS: usize = 50;
const MAX_FILES: u64 = 100_000;
const MAX_OPEN: u64 = 1_000;
/// The time between two rounds, and the timeout of one.
const PAUSE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(60);

/// Times in milliseconds.
#[derive(Default)]
pub(crate) struct Handovers {
    pub(crate) files: u64,
    pub(crate) open: usize,
    /// Of each hand-over: from its beginning to its end, the pause, and the longest request.
    pub(crate) whole: Sample,
    pub(crate) pause: Sample,
    pub(crate) longest: Sample,
    /// All requests that ended during hand-overs.
    pub(crate) requests: Sample,
    /// Of each crash: the longest request.
    pub(crate) crash: Sample,
}

/// A request: when it ended, and how long it took.
type Request = (Instant, Duration);

pub(crate) fn measure() -> Result<Handovers, String> {
    let directory = tempfile::tempdir().map_err(|e| format!("a scratch directory: {e}"))?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = (limit.maximum.unwrap_or(MAX_FILES) / 3).min(MAX_FILES);
    let mount = Mount::start(directory.path(), files)?;
    let opened: Vec<File> = (0..files.div_ceil(10).min(MAX_OPEN))
        .map(|n| File::options().write(true).open(mount.file(n)))
        .collect::<Result<_, _>>()
        .map_err(|e| format!("an open file: {e}"))?;
    let mut measured = Handovers { files, open: opened.len(), ..Handovers::default() };
    for _ in 0..ROUNDS {
        let (spans, requests) = mount.during(|| mount.hand_over())?;
        let (began, ended, pause) = spans;
        measured.whole.push(milliseconds(ended - began));
        measured.pause.push(pause);
        let during = requests.iter().filter(|(end, took)| *end >= began && *end - *took <= ended);
        let times: Vec<f64> = during.map(|(_, took)| milliseconds(*took)).collect();
        measured.longest.push(times.iter().copied().fold(0.0, f64::max));
        times.into_iter().for_each(|time| measured.requests.push(time));
    }
    for _ in 0..ROUNDS {
        let (_, requests) = mount.during(|| mount.crash())?;
        let longest = requests.iter().map(|(_, took)| milliseconds(*took)).fold(0.0, f64::max);
        measured.crash.push(longest);
    }
    Ok(measured)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A mount whose server is replaced.
struct Mount {
    process: Child,
    mountpoint: PathBuf,
}

impl Mount {
    fn start(directory: &Path, files: u64) -> Result<Mount, String> {
        let (source, mountpoint) = (directory.join("source"), directory.join("mnt"));
        let made = fs::create_dir(&source).and_then(|()| fs::create_dir(&mountpoint));
        made.map_err(|e| format!("a scratch directory: {e}"))?;
        for n in 0..files {
            File::create(source.join(format!("file-{n}"))).map_err(|e| format!("a file: {e}"))?;
        }
        let mut process = Command::new(refit())
            .arg("mount")
            .args([&source, &mountpoint])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("mount: {e}"))?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(|e| format!("mount: {e}"))?;
        }
        let mount = Mount { process, mountpoint };
        if line.is_empty() {
            return Err("it cannot be mounted".into());
        }
        for n in 0..files {
            fs::metadata(mount.file(n)).map_err(|e| format!("a file: {e}"))?;
        }
        Ok(mount)
    }

    fn file(&self, n: u64) -> PathBuf {
        self.mountpoint.join(format!("file-{n}"))
    }

    /// Returns what `act` returns, and the requests of two threads meanwhile.
    fn during<T>(
        &self,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<(T, Vec<Request>), String> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads = [0, 1].map(|n| {
                let stop = &stop;
                scope.spawn(move || requests(&self.file(n), stop))
            });
            // The threads have begun before `act`, and go on for a while after it.
            std::thread::sleep(PAUSE);
            let done = act();
            std::thread::sleep(PAUSE);
            stop.store(true, Ordering::Relaxed);
            let mut all = Vec::new();
            for thread in threads {
                all.extend(thread.join().map_err(|_| "a thread has panicked")??);
            }
            Ok((done?, all))
        })
    }

    /// Hands over to the same program. Returns when it began and ended, and the pause in
    /// milliseconds.
    fn hand_over(&self) -> Result<(Instant, Instant, f64), String> {
        let began = Instant::now();
        let command = ["--json", "handover", "--timeout", "60s"];
        let output = Command::new(refit()).args(command).arg(&self.mountpoint).output();
        let output = output.map_err(|e| format!("handover: {e}"))?;
        let ended = Instant::now();
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let pause = told["last"]["paused_us"].as_f64().ok_or("no pause is told")?;
        Ok((began, ended, pause / 1000.0))
    }

    /// Kills the server and waits for an answer of the next one.
    fn crash(&self) -> Result<(), String> {
        let server = self.server()?;
        let pid = rustix::process::Pid::from_raw(server).ok_or("no server")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            .map_err(|e| format!("kill the server: {e}"))?;
        let began = Instant::now();
        while self.server().is_ok_and(|now| now == server) && began.elapsed() < LIMIT {
            // Polled: the kernel tells only the parent of a server's end.
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::metadata(self.file(2)).map(drop).map_err(|e| format!("after a crash: {e}"))
    }

    /// Returns the process that serves: the last descendant of the one that was started.
    fn server(&self) -> Result<i32, String> {
        let mut process = self.process.id().cast_signed();
        loop {
            let path = format!("/proc/{process}/task/{process}/children");
            let children = fs::read_to_string(path).map_err(|e| format!("its server: {e}"))?;
            match children.split_whitespace().next().and_then(|child| child.parse().ok()) {
                Some(child) => process = child,
                None => return Ok(process),
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Asked to end instead of killed, so that it unmounts.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// Sets the time of a file again and again.
fn requests(path: &Path, stop: &AtomicBool) -> Result<Vec<Request>, String> {
    let file = File::options().write(true).open(path).map_err(|e| format!("a file: {e}"))?;
    let mut requests = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        file.set_modified(SystemTime::now()).map_err(|e| format!("a request: {e}"))?;
        let ended = Instant::now();
        requests.push((ended, ended - began));
    }
    Ok(requests)
}
