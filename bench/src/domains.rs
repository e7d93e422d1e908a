//! The page fault experiment (Hui 2000, §5.3.4–5.3.6, figs. 5.7, 5.8): threads fault in core, each
//! on pages of its own of one region, through an FCM with one lock, with one lock for each
//! processor, or switched from one to the other.
//!
//! As in the paper's figure 5.6, threads pass a barrier, touch their pages, and discard them, again
//! and again; the time is that of the touching. *Programs* are unmodified, under `refit run
//! --memory`; the work of the kernel for a fault takes ten times as long as the FCM. *Objects* are
//! called by the threads themselves, with nothing around them. *Switched* begins with the other
//! implementation, and is swapped after the first time, between two that are measured, as in the
//! paper: to `shared` for one thread, to `partitioned` for more. For objects, one of the threads
//! swaps while the others wait for it; for programs, `refit swap` does while their threads are at
//! rest.
//!
//! The first [`WARM`] times are left out, for all contenders. In the first, tables grow, and the
//! contender to be switched is still the other one; in the second, the tables of the implementation
//! that it was switched to grow. Those are two of the paper's 10 000; of 60 they would be some 1.5
//! %.

use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use refit_memory::program::{
    AnonymousCacheFactory, AnonymousCacheInterface, AnonymousCacheRef, AnonymousParts,
    BudgetInterface, GROUP, PARTITIONED, SHARED, create_anonymous_cache, create_budget,
};
use refit_memory::store::PageStore;
use refit_memory::{AnonymousPages, FileRepresentativeInterface, PAGE_SIZE};
use refit_objects::{Interface, SwapOptions, destroy, swap_named};

use crate::area::{Area, LIMIT};
use crate::stats::Sample;
use crate::workload::{self, Workload};

/// The argument with which the program is the workload.
pub(crate) const ARGUMENT: &str = "--domains";
pub(crate) const CONTENDERS: [&str; 3] = [SHARED, PARTITIONED, "switched"];
const SWITCHED: usize = 2;
pub(crate) const MOST_THREADS: usize = 2;

/// The number of rounds. It is large because runs of the same contender with two threads differ by
/// 10 to 20 %.
const ROUNDS: usize = 31;
/// The number of times at the beginning that do not count.
const WARM: usize = 2;
/// The number of pages of a thread, and how many times they are touched and discarded in a round,
/// for programs and for objects. This takes some milliseconds each time, so that threads that do
/// not begin together do most of it together.
const PAGES: usize = 512;
const TIMES: usize = 40;
const PAGES_ALONE: u64 = 8192;
const TIMES_ALONE: usize = 60;

/// The distribution of pages to threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// The first half belongs to one thread, the second to the other.
    Halves,
    /// Groups of pages alternate, as the partitioned FCM deals them out.
    Dealt,
}

/// Thousands of faults per second, of all threads: `[contender][threads - 1]`.
pub(crate) type Rates = [[Sample; MOST_THREADS]; CONTENDERS.len()];

#[derive(Default)]
pub(crate) struct Domains {
    pub(crate) programs: Rates,
    /// The pages of threads in halves, and dealt out.
    pub(crate) objects: [Rates; 2],
    /// The program without refit, with two threads.
    pub(crate) kernel: Sample,
}

pub(crate) fn measure() -> Result<Domains, String> {
    let mut domains = Domains::default();
    let mut native = Workload::start(&[], &[ARGUMENT.to_owned()])?;
    let mut program = Workload::start(&workload::limited(LIMIT), &[ARGUMENT.to_owned()])?;
    let [_] = program.ask("begin")?;
    for round in 0..ROUNDS {
        domains.kernel.push(touched(&mut native, MOST_THREADS, TIMES)?);
        for threads in 1..=MOST_THREADS {
            for turn in 0..CONTENDERS.len() {
                // Each contender is the first in some rounds.
                let contender = (round + turn) % CONTENDERS.len();
                let rate = served(&mut program, contender, threads)?;
                domains.programs[contender][threads - 1].push(rate);
                for (share, rates) in
                    [Share::Halves, Share::Dealt].into_iter().zip(&mut domains.objects)
                {
                    rates[contender][threads - 1].push(alone(share, contender, threads));
                }
            }
        }
    }
    Ok(domains)
}

/// Returns the implementation at the beginning, and the one that replaces it after the threads have
/// begun.
fn order(contender: usize, threads: usize) -> (&'static str, Option<&'static str>) {
    match (contender, threads) {
        (SWITCHED, 1) => (PARTITIONED, Some(SHARED)),
        (SWITCHED, _) => (SHARED, Some(PARTITIONED)),
        _ => (CONTENDERS[contender], None),
    }
}

fn served(program: &mut Workload, contender: usize, threads: usize) -> Result<f64, String> {
    let (first, then) = order(contender, threads);
    let caches = format!("anonymous:{}/*", program.id());
    let swap = |to: &str| {
        let mut command = Command::new(workload::refit());
        command.args(["swap", &caches, to]);
        let ended = command.stdout(Stdio::null()).status();
        let ended = ended.map_err(|e| format!("refit swap: {e}"))?;
        if ended.success() { Ok(()) } else { Err(format!("refit swap ended with {ended}")) }
    };
    swap(first)?;
    if let Some(then) = then {
        touched(program, threads, 1)?;
        swap(then)?;
    }
    touched(program, threads, TIMES)
}

/// Returns the answer of a program whose threads have touched their pages `times` times.
fn touched(program: &mut Workload, threads: usize, times: usize) -> Result<f64, String> {
    let [rate] = program.ask(&format!("{threads} {times}"))?;
    Ok(rate)
}

/// Runs the workload.
pub(crate) fn serve() {
    let pages = PAGES * MOST_THREADS;
    let area = Area::new(pages);
    let mut filler: Option<Area> = None;
    workload::serve(|words| {
        let area = area.as_ref()?;
        let numbers: Vec<usize> = words.iter().flat_map(|word| word.parse()).collect();
        let [threads, times] = numbers[..] else {
            filler.get_or_insert(Area::filler()?);
            area.await_served(|| {
                (0..pages).for_each(|page| area.word(page, 0).store(1, Relaxed));
            })?;
            return Ok(vec![1.0]);
        };
        Ok(vec![rate(threads, PAGES, times, |thread| {
            let own = thread * PAGES..(thread + 1) * PAGES;
            let touched = own.clone();
            let touch = move || {
                // Downwards, so that no page brings another with it.
                touched.clone().rev().for_each(|page| area.word(page, 0).store(1, Relaxed));
            };
            (touch, move || area.discard(own.clone()))
        })])
    });
}

/// Returns thousands of faults per second, of all threads, each of which touches `pages` pages:
/// from the beginning of the first thread to the end of the last one.
fn rate<T, G>(threads: usize, pages: usize, times: usize, of: impl Fn(usize) -> (T, G)) -> f64
where
    T: FnMut() + Send,
    G: FnMut() + Send,
{
    let barrier = Barrier::new(threads);
    let spans: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let work = |(mut touch, mut give_back): (T, G)| {
            let once = |_| {
                barrier.wait();
                let began = Instant::now();
                touch();
                let ended = Instant::now();
                barrier.wait();
                give_back();
                (began, ended)
            };
            (0..WARM + times).map(once).collect()
        };
        let spawn = |thread| {
            let both = of(thread);
            scope.spawn(move || work(both))
        };
        let all: Vec<_> = (0..threads).map(spawn).collect();
        all.into_iter().map(|one| one.join().unwrap_or_default()).collect()
    });
    let span = |time: usize| {
        let of_all = || spans.iter().filter_map(|of_one| of_one.get(time));
        let began = of_all().map(|(began, _)| *began).min();
        let ended = of_all().map(|(_, ended)| *ended).max();
        began.zip(ended).map_or(f64::NAN, |(began, ended)| (ended - began).as_secs_f64())
    };
    let took: f64 = (WARM..WARM + times).map(span).sum();
    (times * threads * pages) as f64 / took / 1e3
}

/// Measures the objects alone.
fn alone(share: Share, contender: usize, threads: usize) -> f64 {
    let (first, then) = order(contender, threads);
    let budget = create_budget("bench", 2 * PAGES_ALONE * MOST_THREADS as u64);
    let store = PageStore::new(1 << 20, None);
    let length = PAGES_ALONE * MOST_THREADS as u64 * PAGE_SIZE as u64;
    let fr = AnonymousPages::new(Arc::clone(&store), length).representative("bench");
    let factory = AnonymousCacheFactory::new("bench", SHARED);
    let parts = AnonymousParts { budget, fr };
    let fcm = create_anonymous_cache(&factory, "bench", parts).expect("it is one of them");
    let id = AnonymousCacheInterface::id(fcm);
    let swap = |to: &str| {
        let report = swap_named(id, to, 1, &SwapOptions::default());
        assert!(report.committed(), "{report:?}");
    };
    swap(first);
    let rate = rate(threads, PAGES_ALONE as usize, TIMES_ALONE, |thread| {
        let groups = groups(share, thread, threads);
        let given_back = groups.clone();
        let mut then = then.filter(|_| thread == 0);
        let mut page = vec![0; PAGE_SIZE];
        let touch = move || groups.iter().cloned().flatten().for_each(|n| fault(fcm, n, &mut page));
        let give_back = move || {
            given_back.iter().for_each(|group| fcm.forget(group.start, group.end));
            if let Some(to) = then.take() {
                swap(to);
            }
        };
        (touch, give_back)
    });
    destroy(id);
    destroy(FileRepresentativeInterface::id(fr));
    destroy(BudgetInterface::id(budget));
    rate
}

fn fault(fcm: AnonymousCacheRef, number: u64, page: &mut [u8]) {
    let lent = fcm.lend(number, page);
    assert_eq!(lent, Ok(1), "page {number}");
    fcm.landed(number, 1, true);
}

fn groups(share: Share, thread: usize, threads: usize) -> Vec<Range<u64>> {
    let (thread, threads, own) = (thread as u64, threads as u64, PAGES_ALONE / GROUP);
    let numbers = (0..own).map(|n| match share {
        Share::Halves => thread * own + n,
        Share::Dealt => n * threads + thread,
    });
    numbers.map(|number| number * GROUP..(number + 1) * GROUP).collect()
}
