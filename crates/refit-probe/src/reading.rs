//! Turns cells into counts, times and distributions, while the program counts into them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use refit_splice::{Action, ENTRIES, EXITS, Installed, Kept, KeptValues, Key, Keyed, Lanes, TIME};

use crate::action::{Do, Folding};
use crate::steps::{WAYS, Watching};

/// The counts of an action at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// By key, if the action has one.
    pub keys: BTreeMap<u64, Reading>,
    /// The total, if the action has no key; otherwise the counts of keys that found no free entry
    /// in the table.
    pub all: Reading,
    /// Calls that were not timed, because there was no room for more threads, or for deeper
    /// nesting.
    pub lost: u64,
}

/// The value of one or more cells.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The action counts nothing here.
    Nothing,
    /// Number of times.
    Count(u64),
    /// Calls that have ended, calls in progress, and the time in all of them up to now.
    Latency {
        /// Calls that have ended.
        ended: u64,
        /// Calls in progress.
        inside: u64,
        /// Time in all of them, in nanoseconds.
        nanos: u64,
    },
    /// Threads inside.
    Concurrency {
        /// Mean since the beginning.
        mean: f64,
        /// Threads inside now.
        inside: u64,
    },
    /// Calls, and the ways in which they ended. The others are in progress, or were left without
    /// running code of their function: by an exception or `longjmp`.
    Exits {
        /// Calls.
        calls: u64,
        /// Calls that returned, that ended with a jump to another function, that ended in a call
        /// that never returns, and that an exception left after the function had cleaned up.
        ways: [u64; WAYS],
    },
    /// The sum, the least or the greatest of some values.
    Folded {
        /// Number of values.
        values: u64,
        /// The result; 0 if there are none.
        result: i64,
    },
    /// A number that is kept; 0 if there is none.
    Kept(i64),
    /// Number of values of each size.
    Histogram(Box<[u64; 65]>),
    /// Number of values in each bucket ([`Buckets`](crate::action::Buckets)).
    Linear(Vec<u64>),
    /// Number of durations of each size, in nanoseconds.
    Durations {
        /// Numbers by size, from 0 on.
        sizes: Box<[u64; 65]>,
        /// Sum of all durations, in nanoseconds.
        nanos: u64,
    },
}

impl Reading {
    /// Returns the count; 0 if something else was read.
    pub fn count(&self) -> u64 {
        if let Self::Count(count) = self { *count } else { 0 }
    }

    /// Returns the reading of a timer that has not been used.
    fn none(what: &Do) -> Self {
        match what {
            Do::Concurrency => Self::Concurrency { mean: 0.0, inside: 0 },
            Do::Durations(_) => Self::Durations { sizes: Box::new([0; 65]), nanos: 0 },
            _ => Self::Latency { ended: 0, inside: 0, nanos: 0 },
        }
    }

    /// Adds what the same action has counted elsewhere.
    pub fn add(&mut self, other: Self, what: &Do) {
        match (self, other) {
            (Self::Count(sum), Self::Count(part)) => *sum += part,
            (Self::Histogram(sums), Self::Histogram(parts)) => {
                sums.iter_mut().zip(*parts).for_each(|(sum, part)| *sum += part);
            }
            (Self::Linear(sums), Self::Linear(parts)) => {
                sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            }
            (Self::Folded { .. }, Self::Folded { values: 0, .. }) => {}
            (Self::Folded { values, result }, Self::Folded { values: more, result: part }) => {
                *result = match what {
                    _ if *values == 0 => part,
                    Do::Fold(Folding::Least, _) => part.min(*result),
                    Do::Fold(Folding::Greatest, _) => part.max(*result),
                    _ => result.wrapping_add(part),
                };
                *values += more;
            }
            (
                Self::Latency { ended, inside, nanos },
                Self::Latency { ended: e, inside: i, nanos: n },
            ) => (*ended, *inside, *nanos) = (*ended + e, *inside + i, *nanos + n),
            (Self::Concurrency { mean, inside }, Self::Concurrency { mean: m, inside: i }) => {
                (*mean, *inside) = (*mean + m, *inside + i);
            }
            (Self::Durations { sizes, nanos }, Self::Durations { sizes: other, nanos: n }) => {
                sizes.iter_mut().zip(*other).for_each(|(sum, part)| *sum += part);
                *nanos += n;
            }
            (Self::Exits { calls, ways }, Self::Exits { calls: more, ways: other }) => {
                *calls += more;
                ways.iter_mut().zip(other).for_each(|(sum, part)| *sum += part);
            }
            // Of several programs, one number stays.
            (Self::Kept(number), Self::Kept(other)) => *number = other,
            // The same action has readings of the same kind.
            _ => {}
        }
    }

    /// Subtracts what the same action had counted before. Numbers that are no counts or sums become
    /// 0.
    pub fn subtract(&mut self, before: &Self, what: &Do) {
        let less = |sums: &mut [u64], parts: &[u64]| {
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum = sum.saturating_sub(*part));
        };
        match (self, before) {
            (Self::Count(sum), Self::Count(part)) => *sum = sum.saturating_sub(*part),
            (Self::Histogram(sums), Self::Histogram(parts)) => less(&mut sums[..], &parts[..]),
            (Self::Linear(sums), Self::Linear(parts)) => less(sums, parts),
            (Self::Folded { values, result }, Self::Folded { values: less, result: part }) => {
                let sums = !matches!(what, Do::Fold(Folding::Least | Folding::Greatest, _));
                *values = if sums { values.saturating_sub(*less) } else { 0 };
                *result = if sums { result.wrapping_sub(*part) } else { 0 };
            }
            (Self::Kept(number), _) => *number = 0,
            // Maps have no other readings.
            _ => {}
        }
    }

    /// Adapts what was read of least or greatest values that were taken before: numbers of values
    /// without an extreme are those of values that were taken, and an extreme has one at least.
    pub fn after_taking(&mut self, what: &Do) {
        let Self::Folded { values, result } = self else { return };
        let none = match what {
            Do::Fold(Folding::Least, _) => i64::MAX,
            Do::Fold(Folding::Greatest, _) => i64::MIN,
            _ => return,
        };
        let is_none = *result == none || *values == 0;
        *values = if is_none { 0 } else { values.cast_signed().max(1).cast_unsigned() };
        *result = if is_none { 0 } else { *result };
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Count(count) => *count == 0,
            Self::Kept(number) => *number == 0,
            Self::Linear(buckets) => buckets.iter().all(|count| *count == 0),
            Self::Folded { values, .. } => *values == 0,
            Self::Exits { calls, ways } => calls + ways.iter().sum::<u64>() == 0,
            Self::Latency { ended, inside, .. } => ended + inside == 0,
            Self::Concurrency { mean, inside } => *inside == 0 && *mean <= 0.0,
            Self::Histogram(sizes) | Self::Durations { sizes, .. } => {
                sizes.iter().all(|count| *count == 0)
            }
        }
    }
}

/// Reads what an action has counted up to now in a process that has been watched for `since`.
///
/// # Errors
/// The error of reading the cells.
pub(crate) fn read(
    installed: &Installed,
    lanes: &mut Lanes<'_>,
    watching: &Watching,
    process: u32,
    since: Duration,
) -> io::Result<Counts> {
    let Watching { what, by, step, first, .. } = watching;
    if matches!(what, Do::Latency | Do::Cpu | Do::Concurrency) {
        let (threads, lost) = installed.timers(step, *first)?;
        let each = threads.into_iter().map(|(thread, timer)| {
            let now = || match what {
                Do::Cpu => running_time(process, thread),
                _ => Some(refit_sys::clock::counter()),
            };
            (thread, timed(what, timer, since, now()))
        });
        let (keys, all) = match by[..] {
            [_, ..] => (each.collect(), Reading::Nothing),
            [] => (BTreeMap::new(), total(what, each.map(|(_, one)| one))),
        };
        return Ok(Counts { keys, all, lost });
    }
    if let Do::Durations(_) = what {
        let (threads, lost) = installed.durations(step, *first)?;
        let deep: u64 = threads.values().map(|cells| cells[DEEP]).sum();
        let each = threads.into_iter().map(|(thread, cells)| (thread, spread(&cells)));
        let (keys, all) = match by[..] {
            [_, ..] => (each.collect(), Reading::Nothing),
            [] => (BTreeMap::new(), total(what, each.map(|(_, one)| one))),
        };
        return Ok(Counts { keys, all, lost: lost + deep });
    }
    if *what == Do::Exits {
        let mut cells = [0; 1 + WAYS];
        for (cell, number) in cells.iter_mut().zip(*first..) {
            *cell = lanes.cell(number)?;
        }
        let [calls, ways @ ..] = cells;
        let all = Reading::Exits { calls, ways };
        return Ok(Counts { keys: BTreeMap::new(), all, lost: 0 });
    }
    if let Action::Keep { kept, .. } = &step.action {
        return Ok(kept_counts(watching, installed.kept(kept.map, of_tuples(kept))?));
    }
    if step.key.is_some() {
        return Ok(keyed_counts(watching, lanes.keyed(step, *first)?));
    }
    let all = counted(what, &lanes.cells(step, *first)?);
    Ok(Counts { keys: BTreeMap::new(), all, lost: 0 })
}

/// Takes what an action has counted up to now, which begins anew: least and greatest values, and
/// numbers that are kept. Nothing is taken of others, and nothing but what these keys have if there
/// is an `only`.
///
/// # Errors
/// The error of mapping the cells.
pub(crate) fn take(
    installed: &Installed,
    watching: &Watching,
    only: Option<&BTreeSet<u64>>,
) -> io::Result<Counts> {
    let Watching { what, step, first, .. } = watching;
    match (what, &step.action) {
        (_, Action::Keep { kept, .. }) => {
            Ok(kept_counts(watching, installed.take_kept(kept.map, of_tuples(kept), only)?))
        }
        (Do::Fold(Folding::Least | Folding::Greatest, _), _) if step.key.is_some() => {
            Ok(keyed_counts(watching, installed.take_keyed(step, *first, only)?))
        }
        (Do::Fold(Folding::Least | Folding::Greatest, _), _) => {
            let all = counted(what, &installed.take_cells(step, *first)?);
            Ok(Counts { keys: BTreeMap::new(), all, lost: 0 })
        }
        _ => Ok(Counts { keys: BTreeMap::new(), all: Reading::none(what), lost: 0 }),
    }
}

/// Whether the keys of a map are numbers of several items.
fn of_tuples(kept: &Kept) -> bool {
    matches!(kept.key, Some(Key::Tuple(_)))
}

fn kept_counts(watching: &Watching, KeptValues { values, lost }: KeptValues) -> Counts {
    let each = values.into_iter().map(|(key, number)| (key, Reading::Kept(number)));
    let (keys, all) = match watching.by[..] {
        [_, ..] => (each.collect(), Reading::Nothing),
        [] => (BTreeMap::new(), each.map(|(_, one)| one).next().unwrap_or(Reading::Kept(0))),
    };
    Counts { keys, all, lost }
}

fn keyed_counts(watching: &Watching, (keys, others): (Keyed, Vec<u64>)) -> Counts {
    let read = |cells: &[u64]| counted(&watching.what, cells);
    let keys = keys.iter().map(|(&key, cells)| (key, read(cells)));
    Counts { keys: keys.collect(), all: read(&others), lost: 0 }
}

/// Returns the CPU time of a thread in nanoseconds, as the kernel last updated it, some
/// milliseconds ago at most.
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
        Do::Linear { .. } => Reading::Linear(cells.to_vec()),
        Do::Fold(fold, _) if what.is_taken() => match cells[1] {
            // Values that were counted after their extreme had been taken may be left.
            0 => Reading::Folded { values: 0, result: 0 },
            // The number is less than it is if that of one was taken in advance.
            extreme => Reading::Folded {
                values: cells[0].cast_signed().max(1).cast_unsigned(),
                result: fold.kept().value(extreme),
            },
        },
        Do::Fold(fold, _) => {
            let result = if cells[0] == 0 { 0 } else { fold.kept().value(cells[1]) };
            Reading::Folded { values: cells[0], result }
        }
        _ => Reading::Nothing,
    }
}

/// Evaluates a thread's timer. `now` is the time of its clock; `None` if the thread has ended, and
/// so is no longer inside.
fn timed(what: &Do, timer: [u64; 3], since: Duration, now: Option<u64>) -> Reading {
    let ended = timer[EXITS];
    let inside = if now.is_some() { timer[ENTRIES].saturating_sub(ended) } else { 0 };
    let time = timer[TIME].wrapping_add(inside.wrapping_mul(now.unwrap_or_default()));
    // A call that ended during the reading can make the time negative, or larger than possible.
    let time = if time.cast_signed() < 0 { 0 } else { time };
    let nanos = if *what == Do::Cpu { time } else { refit_sys::clock::nanos(time) };
    if *what == Do::Concurrency {
        let mean = nanos as f64 / (since.as_nanos() as f64).max(1.0);
        return Reading::Concurrency { mean, inside };
    }
    Reading::Latency { ended, inside, nanos }
}

/// Indices of a thread's cells for durations.
const DEEP: usize = 1;
const SUM: usize = 4;

/// Evaluates a thread's durations.
fn spread(cells: &[u64]) -> Reading {
    let mut sizes = Box::new([0; 65]);
    // The last cells are those of sizes up to 63; no duration is longer.
    sizes.iter_mut().zip(&cells[cells.len() - 64..]).for_each(|(size, cell)| *size = *cell);
    Reading::Durations { sizes, nanos: cells[SUM] }
}

/// Adds up the readings of all threads.
fn total(what: &Do, each: impl Iterator<Item = Reading>) -> Reading {
    each.fold(Reading::none(what), |mut all, one| {
        all.add(one, what);
        all
    })
}
