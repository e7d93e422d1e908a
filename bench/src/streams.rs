//! Measures sequential streams beside a working set (Soules 2003, §6.3, fig. 7): the accesses that
//! remain for a program that uses its memory again and again, while others go through more memory
//! than is available, once or repeatedly.
//!
//! All are one process tree with one limit. *Default*: caches keep their implementations.
//! *Adaptive*: `refit adapt` runs beside. Streams compute a little for each page, as a program that
//! processes data does. The paper's streams read files over NFS, and its working set is SDET; here
//! they go through memory, since the cost of missing a page of a file depends on the host's cache
//! of it.

use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use crate::area::Area;
use crate::stats::Sample;
use crate::workload::{self, Ended, Workload};

/// The argument with which the program is the workload, and the other one for its streams.
pub(crate) const ARGUMENT: &str = "--streams";
pub(crate) const STREAM: &str = "--stream";
pub(crate) const CONTENDERS: [&str; 2] = ["default", "adaptive"];
pub(crate) const STREAMS: [usize; 4] = [0, 1, 2, 4];

/// The size of the available memory, of the working set, and of each stream, in MiB.
pub(crate) const LIMIT: usize = 64;
pub(crate) const SET: usize = 40;
pub(crate) const LENGTH: usize = 128;
const ROUNDS: usize = 5;
/// The time until the memory is filled, and the adaptive policy has decided.
const WARM: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(3);
/// The iterations of an empty loop for each page of a stream: about a microsecond.
const WORK: u32 = 2000;

/// Accesses of the working set per second: `[contender][of STREAMS]`.
pub(crate) type Streams = [[Sample; STREAMS.len()]; CONTENDERS.len()];

pub(crate) fn measure() -> Result<Streams, String> {
    let mut all = Streams::default();
    for _ in 0..ROUNDS {
        for (at, streams) in STREAMS.into_iter().enumerate() {
            for (contender, samples) in all.iter_mut().enumerate() {
                samples[at].push(once(streams, contender == 1)?);
            }
        }
    }
    Ok(all)
}

fn once(streams: usize, adaptive: bool) -> Result<f64, String> {
    let mut program = Workload::start(&workload::limited(LIMIT), &[ARGUMENT.to_owned()])?;
    let [_] = program.ask("begin")?;
    let adapts = adaptive.then(|| {
        let mut command = Command::new(workload::refit());
        Ended::start(command.arg("adapt").stdout(Stdio::null()).stderr(Stdio::null()))
    });
    let _adapts = adapts.transpose()?;
    let [rate] = program.ask(&streams.to_string())?;
    Ok(rate)
}

/// Runs the workload: the working set, which starts the streams.
pub(crate) fn serve() {
    let pages = SET << 20 >> 12;
    let area = Area::new(pages);
    workload::serve(|words| {
        let area = area.as_ref()?;
        let touch = |page: usize| {
            let word = area.word(page, 0);
            assert!([0, page as u64 + 1].contains(&word.load(Relaxed)), "page {page} is another");
            word.store(page as u64 + 1, Relaxed);
        };
        let Some(streams) = words.first().and_then(|word| word.parse::<usize>().ok()) else {
            (0..pages).for_each(touch);
            return Ok(vec![1.0]);
        };
        let _streams = (0..streams).map(|_| start()).collect::<Result<Vec<_>, String>>()?;
        let mut random = 88_172_645_463_325_252_u64;
        let mut accesses = |long: Duration| {
            let (began, mut count) = (Instant::now(), 0_u64);
            while began.elapsed() < long {
                for _ in 0..100 {
                    // Marsaglia's xorshift.
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    touch((random % pages as u64) as usize);
                }
                count += 100;
            }
            count as f64 / began.elapsed().as_secs_f64()
        };
        accesses(WARM);
        Ok(vec![accesses(MEASURED)])
    });
}

fn start() -> Result<Ended, String> {
    Ended::start(workload::own()?.arg(STREAM).stdin(Stdio::null()).stdout(Stdio::null()))
}

/// Runs a stream, until it is killed.
pub(crate) fn stream() -> Result<(), String> {
    let pages = LENGTH << 20 >> 12;
    let area = Area::new(pages)?;
    loop {
        for page in 0..pages {
            area.word(page, 0).fetch_add(1, Relaxed);
            (0..WORK).for_each(|turn| {
                std::hint::black_box(turn);
            });
        }
        thread::yield_now();
    }
}
