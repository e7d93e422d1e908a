//! The scheduler as a source of records: which thread got which processor at what time and from
//! which thread, and the names of threads.
//!
//! The kernel reports times in `CLOCK_MONOTONIC_RAW`, and records contain ticks of the session. A
//! pair of both clocks from the beginning and a current one define the line between them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use refit_sys::clock;
use refit_sys::perf::{EventKind, SchedulerEvent, Target, Watch};

use super::source::{Source, SourceBatch};
use crate::block::Thread;
use crate::definition::{FieldKind, Role};
use crate::record::{Phase, Record, What};
use crate::session::{Described, Kind, Session};

/// The number of pages of a kernel ring: half a MiB, for some ten thousand switches.
const PAGES: usize = 128;

/// The scheduler's events, on all processors.
#[derive(Debug)]
pub struct Scheduler {
    session: &'static Session,
    watches: Vec<Watch>,
    switch_in: u32,
    switch_out: u32,
    /// Ticks and nanoseconds at the beginning.
    first: (u64, u64),
    /// The process of each thread, and whether the name has been reported.
    threads: BTreeMap<u32, (u32, bool)>,
}

/// The error that a session has no room for the scheduler's events.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the session has no room for more events")]
struct SessionFull;

impl Scheduler {
    /// Watches all threads, which requires the corresponding permission, or only the given threads
    /// and those that they create.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel, usually a lack of permission.
    pub fn watch(session: &'static Session, threads: Option<&[u32]>) -> io::Result<Scheduler> {
        let processors = online();
        let mut watches = Vec::new();
        for processor in processors {
            match threads {
                None => watches.push(Watch::new(Target::Processor(processor), PAGES)?),
                Some(threads) => {
                    for thread in threads {
                        let (thread, from_exec) = (*thread, false);
                        let target = Target::Thread { thread, processor, from_exec };
                        watches.push(Watch::new(target, PAGES / 4)?);
                    }
                }
            }
        }
        let define = |name, role, fields| {
            let (manager, kind, parent) = ("system", Kind::Event, 0);
            session.define(&Described { name, manager, kind, role, fields, parent })
        };
        let full = || io::Error::new(io::ErrorKind::StorageFull, SessionFull);
        let inward = [("previous", FieldKind::U32)];
        let outward = [("next", FieldKind::U32), ("preempted", FieldKind::U32)];
        Ok(Scheduler {
            session,
            watches,
            switch_in: define("kernel::switch in", Role::SwitchIn, &inward).ok_or_else(full)?,
            switch_out: define("kernel::switch out", Role::SwitchOut, &outward).ok_or_else(full)?,
            first: (session.now(), clock::raw()),
            threads: BTreeMap::new(),
        })
    }

    /// Returns the record of a switch; `None` for other events.
    fn record(&self, event: &SchedulerEvent, ticks: u64) -> Option<Record> {
        let (id, payload) = match event.kind {
            EventKind::In(previous) => (self.switch_in, u64::from(previous.unwrap_or(0))),
            EventKind::Out { next, preempted } => {
                let next = u64::from(next.unwrap_or(0));
                (self.switch_out, next | u64::from(preempted) << 32)
            }
            _ => return None,
        };
        let what = What::new(id, Phase::Point);
        Some(Record { time: ticks.max(1), what, thread: event.thread, payload: [payload, 0] })
    }

    /// Adds the names of threads that were seen and not reported yet, from `/proc`.
    fn names(&mut self, found: &mut SourceBatch) {
        for (thread, (process, reported)) in &mut self.threads {
            if !*reported && *thread != 0 {
                *reported = true;
                let path = format!("/proc/{process}/task/{thread}/comm");
                // A thread that has ended meanwhile has no name.
                if let Ok(name) = std::fs::read(path) {
                    let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
                    found.threads.push(Thread { id: *thread, process: *process, name });
                }
            }
        }
    }
}

impl Source for Scheduler {
    fn collect(&mut self, found: &mut SourceBatch) {
        let mut all: Vec<SchedulerEvent> = Vec::new();
        self.watches.iter_mut().for_each(|watch| {
            watch.read(|event| all.push(event));
        });
        // Several watches of one processor are ordered separately.
        all.sort_by_key(|event| event.time);
        let now = (self.session.now(), clock::raw());
        for event in all {
            let (id, process) = (event.thread, event.process);
            match &event.kind {
                EventKind::Named(name) => {
                    self.threads.insert(id, (process, true));
                    found.threads.push(Thread { id, process, name: name.clone() });
                }
                // The number may be reused for a thread with another name.
                EventKind::Began | EventKind::Ended => drop(self.threads.remove(&id)),
                EventKind::Lost(lost) => found.lost.push((event.processor, *lost)),
                EventKind::In(_) | EventKind::Out { .. } => {
                    self.threads.entry(id).or_insert((process, false));
                    let ticks = between(self.first, now, event.time);
                    let record = self.record(&event, ticks);
                    found.records.extend(record.map(|record| (event.processor, record)));
                }
            }
        }
        self.names(found);
    }
}

/// Returns the ticks at a time in nanoseconds, on the line through two pairs of both.
fn between(first: (u64, u64), now: (u64, u64), time: u64) -> u64 {
    let ticks = now.0.saturating_sub(first.0);
    let nanos = now.1.saturating_sub(first.1).max(1);
    let scaled = |nanos_since: u64| {
        let ticks = u128::from(nanos_since) * u128::from(ticks) / u128::from(nanos);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    };
    match time.checked_sub(first.1) {
        Some(since) => first.0.saturating_add(scaled(since)),
        None => first.0.saturating_sub(scaled(first.1 - time)),
    }
}

/// Returns the numbers of the processors that are online.
fn online() -> BTreeSet<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_the_line_between_two_pairs_and_beyond() {
        let (first, now) = ((1000, 500), (4000, 1500));
        assert_eq!(between(first, now, 500), 1000);
        assert_eq!(between(first, now, 1000), 2500);
        assert_eq!(between(first, now, 1600), 4300);
        assert_eq!(between(first, now, 400), 700);
        assert_eq!(between(first, first, 500), 1000, "no time has passed");
    }
}
