//! Measures programs on a mount: refit against libfuse's `passthrough_hp`, with the kernel's cache
//! off on both and on for both.
//!
//! Both serve the same directory of the same file system, in turn, round after round; each round
//! mounts afresh. The peer runs with its default options, which are its best here (`--single`,
//! `--clone-fd` and `--nosplice` are slower or the same).

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stats::Sample;

/// The server, and whether the kernel caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Refit,
    Peer,
}

/// The workloads on a mount.
pub(crate) const WORK: [&str; 5] = ["postmark", "randread", "read", "randwrite", "write"];

/// A scratch directory with a source and a mount point.
pub(crate) struct Place {
    top: PathBuf,
}

impl Place {
    pub(crate) fn new() -> std::io::Result<Self> {
        let top = std::env::temp_dir().join(format!("refit-bench-{}", std::process::id()));
        std::fs::create_dir_all(top.join("mnt"))?;
        Ok(Place { top })
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.top.join("src")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.top.join("mnt")
    }

    /// Returns another directory of this place, which need not exist.
    pub(crate) fn other(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Returns the source, which is empty.
    pub(crate) fn cleared(&self) -> PathBuf {
        self.clear();
        self.source()
    }

    fn clear(&self) {
        let _ = std::fs::remove_dir_all(self.source());
        std::fs::create_dir_all(self.source()).expect("the scratch directory can be written");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

/// A running server; unmounted and waited for on drop.
pub(crate) struct Serving {
    child: Child,
    mountpoint: PathBuf,
}

impl Serving {
    /// Serves the place's source, which is empty at first.
    pub(crate) fn start(server: Server, cached: bool, place: &Place) -> Self {
        Self::start_over(server, cached, place, &place.cleared())
    }

    /// Serves a directory.
    pub(crate) fn start_over(server: Server, cached: bool, place: &Place, source: &Path) -> Self {
        let command = match server {
            Server::Refit => {
                return Self::refit_over(place, source, &["--cache", cache(cached)]);
            }
            Server::Peer => {
                let mut command = Command::new(variable("PASSTHROUGH_HP"));
                command.args((!cached).then_some("--nocache"));
                command
            }
        };
        Self::by(command, place, source)
    }

    /// Serves the place's source, which is empty at first, by refit with these options.
    pub(crate) fn refit(place: &Place, options: &[&str]) -> Self {
        Self::refit_over(place, &place.cleared(), options)
    }

    /// Serves a directory by refit with these options.
    pub(crate) fn refit_over(place: &Place, source: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(variable("REFIT"));
        command.args(["mount", "--frames", "1G"]).args(options);
        Self::by(command, place, source)
    }

    fn by(mut command: Command, place: &Place, source: &Path) -> Self {
        command.arg(source).arg(place.mountpoint());
        let server = format!("{:?}", command.get_program());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|e| panic!("{server} does not start: {e}"));
        let serving = Serving { child, mountpoint: place.mountpoint() };
        let began = Instant::now();
        while !is_mounted(&serving.mountpoint) {
            assert!(began.elapsed() < Duration::from_secs(10), "{server} does not mount");
            std::thread::yield_now();
        }
        serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mountpoint).status();
        let _ = self.child.wait();
    }
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run bench/run"))
}

fn is_mounted(path: &Path) -> bool {
    let mut mounts = String::new();
    let read =
        std::fs::File::open("/proc/self/mounts").and_then(|mut f| f.read_to_string(&mut mounts));
    let path = path.to_string_lossy();
    read.is_ok() && mounts.lines().any(|l| l.split(' ').nth(1) == Some(&*path))
}

/// The parameters of postmark.
#[derive(Clone, Copy)]
pub(crate) struct Postmark {
    pub(crate) files: u32,
    /// The range of the files' sizes, in bytes.
    pub(crate) sizes: [u32; 2],
    pub(crate) transactions: u32,
}

const POSTMARK: Postmark = Postmark { files: 5_000, sizes: [500, 10_000], transactions: 20_000 };

/// Returns the transactions per second of postmark in a directory, by wall time.
pub(crate) fn postmark(directory: &Path, how: Postmark) -> f64 {
    let Postmark { files, sizes: [least, most], transactions } = how;
    let script = format!(
        "set size {least} {most}\nset number {files}\nset transactions {transactions}\n\
         set location {}\nrun\nquit\n",
        directory.display()
    );
    let began = Instant::now();
    let mut child = Command::new("postmark")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("postmark is installed");
    child.stdin.take().expect("it is piped").write_all(script.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "postmark failed");
    f64::from(transactions) / began.elapsed().as_secs_f64()
}

/// Returns the I/O operations per second, of 4 KiB each, of `jobs` programs on files of 128 MiB for
/// `seconds`.
pub(crate) fn fio(mountpoint: &Path, how: &str, jobs: u32, seconds: u32) -> f64 {
    let output = Command::new("fio")
        .args(["--name=bench", "--size=128M", "--bs=4k", "--ioengine=psync", "--time_based"])
        .args(["--group_reporting", "--output-format=terse", "--terse-version=3"])
        .arg(format!("--directory={}", mountpoint.display()))
        .arg(format!("--rw={how}"))
        .arg(format!("--numjobs={jobs}"))
        .arg(format!("--runtime={seconds}"))
        .output()
        .expect("fio is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|l| l.starts_with("3;")).unwrap_or_default();
    let field =
        |n: usize| line.split(';').nth(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    field(7) + field(48) // IOPS of reads and of writes
}

/// Returns the operations per second of one of [`WORK`] in a directory.
pub(crate) fn rate(work: &str, directory: &Path) -> f64 {
    match work {
        "postmark" => postmark(directory, POSTMARK),
        how => fio(directory, how, 1, 2),
    }
}

/// Operations per second: `[server][work]`.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) refit: [Sample; 5],
    pub(crate) peer: [Sample; 5],
    /// Of postmark: refit with `--awake`, and the file system without a server.
    pub(crate) awake: Sample,
    pub(crate) native: Sample,
}

pub(crate) fn measure(cached: bool, rounds: usize) -> Files {
    let place = Place::new().expect("a scratch directory can be made");
    let mut files = Files::default();
    for round in 0..rounds {
        // The order alternates, so that a slow drift of the machine affects both.
        let order = if round % 2 == 0 {
            [Server::Refit, Server::Peer]
        } else {
            [Server::Peer, Server::Refit]
        };
        for server in order {
            let _serving = Serving::start(server, cached, &place);
            let samples = if server == Server::Refit { &mut files.refit } else { &mut files.peer };
            for (sample, work) in samples.iter_mut().zip(WORK) {
                sample.push(rate(work, &place.mountpoint()));
            }
        }
        let serving = Serving::refit(&place, &["--awake", "--cache", cache(cached)]);
        files.awake.push(postmark(&place.mountpoint(), POSTMARK));
        drop(serving);
        files.native.push(postmark(&place.cleared(), POSTMARK));
        eprintln!("files, kernel cache {}: round {} of {rounds}", on_off(cached), round + 1);
    }
    files
}

fn cache(cached: bool) -> &'static str {
    if cached { "kernel" } else { "direct" }
}

pub(crate) fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
