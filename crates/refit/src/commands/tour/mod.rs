//! `refit tour`: the main job made visible in about a minute.
//!
//! An instance of its own serves a scratch directory, every access going to refit's own caches (`--cache
//! direct`, or the kernel's cache would answer most reads and nobody would see the swaps). On it run
//! `postmark` and a writer and a reader that check every byte, three times: before, during and after the
//! swaps. Then the mount goes, and what the writer wrote is checked once more in the source directory.
//!
//! The verdict is computed: no byte wrong, no operation failed, postmark counted the same three times, and
//! caches were swapped. Throughput is shown but decides nothing: a busy machine is no mistake of refit's.

mod pair;
mod postmark;
mod screen;
mod server;
mod swapper;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cli::TourArgs;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

use self::pair::Pair;
use self::postmark::{Outcome, Postmark};
use self::screen::Screen;
use self::server::Server;
use self::swapper::Swapper;
use self::verdict::Verdict;

/// How often the screen is brought up to date.
const TICK: Duration = Duration::from_millis(100);

/// The acts of the tour.
const ACTS: [&str; 3] = ["before", "during", "after"];

/// Runs the tour.
pub(crate) fn run(args: &TourArgs, out: &mut Output) -> Result<(), Failure> {
    let interrupted = interruption()?;
    let postmark = Postmark::find()?;
    let parent = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let scratch =
        tempfile::Builder::new().prefix("refit-tour-").tempdir_in(&parent).map_err(|e| {
            Failure::new(
                format!("make a scratch directory in {}", parent.display()),
                e.to_string(),
                "name another one with --scratch",
            )
        })?;
    let server = Server::start(scratch.path())?;
    let verdict = show(args, out, &postmark, server, scratch.path(), &interrupted)?;
    verdict.print(out)?;
    out.flush()?;
    if verdict.good() { Ok(()) } else { Err(Failure::Said) }
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
    if !out.json() {
        out.line(&format!("serving {} at {}", server.source().display(), mount.display()))?;
        out.line("postmark, and a writer and a reader that check every byte, work on it")?;
        out.flush()?;
    }
    let pair = Pair::start(&mount).map_err(|e| failed_there(&mount, &e))?;
    let transactions = postmark.fitting(&mount, args.time / 3, interrupted)?;
    let mut runs = Vec::new();
    let mut swaps = None;
    for act in ACTS {
        let swapper = if act == "during" { Some(Swapper::start(server.client()?)) } else { None };
        let mut screen = Screen::new(act, out.json());
        let mut running = postmark.start(&mount, transactions)?;
        let outcome = loop {
            if interrupted.load(Ordering::Relaxed) {
                running.kill();
                return Err(Failure::new("tour", "interrupted", "nothing is left behind"));
            }
            screen.update(&server, &pair, swapper.as_ref(), out)?;
            if let Some(outcome) = running.wait(TICK)? {
                break outcome;
            }
        };
        screen.finish();
        if !out.json() {
            out.line(&told(act, &outcome))?;
            out.flush()?;
        }
        runs.push(outcome);
        if let Some(swapper) = swapper {
            swaps = Some(swapper.stop());
        }
    }
    let written = pair.stop();
    let source = server.source().to_owned();
    server.stop()?;
    let at_rest = written.check_at_rest(&source);
    debug_assert!(scratch.exists(), "the scratch directory outlives the check");
    Ok(Verdict::new(runs, swaps.unwrap_or_default(), written.tally(), at_rest))
}

fn told(act: &str, outcome: &Outcome) -> String {
    format!(
        "{act:<8}{:>10} transactions/s  ({} in {:.1} s)",
        format::count(outcome.per_second()),
        format::count(outcome.transactions),
        outcome.wall.as_secs_f64()
    )
}

fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|e| {
            Failure::new("wait for Ctrl-C", e.to_string(), "run it with fewer open files")
        })?;
    }
    Ok(flag)
}

fn failed_there(path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(
        format!("work on {}", path.display()),
        e.to_string(),
        "see whether refit still runs",
    )
}
