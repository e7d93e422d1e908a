//! A storm of swaps: every file cache of a test is swapped back and forth while programs use the
//! files, now and then lazily.

use parking_lot::Mutex;
use refit_change::{End, Report};
use refit_objects::transfer::{AtDeadline, DrainOptions};
use refit_objects::{ObjectId, ObjectInfo, SwapOptions, objects, swap_named};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The deadline of a swap. It is generous, because a thread can lose its processor for long on a
/// busy machine.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// The interval at which the list of objects is renewed.
const LOOK: Duration = Duration::from_millis(10);
/// The time without a swap after which a storm has got stuck.
const STUCK: Duration = Duration::from_secs(120);
/// The minimum time that programs get between two rounds.
const PAUSE: Duration = Duration::from_micros(100);

/// The frequency of swaps of each cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each millisecond, or less often if that is too short for all caches.
    EachMillisecond,
    /// Without a pause.
    Continuous,
}

/// The outcomes of the swaps of a storm.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of swaps in which the other implementation took over.
    pub committed: u64,
    /// The number of swaps of a file that was gone before, or went in the middle.
    pub gone: u64,
    /// The reports of swaps that ended in any other way. There should be none.
    pub failed: Vec<Report>,
    /// The maximum number of caches that existed at once.
    pub most: usize,
    /// The number of calls that had to wait for a swap.
    pub blocked: u64,
    /// The longest wait of one of them, in nanoseconds.
    pub longest_block_ns: u64,
}

/// Returns the file caches whose names begin with `prefix`.
pub fn caches(prefix: &str) -> Vec<ObjectInfo> {
    let mut all = objects();
    all.retain(|object| object.interface == "fcm" && object.name.starts_with(prefix));
    all
}

/// A storm that continues until it is stopped.
#[derive(Debug)]
pub struct Storm {
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicU64>,
    /// The last number of swaps that was seen, and when it was seen first.
    seen: Mutex<(u64, Instant)>,
    thread: Option<JoinHandle<Tally>>,
}

impl Storm {
    /// Begins to swap all file caches whose names begin with `prefix`, including those that are
    /// created later.
    pub fn start(prefix: String, pace: Pace) -> Self {
        let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = {
            let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
            thread::spawn(move || rage(&prefix, pace, &stop, &committed))
        };
        let seen = Mutex::new((0, Instant::now()));
        Self { stop, committed, seen, thread: Some(thread) }
    }

    /// Returns the number of swaps that have been committed so far.
    pub fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    /// Returns whether the storm goes on until this number of swaps has been committed: false once
    /// it has, and if no swap has been committed for two minutes, however fast the machine is.
    pub fn goes_on(&self, swaps: u64) -> bool {
        let (mut seen, committed) = (self.seen.lock(), self.committed());
        if seen.0 != committed {
            *seen = (committed, Instant::now());
        }
        committed < swaps && seen.1.elapsed() < STUCK
    }

    /// Ends the storm.
    ///
    /// # Panics
    ///
    /// A swap was refused or rolled back although the file existed, or nothing was swapped at all.
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

/// The current implementation of each cache.
type Caches = HashMap<ObjectId, &'static str>;

fn rage(prefix: &str, pace: Pace, stop: &AtomicBool, committed: &AtomicU64) -> Tally {
    let options = SwapOptions {
        deadline: DEADLINE,
        owner: "acceptance test".to_owned(),
        ..SwapOptions::default()
    };
    // Leaves some pages to the calls and to the next swap.
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
