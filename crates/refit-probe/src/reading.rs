//! What places have told: cells read while the program counts into them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use refit_splice::{ENTRIES, EXITS, Installed, TIME};

use crate::spec::Do;
use crate::steps::Watching;

/// What an action of a place has told.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// By key, where it is counted apart.
    pub keys: BTreeMap<u64, Reading>,
    /// Where it is not; else what came under keys for which there was no place.
    pub all: Reading,
    /// How many calls were not timed: there was no room for more threads, or for more calls in each other.
    pub lost: u64,
}

/// What cells have told.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Nothing: the action tells none here.
    Nothing,
    /// How often.
    Count(u64),
    /// Calls that have ended, calls that go on, and the time in all of both up to now.
    Latency {
        /// Calls that have ended.
        ended: u64,
        /// Calls that go on now.
        inside: u64,
        /// Time in all of them, in nanoseconds.
        nanos: u64,
    },
    /// Threads inside.
    Concurrency {
        /// On an average, since it is watched.
        mean: f64,
        /// Now.
        inside: u64,
    },
    /// How often each size.
    Histogram(Box<[u64; 65]>),
    /// How often each size of nanoseconds.
    Durations {
        /// From 0 on.
        sizes: Box<[u64; 65]>,
        /// All of them together, in nanoseconds.
        nanos: u64,
    },
}

impl Reading {
    /// What a timer tells that nobody has used.
    fn none(what: &Do) -> Self {
        match what {
            Do::Concurrency => Self::Concurrency { mean: 0.0, inside: 0 },
            Do::Durations(_) => Self::Durations { sizes: Box::new([0; 65]), nanos: 0 },
            _ => Self::Latency { ended: 0, inside: 0, nanos: 0 },
        }
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Count(count) => *count == 0,
            Self::Latency { ended, inside, .. } => ended + inside == 0,
            Self::Concurrency { mean, inside } => *inside == 0 && *mean <= 0.0,
            Self::Histogram(sizes) | Self::Durations { sizes, .. } => {
                sizes.iter().all(|count| *count == 0)
            }
        }
    }
}

/// Reads what has been told up to now of a process, `since` which it is watched.
///
/// # Errors
/// What reading the memory says.
pub(crate) fn read(
    installed: &Installed,
    watching: &Watching,
    process: u32,
    since: Duration,
) -> io::Result<Told> {
    let Watching { what, by, step, first } = watching;
    if matches!(what, Do::Latency | Do::Cpu | Do::Concurrency) {
        let (threads, lost) = installed.timers(step, *first)?;
        let each = threads.into_iter().map(|(thread, timer)| {
            let now = || match what {
                Do::Cpu => running_time(process, thread),
                _ => Some(refit_sys::clock::counter()),
            };
            (thread, timed(what, timer, since, now()))
        });
        let (keys, all) = match by {
            Some(_) => (each.collect(), Reading::Nothing),
            None => (BTreeMap::new(), each.map(|(_, one)| one).fold(Reading::none(what), sum)),
        };
        return Ok(Told { keys, all, lost });
    }
    if let Do::Durations(_) = what {
        let (threads, lost) = installed.durations(step, *first)?;
        let deep: u64 = threads.values().map(|cells| cells[DEEP]).sum();
        let each = threads.into_iter().map(|(thread, cells)| (thread, spread(&cells)));
        let (keys, all) = match by {
            Some(_) => (each.collect(), Reading::Nothing),
            None => (BTreeMap::new(), each.map(|(_, one)| one).fold(Reading::none(what), sum)),
        };
        return Ok(Told { keys, all, lost: lost + deep });
    }
    let told = |cells: &[u64]| counted(what, cells);
    if step.key.is_some() {
        let (keys, others) = installed.keyed(step, *first)?;
        let keys = keys.iter().map(|(&key, cells)| (key, told(cells)));
        return Ok(Told { keys: keys.collect(), all: told(&others), lost: 0 });
    }
    let cells = (0..step.cells()).map(|number| installed.cell(first + number));
    let all = told(&cells.collect::<io::Result<Vec<_>>>()?);
    Ok(Told { keys: BTreeMap::new(), all, lost: 0 })
}

/// For how long a thread has run, in nanoseconds: as the kernel has written it down last, some milliseconds ago at most.
fn running_time(process: u32, thread: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn counted(what: &Do, cells: &[u64]) -> Reading {
    match what {
        Do::Count => Reading::Count(cells[0]),
        Do::Histogram(_) => {
            let mut sizes = Box::new([0; 65]);
            sizes.iter_mut().zip(cells).for_each(|(size, cell)| *size = *cell);
            Reading::Histogram(sizes)
        }
        _ => Reading::Nothing,
    }
}

/// What a thread's timer tells. `now`: what its clock says; `None`: the thread is gone, and not inside any more.
fn timed(what: &Do, timer: [u64; 3], since: Duration, now: Option<u64>) -> Reading {
    let ended = timer[EXITS];
    let inside = if now.is_some() { timer[ENTRIES].saturating_sub(ended) } else { 0 };
    let time = timer[TIME].wrapping_add(inside.wrapping_mul(now.unwrap_or_default()));
    // Less than nothing, or more than can be, is what a call that went while we read looks like.
    let time = if time.cast_signed() < 0 { 0 } else { time };
    let nanos = if *what == Do::Cpu { time } else { refit_sys::clock::nanos(time) };
    if *what == Do::Concurrency {
        let mean = nanos as f64 / (since.as_nanos() as f64).max(1.0);
        return Reading::Concurrency { mean, inside };
    }
    Reading::Latency { ended, inside, nanos }
}

/// Cells of a thread's durations.
const DEEP: usize = 1;
const SUM: usize = 4;

/// What a thread's durations tell.
fn spread(cells: &[u64]) -> Reading {
    let mut sizes = Box::new([0; 65]);
    // The last cells are those of sizes up to 63, and no duration is longer.
    sizes.iter_mut().zip(&cells[cells.len() - 64..]).for_each(|(size, cell)| *size = *cell);
    Reading::Durations { sizes, nanos: cells[SUM] }
}

/// What two threads have told together.
fn sum(one: Reading, other: Reading) -> Reading {
    match (one, other) {
        (
            Reading::Latency { ended, inside, nanos },
            Reading::Latency { ended: e, inside: i, nanos: n },
        ) => Reading::Latency { ended: ended + e, inside: inside + i, nanos: nanos + n },
        (Reading::Concurrency { mean, inside }, Reading::Concurrency { mean: m, inside: i }) => {
            Reading::Concurrency { mean: mean + m, inside: inside + i }
        }
        (
            Reading::Durations { mut sizes, nanos },
            Reading::Durations { sizes: other, nanos: n },
        ) => {
            sizes.iter_mut().zip(*other).for_each(|(sum, part)| *sum += part);
            Reading::Durations { sizes, nanos: nanos + n }
        }
        (one, _) => one,
    }
}
