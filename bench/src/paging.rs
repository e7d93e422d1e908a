//! Measures a working set of twice the available memory, in pages that are accessed as often as
//! words of a language (zipf, 0.99): within `refit run --memory`, in a cgroup whose pages the
//! kernel swaps, and with pages that the program pages itself ([`crate::umap`]).
//!
//! Ranks are scattered over the pages by a fixed permutation. Four of five accesses read a page and
//! check the number that it bears at both ends; the others increment a counter in it, and at the
//! end the counters of all pages add up to the number of writes. Half of a page can be compressed.
//! All stores are files on the disk of `/var/tmp`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use refit_sys::memory::PAGE_SIZE;

use crate::area::{Area, WORDS};
use crate::stats::Sample;
use crate::swapfile::Group;
use crate::umap;
use crate::workload::{self, Workload};

/// The argument with which the program is the workload.
pub(crate) const ARGUMENT: &str = "--paging";
pub(crate) const KINDS: [&str; 4] = [
    "refit run --memory",
    "the kernel's swap, in a cgroup",
    "as UMap, its file past the page cache",
    "as UMap, its file in the page cache besides",
];
const REFIT: usize = 0;
const KERNEL: usize = 1;
const DIRECT: usize = 2;
const CACHED: usize = 3;

/// The available memory, and the memory of the program, in MiB. Powers of two.
pub(crate) const BUDGET: usize = 64;
pub(crate) const SET: usize = 128;
const PAGES: usize = SET << 20 >> 12;
/// The other memory of the program, in MiB: code, stacks, the allocator's reserve.
const BESIDES: usize = 2;
const ROUNDS: usize = 5;
const WARM: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(4);
const SKEW: f64 = 0.99;

/// The results of one kind, with one thread and with two.
#[derive(Default)]
pub(crate) struct Paging {
    /// Operations per second.
    pub(crate) rate: [Sample; 2],
    /// The anonymous memory of the program, in MiB.
    pub(crate) resident: [Sample; 2],
    /// The number of runs that failed, and the reason of the last failure: the kernel kills a
    /// process that does not get memory soon enough.
    pub(crate) failed: usize,
    pub(crate) trouble: Option<String>,
}

pub(crate) fn measure() -> [Paging; 4] {
    let mut all: [Paging; 4] = Default::default();
    for _ in 0..ROUNDS {
        for threads in 1..=2 {
            for (kind, into) in all.iter_mut().enumerate() {
                match run(kind, threads) {
                    Ok([rate, resident]) => {
                        into.rate[threads - 1].push(rate);
                        into.resident[threads - 1].push(resident);
                    }
                    Err(why) => (into.failed, into.trouble) = (into.failed + 1, Some(why)),
                }
            }
        }
    }
    all
}

fn run(kind: usize, threads: usize) -> Result<[f64; 2], String> {
    let group = if kind == KERNEL { Some(Group::new(BUDGET + BESIDES, 2 * SET)?) } else { None };
    let under = match (kind, &group) {
        (REFIT, _) => workload::limited(BUDGET + BESIDES),
        (_, Some(group)) => group.enter(),
        _ => Vec::new(),
    };
    let mut program = Workload::start(&under, &[ARGUMENT.to_owned(), kind.to_string()])?;
    let reply = program.ask(&threads.to_string())?;
    let [wrong] = program.ask("check")?;
    if wrong == 0.0 {
        Ok(reply)
    } else {
        Err(format!("{wrong} pages do not hold what was written"))
    }
}

/// Runs the workload.
pub(crate) fn serve(arguments: &[String]) {
    let kind = arguments.first().and_then(|kind| kind.parse().ok()).unwrap_or(KERNEL);
    let area = Area::new(PAGES).and_then(|area| {
        let area = Arc::new(area);
        if [DIRECT, CACHED].contains(&kind) {
            umap::serve(&area, PAGES, BUDGET << 20 >> 12, kind == DIRECT)?;
        }
        Ok(area)
    });
    let mut writes = 0;
    workload::serve(|words| {
        let area = area.as_ref().map_err(String::clone)?;
        if words == ["check"] {
            return Ok(vec![wrong(area, writes) as f64]);
        }
        let threads = words.first().and_then(|word| word.parse().ok()).ok_or("no number")?;
        (0..PAGES).for_each(|page| write_all(area, page));
        let done: Vec<(f64, u64)> = thread::scope(|scope| {
            let spawn = |seed| scope.spawn(move || work(area, seed));
            let all: Vec<_> = (1..=threads).map(spawn).collect();
            all.into_iter().map(|one| one.join().unwrap_or((f64::NAN, 0))).collect()
        });
        writes = done.iter().map(|(_, writes)| writes).sum();
        Ok(vec![done.iter().map(|(rate, _)| rate).sum(), resident()])
    });
}

/// Returns the number that a page bears at both ends.
fn mark(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fills a page: the first half with equal words, the second with noise.
fn write_all(area: &Area, page: usize) {
    let mut noise = Noise(mark(page));
    for word in 2..WORDS {
        let value = if word < WORDS / 2 { 0x20 } else { noise.next() };
        area.word(page, word).store(value, Relaxed);
    }
    area.word(page, 1).store(0, Relaxed);
    area.word(page, 0).store(mark(page), Relaxed);
    area.word(page, WORDS - 1).store(mark(page), Relaxed);
}

/// Returns the operations per second after warming up, and the number of writes in all.
fn work(area: &Area, seed: u64) -> (f64, u64) {
    let mut noise = Noise(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let ranks = Zipf::new(PAGES as u64);
    let (mut operations, mut writes) = (0_u64, 0);
    let mut until = |end: Instant| {
        let before = operations;
        while Instant::now() < end {
            for _ in 0..16 {
                let page = scattered(ranks.rank(noise.share()));
                if noise.next().is_multiple_of(5) {
                    area.word(page, 1).fetch_add(1, Relaxed);
                    writes += 1;
                } else {
                    let ends = [0, WORDS - 1].map(|word| area.word(page, word).load(Relaxed));
                    assert_eq!(ends, [mark(page); 2], "page {page}");
                }
                operations += 1;
            }
        }
        operations - before
    };
    until(Instant::now() + WARM);
    let began = Instant::now();
    let done = until(began + MEASURED);
    (done as f64 / began.elapsed().as_secs_f64(), writes)
}

/// Returns the number of pages that do not bear their mark, plus one if the counters do not add up
/// to `writes`.
fn wrong(area: &Area, writes: u64) -> usize {
    let good = |page: usize| [0, WORDS - 1].map(|word| area.word(page, word).load(Relaxed));
    let wrong = (0..PAGES).filter(|&page| good(page) != [mark(page); 2]).count();
    let counted: u64 = (0..PAGES).map(|page| area.word(page, 1).load(Relaxed)).sum();
    wrong + usize::from(counted != writes)
}

/// Returns the page of a rank, by a permutation of the pages.
fn scattered(rank: u64) -> usize {
    let bits = PAGES.trailing_zeros();
    let once = rank.wrapping_mul(0x9e37_79b1) % PAGES as u64;
    let folded = once ^ (once >> (bits / 2));
    (folded.wrapping_mul(0x85eb_ca6b) % PAGES as u64) as usize
}

/// Returns the anonymous memory of this process, in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}

/// A pseudo-random generator (xorshift64*).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ranks by Zipf's law, without a table (Gray et al. 1994, "Quickly generating billion-record
/// synthetic databases").
struct Zipf {
    ranks: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(ranks: u64) -> Self {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-SKEW)).sum::<f64>();
        let (two, all) = (zeta(2), zeta(ranks));
        let ranks = ranks as f64;
        let eta = (1.0 - (2.0 / ranks).powf(1.0 - SKEW)) / (1.0 - two / all);
        Self { ranks, zeta: all, eta }
    }

    /// Returns the rank, from 0, below which the share of all accesses is `share`.
    fn rank(&self, share: f64) -> u64 {
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(SKEW) {
            return 1;
        }
        let rank = self.ranks * (self.eta * share - self.eta + 1.0).powf(1.0 / (1.0 - SKEW));
        (rank as u64).min(self.ranks as u64 - 1)
    }
}

const _: () = assert!(PAGES.is_power_of_two() && PAGES * PAGE_SIZE == SET << 20);
