//! `refit tour`: a demonstration of the main purpose in about a minute.
//!
//! An instance of its own serves a scratch directory, with every access going to refit's own caches
//! (`--cache direct`; otherwise the kernel's cache would answer most reads and hide the swaps). On
//! it run `postmark`, and a writer and a reader that check every byte. Phases with and without
//! swaps alternate, so that other load of the machine affects both alike. Then the mount is
//! removed, and the written data is checked once more in the source directory.
//!
//! The verdict is computed: no byte wrong, no operation failed, the same counts of postmark in
//! every phase, and many swaps of each of the checked caches. Throughput is shown but does not
//! affect the verdict: a busy machine is no fault of refit.

mod pair;
mod postmark;
mod screen;
mod server;
mod swapper;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;

use crate::commands::interruption::interruption;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

use self::pair::Pair;
use self::postmark::Postmark;
use self::screen::{Phase, Screen};
use self::server::Server;
use self::swapper::{Swapper, Swaps};
use self::verdict::Verdict;

/// Arguments of `refit tour`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit tour")]
pub(crate) struct TourArgs {
    /// Time for which the programs run; for a third of it, their file caches are swapped
    #[arg(long, default_value = "45s", value_parser = format::parse_duration, value_name = "TIME")]
    time: Duration,

    /// Directory in which to create the scratch directory
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
}

/// The interval at which the screen is updated.
const TICK: Duration = Duration::from_millis(100);

/// The number of phases; every other one has swaps, and the last one does not.
const PHASES: u32 = 9;

/// The maximum size of the scratch directory in bytes.
const ROOM: u64 = 1 << 30;

/// The `f_type` of tmpfs (`TMPFS_MAGIC`).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Runs the tour.
pub(crate) fn run(args: &TourArgs, out: &mut Output) -> Result<(), Failure> {
    let interrupted = interruption()?;
    let postmark = Postmark::find()?;
    let parent = args.scratch.clone().unwrap_or_else(roomy);
    let scratch =
        tempfile::Builder::new().prefix("refit-tour-").tempdir_in(&parent).map_err(|e| {
            Failure::new(
                format!("create a scratch directory in {}", parent.display()),
                e.to_string(),
                "name another directory with --scratch",
            )
        })?;
    let server = Server::start(scratch.path())?;
    let verdict = show(args, out, &postmark, server, scratch.path(), &interrupted)?;
    verdict.print(out)?;
    out.flush()?;
    if verdict.good() { Ok(()) } else { Err(Failure::Said) }
}

/// Returns the default parent of the scratch directory: in memory if there is room, so that the
/// write-back time of a disk is not mistaken for the cost of swaps.
fn roomy() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let room =
        rustix::fs::statvfs(memory).is_ok_and(|there| there.f_bavail * there.f_frsize >= ROOM);
    let in_memory = rustix::fs::statfs(memory).is_ok_and(|there| there.f_type == TMPFS);
    if room && in_memory { memory.to_owned() } else { std::env::temp_dir() }
}

fn show(
    args: &TourArgs,
    out: &mut Output,
    postmark: &Postmark,
    server: Server,
    scratch: &Path,
    interrupted: &AtomicBool,
) -> Result<Verdict, Failure> {
    let mount = server.mountpoint().to_owned();
    let (checked, mail) = (mount.join("checked"), mount.join("mail"));
    for directory in [&checked, &mail] {
        std::fs::create_dir(directory).map_err(|e| failed_there(directory, &e))?;
    }
    if !out.json() {
        out.line(&format!("{} serves {}", mount.display(), server.source().display()))?;
        out.line(
            "Under postmark, and a writer and a reader that check every byte, file caches are",
        )?;
        out.line("swapped between two implementations.")?;
        out.flush()?;
    }
    let pair = Pair::start(&checked).map_err(|e| failed_there(&checked, &e))?;
    let transactions = postmark.fitting(&mail, args.time / PHASES, interrupted)?;
    let swaps = Swaps::default();
    let mut phases: Vec<Phase> =
        (0..PHASES).map(|i| Phase { swaps: i % 2 == 1, per_second: None }).collect();
    let mut runs = Vec::new();
    // The first run finds caches and directories cold, so that its throughput is not
    // representative.
    postmark.start(&mail, transactions)?.finish(interrupted)?;
    let mut screen = Screen::new(out.json());
    for i in 0..phases.len() {
        let swapper = if phases[i].swaps { Some(Swapper::start(&server, &swaps)?) } else { None };
        let mut running = postmark.start(&mail, transactions)?;
        let outcome = loop {
            if interrupted.load(Ordering::Relaxed) {
                running.kill();
                return Err(Failure::new("tour", "interrupted", "nothing is left behind"));
            }
            screen.update(&server, &pair, &phases, &swaps, out)?;
            if let Some(outcome) = running.wait(TICK)? {
                break outcome;
            }
        };
        drop(swapper);
        phases[i].per_second = Some(outcome.per_second());
        runs.push(outcome);
    }
    screen.finish();
    let written = pair.stop();
    let source = server.source().to_owned();
    server.stop()?;
    let at_rest = written.check_at_rest(&source.join("checked"));
    debug_assert!(scratch.exists(), "the scratch directory outlives the check");
    Ok(Verdict::new(phases, runs, swaps, written.tally(), at_rest))
}

fn failed_there(path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(
        format!("work on {}", path.display()),
        e.to_string(),
        "check whether refit still runs",
    )
}
