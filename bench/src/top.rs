//! Measures the cost of `refit top` at ten refreshes per second, in itself and in the instance that
//! it watches.
//!
//! A mount of some hundred files is read all the time, so that at each refresh most caches have
//! changed. `top` has a pseudo terminal, which `script` (util-linux) creates and reads. Processor
//! time is the time that the scheduler accounts to threads, in ns (`/proc/PID/task/TID/schedstat`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stats::Sample;

/// The number of files, each of which has a cache.
pub(crate) const FILES: usize = 300;
/// Reads per second, one file after the other.
pub(crate) const READS: u32 = 2500;
const ROUNDS: usize = 3;
const SPAN: Duration = Duration::from_secs(20);
/// The timeout of expected events.
const LIMIT: Duration = Duration::from_secs(60);
/// The names of the instance's threads that serve requests and followers.
const SERVING: [&str; 2] = ["refit-control", "refit-change"];
/// The last bytes of each frame of the screen: the cursor is hidden.
const FRAME: &[u8] = b"\x1b[?25l";

/// Shares of one processor, in percent, and frames per second.
#[derive(Default)]
pub(crate) struct Top {
    pub(crate) top: Sample,
    pub(crate) instance: Sample,
    pub(crate) frames: Sample,
}

pub(crate) fn measure() -> Result<Top, String> {
    let dir = tempfile::tempdir().map_err(|e| format!("a scratch directory: {e}"))?;
    let instance = Instance::start(dir.path())?;
    let open = |n| File::open(instance.mountpoint.join(format!("file-{n}")));
    let files: Vec<File> =
        (0..FILES).map(open).collect::<Result<_, _>>().map_err(|e| format!("a file: {e}"))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read(&files, &stop));
        let measured = rounds(instance.process.id());
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn rounds(instance: u32) -> Result<Top, String> {
    let mut measured = Top::default();
    for _ in 0..ROUNDS {
        let mut terminal = Terminal::start(instance)?;
        let output = terminal.script.stdout.take().ok_or("no output")?;
        let frames = AtomicU64::new(0);
        let [top, serving, shown, seconds] = std::thread::scope(|scope| {
            scope.spawn(|| count_frames(output, &frames));
            let spent = || {
                let serving = SERVING.map(|name| time(instance, Some(name))).iter().sum();
                let shown = frames.load(Ordering::Relaxed) as f64;
                [time(terminal.top, None), serving, shown]
            };
            // `top` has begun when it has drawn something.
            let began = Instant::now();
            while frames.load(Ordering::Relaxed) < 10 && began.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(50));
            }
            let (began, before) = (Instant::now(), spent());
            std::thread::sleep(SPAN);
            let (seconds, after) = (began.elapsed().as_secs_f64(), spent());
            terminal.end();
            let [top, serving, shown] = std::array::from_fn(|i| after[i] - before[i]);
            [top, serving, shown, seconds]
        });
        measured.top.push(top / seconds / 1e7);
        measured.instance.push(serving / seconds / 1e7);
        measured.frames.push(shown / seconds);
    }
    Ok(measured)
}

/// Reads one page after the other until it is told to stop.
fn read(files: &[File], stop: &AtomicBool) {
    const BATCH: u32 = 50;
    let mut page = [0; 4096];
    let mut files = files.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        for file in files.by_ref().take(BATCH as usize) {
            let _ = file.read_at(&mut page, 0);
        }
        std::thread::sleep(Duration::from_secs(1) * BATCH / READS);
    }
}

/// Counts frames until the output ends.
fn count_frames(mut output: impl Read, frames: &AtomicU64) {
    let mut text = vec![0; 1 << 16];
    let mut kept = 0;
    while let Ok(n @ 1..) = output.read(&mut text[kept..]) {
        let all = kept + n;
        let found = text[..all].windows(FRAME.len()).filter(|part| *part == FRAME).count();
        frames.fetch_add(found as u64, Ordering::Relaxed);
        // The end of the data may be the beginning of a frame's last bytes.
        kept = all.min(FRAME.len() - 1);
        text.copy_within(all - kept..all, 0);
    }
}

/// Returns the processor time of a process, or of its threads of that name, in ns.
fn time(process: u32, name: Option<&str>) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return 0.0 };
    let of = |thread: fs::DirEntry| {
        let text = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let counts = name.is_none_or(|name| text("comm").trim() == name);
        let ns = text("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        if counts { ns } else { 0.0 }
    };
    threads.flatten().map(of).sum()
}

/// A mount that is served by a process of its own.
struct Instance {
    process: Child,
    mountpoint: PathBuf,
}

impl Instance {
    fn start(dir: &Path) -> Result<Instance, String> {
        let (source, mountpoint) = (dir.join("source"), dir.join("mnt"));
        let made = fs::create_dir(&source).and_then(|()| fs::create_dir(&mountpoint));
        made.map_err(|e| format!("a scratch directory: {e}"))?;
        for n in 0..FILES {
            let file = source.join(format!("file-{n}"));
            fs::write(file, [b'.'; 8192]).map_err(|e| format!("a file: {e}"))?;
        }
        let mut mount = Command::new(refit());
        mount.args(["mount", "--no-hold", "--cache", "direct"]).args([&source, &mountpoint]);
        let process = mount.stdout(Stdio::null()).spawn().map_err(|e| format!("mount: {e}"))?;
        let instance = Instance { process, mountpoint };
        let began = Instant::now();
        while !instance.mountpoint.join("file-0").exists() {
            if began.elapsed() > LIMIT {
                return Err("the mount does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(instance)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Asked to end instead of killed, so that it unmounts.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// `refit top` on a pseudo terminal.
struct Terminal {
    script: Child,
    top: u32,
}

impl Terminal {
    fn start(instance: u32) -> Result<Terminal, String> {
        let top = format!(
            "stty rows 40 columns 120; exec '{}' top --every 100ms --instance {instance}",
            refit()
        );
        let mut script = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &top, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("script (util-linux): {e}"))?;
        let (began, id) = (Instant::now(), script.id());
        while began.elapsed() < LIMIT {
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
            let child = children.unwrap_or_default().split(' ').find_map(|id| id.parse().ok());
            // The child is a shell at first, which becomes the program.
            if let Some(top) = child.filter(|child| is_refit(*child)) {
                return Ok(Terminal { script, top });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = script.kill();
        let _ = script.wait();
        Err("`refit top` does not begin".into())
    }

    /// Ends the program as a user does.
    fn end(&mut self) {
        if let Some(mut keys) = self.script.stdin.take() {
            let _ = keys.write_all(b"q");
            let _ = keys.flush();
        }
        let _ = self.script.wait();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Returns whether a process runs `refit`, by its name, the first 15 bytes of which the kernel
/// keeps.
fn is_refit(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let refit = refit();
    let file = Path::new(&refit).file_name().map(|file| file.to_string_lossy().into_owned());
    !name.is_empty() && file.is_some_and(|file| file.starts_with(name.trim()))
}

fn refit() -> String {
    std::env::var("REFIT").unwrap_or_else(|_| "refit".into())
}
