//! Measures one in-core page fault of a thread: by the kernel alone, by a bare userfaultfd, and
//! through refit's objects.
//!
//! The workload touches pages of zeros that were never populated: first pages far apart, so that
//! none comes with another; then consecutive pages. The server of a bare userfaultfd is a thread of
//! the program, which waits in poll(2), or at its best first spins for the next fault, as long as a
//! wake-up takes. Refit's server is in another process, so that address spaces are switched twice
//! for each fault; so is the server of a bare one at its best in a child. All of them stay on one
//! processor, or go where the kernel puts them.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use refit_sys::memory::PAGE_SIZE;
use refit_sys::processor;
use refit_sys::userfault::{CopyModes, Message, Modes, Userfault};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::area::{Area, LIMIT};
use crate::stats::Sample;
use crate::workload::{self, Ended, Workload};

/// The argument with which the program is the workload.
pub(crate) const ARGUMENT: &str = "--faults";
/// The argument with which the program serves the faults of the process that is named next and that
/// has started it. The userfaultfd is standard input.
pub(crate) const SERVER: &str = "--faults-server";
pub(crate) const KINDS: [&str; 5] = [
    "the kernel alone",
    "bare userfaultfd",
    "bare userfaultfd at its best",
    "the same in another process",
    "refit",
];
const NATIVE: usize = 0;
pub(crate) const BARE: usize = 1;
const BEST: usize = 2;
pub(crate) const APART: usize = 3;
pub(crate) const REFIT: usize = 4;

const ROUNDS: usize = 15;
/// The number of faults of a round, far apart, and consecutive.
const FAULTS: usize = 2000;
const DENSE: usize = 4096;
/// The distance of pages that are far apart.
const STRIDE: usize = 17;
/// The time for which a server spins for the next fault.
const LOOKOUT: Duration = Duration::from_micros(20);

/// The fault times of one kind of server, on one processor and wherever the kernel puts the
/// threads, in µs.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) median: [Sample; 2],
    pub(crate) tail: [Sample; 2],
    /// The time of a fault on consecutive pages.
    pub(crate) dense: [Sample; 2],
}

/// The fault times of all kinds of servers.
pub(crate) type All = [Faults; KINDS.len()];

pub(crate) fn measure() -> Result<All, String> {
    let mut all = All::default();
    for _ in 0..ROUNDS {
        for (bound, placed) in ["bound", "free"].into_iter().enumerate() {
            for (kind, into) in all.iter_mut().enumerate() {
                let under = if kind == REFIT { workload::limited(LIMIT) } else { Vec::new() };
                let arguments = [ARGUMENT.to_owned(), kind.to_string(), placed.to_owned()];
                let mut program = Workload::start(&under, &arguments)?;
                let [median, tail, dense] = program.ask("go")?;
                into.median[bound].push(median);
                into.tail[bound].push(tail);
                into.dense[bound].push(dense);
            }
        }
    }
    Ok(all)
}

/// Runs the workload.
pub(crate) fn serve(arguments: &[String]) {
    let kind = arguments.first().and_then(|kind| kind.parse().ok()).unwrap_or(NATIVE);
    let bound = arguments.get(1).is_some_and(|placed| placed == "bound");
    workload::serve(|_| {
        if bound && !processor::bind(0) {
            return Err("it cannot be bound to a processor".to_owned());
        }
        faults(kind)
    });
}

fn faults(kind: usize) -> Result<Vec<f64>, String> {
    let _filler = (kind == REFIT).then(Area::filler).transpose()?;
    let (far, server) = prepared(FAULTS * STRIDE, kind)?;
    let mut took: Sample = (0..FAULTS).map(|n| touch(&far, n * STRIDE)).collect();
    // The first faults are not typical.
    took = took.values().skip(FAULTS / 10).collect();
    drop((far, server));
    let (near, _server) = prepared(DENSE, kind)?;
    let began = Instant::now();
    (0..DENSE).for_each(|page| near.word(page, 0).store(1, Relaxed));
    let dense = began.elapsed().as_secs_f64() * 1e6 / DENSE as f64;
    Ok(vec![took.median(), took.quantile(0.9), dense])
}

/// Touches a page; returns the time in microseconds.
fn touch(area: &Area, page: usize) -> f64 {
    let began = Instant::now();
    area.word(page, 0).store(1, Relaxed);
    began.elapsed().as_secs_f64() * 1e6
}

/// Creates memory with `pages` pages that were never touched, served by the server of this kind.
/// Also returns the server, if it is another process.
fn prepared(pages: usize, kind: usize) -> Result<(Area, Option<Ended>), String> {
    // Refit examines mappings when some of their pages are populated.
    let more = 4096;
    let area = Area::new(pages + more)?;
    let mut server = None;
    match kind {
        BARE | BEST => {
            let userfault = area.tell(Modes::MISSING)?;
            thread::spawn(move || answer(&userfault, kind == BEST));
        }
        APART => {
            server = Some(start(area.tell(Modes::MISSING)?)?);
            // The server is ready after it has served a first fault; if it has ended instead, the
            // kernel serves the fault.
            area.word(pages, 0).store(1, Relaxed);
            if !area.served() {
                return Err("the server in another process has ended".to_owned());
            }
        }
        REFIT => {
            let mut untouched = pages..pages + more;
            area.await_served(|| {
                let some = untouched.by_ref().take(128);
                some.for_each(|page| area.word(page, 0).store(1, Relaxed));
            })?;
        }
        _ => {}
    }
    Ok((area, server))
}

fn start(userfault: Userfault) -> Result<Ended, String> {
    let mut command = workload::own()?;
    command.args([SERVER, &std::process::id().to_string()]);
    Ended::start(command.stdin(OwnedFd::from(userfault)).stdout(Stdio::null()))
}

/// Serves from another process, a child of the named one.
pub(crate) fn serve_parent(arguments: &[String]) -> Result<(), String> {
    // A userfaultfd does not report the end of the process whose memory it serves.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| e.to_string())?;
    let parent = getppid().map(|pid| pid.to_string());
    if parent.as_ref() != arguments.first() {
        return Ok(());
    }
    let userfault = std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    answer(&Userfault::from(userfault), true);
    Ok(())
}

/// Serves pages of zeros until the program ends.
fn answer(userfault: &Userfault, looks_out: bool) {
    let zeros = [0; PAGE_SIZE];
    let mut messages = Vec::new();
    let mut last = Instant::now();
    loop {
        if !looks_out || last.elapsed() > LOOKOUT {
            let _ = poll(&mut [PollFd::from_borrowed_fd(userfault.as_fd(), PollFlags::IN)], None);
        }
        let _ = userfault.read(&mut messages);
        if messages.is_empty() {
            thread::yield_now();
        }
        for message in messages.drain(..) {
            if let Message::Pagefault { address, .. } = message {
                let at = address / PAGE_SIZE as u64 * PAGE_SIZE as u64;
                let _ = userfault.copy(at, &zeros, CopyModes::empty());
                last = Instant::now();
            }
        }
    }
}
