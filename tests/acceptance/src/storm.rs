//! A storm: every file cache of a test is swapped to and fro while programs use the files, now and then lazily.

use refit_change::{End, Report};
use refit_objects::transfer::{AtDeadline, DrainOptions};
use refit_objects::{ObjectId, ObjectInfo, SwapOptions, objects, swap_named};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time for a swap. Generous: on a busy machine a thread can lose its processor for long.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// How often the list of objects is made anew.
const LOOK: Duration = Duration::from_millis(10);
/// What programs get at least between two rounds.
const PAUSE: Duration = Duration::from_micros(100);

/// How often each cache is swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each millisecond, or as often as there is time for all of them.
    EachMillisecond,
    /// Without a pause.
    Continuous,
}

/// How the swaps of a storm ended.
#[derive(Debug, Default)]
pub struct Tally {
    /// The other implementation took over.
    pub committed: u64,
    /// The file was gone before, or went in the middle.
    pub gone: u64,
    /// Swaps that ended in any other way. There should be none.
    pub failed: Vec<Report>,
    /// Most caches that were there at once.
    pub most: usize,
    /// Calls that had to wait for a swap.
    pub blocked: u64,
    /// Longest that one of them waited, in nanoseconds.
    pub longest_block_ns: u64,
}

/// The file caches whose names begin with `prefix`.
pub fn caches(prefix: &str) -> Vec<ObjectInfo> {
    let mut all = objects();
    all.retain(|object| object.interface == "fcm" && object.name.starts_with(prefix));
    all
}

/// A storm that goes on until it is stopped.
#[derive(Debug)]
pub struct Storm {
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicU64>,
    thread: Option<JoinHandle<Tally>>,
}

impl Storm {
    /// Begins to swap all file caches whose names begin with `prefix`, those that are made later, too.
    pub fn start(prefix: String, pace: Pace) -> Self {
        let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = {
            let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
            thread::spawn(move || rage(&prefix, pace, &stop, &committed))
        };
        Self { stop, committed, thread: Some(thread) }
    }

    /// Swaps that have been committed up to now.
    pub fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    /// Ends it.
    ///
    /// # Panics
    /// A swap was refused or rolled back though the file was there, or nothing was swapped at all.
    pub fn stop(mut self) -> Tally {
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().expect("it is stopped once");
        let tally = thread.join().expect("a storm does not panic");
        assert!(
            tally.failed.is_empty(),
            "{} swaps failed: {:#?}",
            tally.failed.len(),
            tally.failed
        );
        assert!(tally.committed > 0, "nothing was swapped");
        eprintln!(
            "{} swaps of up to {} caches, {} when the file went; {} calls waited, {} us at most",
            tally.committed,
            tally.most,
            tally.gone,
            tally.blocked,
            tally.longest_block_ns / 1000,
        );
        tally
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The implementation that each cache has now.
type Caches = HashMap<ObjectId, &'static str>;

fn rage(prefix: &str, pace: Pace, stop: &AtomicBool, committed: &AtomicU64) -> Tally {
    let options = SwapOptions {
        deadline: DEADLINE,
        owner: "acceptance test".to_owned(),
        ..SwapOptions::default()
    };
    // Some pages are left to the calls and to the next swap.
    let (deadline, at_deadline) = (Duration::from_micros(50), AtDeadline::Report);
    let lazily = SwapOptions {
        protocol: Some("lazy".to_owned()),
        drain: DrainOptions { batch: 4, deadline, at_deadline, watch: None },
        ..options.clone()
    };
    let (mut tally, mut caches) = (Tally::default(), Caches::new());
    let mut looked: Option<Instant> = None;
    while !stop.load(Relaxed) {
        let begin = Instant::now();
        if looked.is_none_or(|looked| begin - looked >= LOOK) {
            caches = find(prefix);
            tally.most = tally.most.max(caches.len());
            looked = Some(begin);
        }
        for (id, implementation) in &mut caches {
            let to = if *implementation == "shared" { "partitioned" } else { "shared" };
            let options = if tally.committed % 4 == 3 { &lazily } else { &options };
            let report = swap_named(*id, to, tally.committed + 1, options);
            if report.committed() {
                *implementation = to;
            }
            count(&mut tally, report);
            committed.store(tally.committed, Relaxed);
            if stop.load(Relaxed) {
                break;
            }
        }
        if pace == Pace::EachMillisecond || caches.is_empty() {
            let left = Duration::from_millis(1).saturating_sub(begin.elapsed());
            thread::sleep(left.max(PAUSE));
        }
    }
    tally
}

fn find(prefix: &str) -> Caches {
    let which = |name: &str| if name == "shared" { "shared" } else { "partitioned" };
    caches(prefix).iter().map(|cache| (cache.id, which(&cache.implementation))).collect()
}

fn count(tally: &mut Tally, report: Report) {
    tally.blocked += report.blocked;
    tally.longest_block_ns = tally.longest_block_ns.max(report.longest_block_ns);
    match &report.end {
        End::Committed => tally.committed += 1,
        _ if report.target_gone => tally.gone += 1,
        _ => tally.failed.push(report),
    }
}
