//! The scheduler as a source of records: which thread got which processor at what time and from
//! which thread, and the names of threads.
//!
//! With stacks, each record of a thread that is switched out has the number of the stack on which
//! it stood. [`Unwind`] finds the stacks and names their frames.
//!
//! The kernel reports times in `CLOCK_MONOTONIC_RAW`, and records contain ticks of the session. A
//! pair of both clocks from the beginning and a current one define the line between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use refit_sys::clock;
use refit_sys::memory::PAGE_SIZE;
use refit_sys::perf::{EventKind, SchedulerEvent, StackTarget, Target, UserStack, Watch};
use refit_sys::process;

use super::source::{Source, SourceBatch};
use super::switches::Reader;
use crate::block::Thread;
use crate::definition::{FieldKind, Role};
use crate::record::{Phase, Record, What};
use crate::session::{Described, Kind, Session};

/// The number of pages of a kernel ring: half a MiB, for some ten thousand switches.
const PAGES: usize = 128;
/// The same with stacks: 8 MiB, for a thousand switches between two readings.
const STACK_PAGES: usize = 2048;

/// The means to find the stacks of threads that are switched out.
pub trait Unwind: Send + std::fmt::Debug {
    /// Processes an event that may change which code is where in a process.
    fn see(&mut self, event: &SchedulerEvent);

    /// Returns the number of the stack on which a thread of this process stands, 0 if it stands on
    /// none; adds the stack and its frames, if they are new.
    fn stack(&mut self, process: u32, stands: &UserStack, found: &mut SourceBatch) -> u32;

    /// Adds all frames again, with their names.
    fn name(&mut self, found: &mut SourceBatch);
}

/// The part of the scheduler's events that is recorded.
#[derive(Debug, Default)]
pub struct Watched<'w> {
    /// The threads, with those that they create; all if `None`, which requires the corresponding
    /// permission.
    pub threads: Option<&'w [u32]>,
    /// The threads whose stacks are recorded, and the means to find the stacks.
    pub stacks: Option<(StackTarget<'w>, Box<dyn Unwind>)>,
    /// The size of the kernel's ring for each processor, in bytes, if the default is smaller.
    pub ring: Option<usize>,
}

/// The scheduler's events, on all processors.
#[derive(Debug)]
pub struct Scheduler {
    session: &'static Session,
    reader: Reader,
    switch_in: u32,
    switch_out: u32,
    /// Ticks and nanoseconds at the beginning.
    first: (u64, u64),
    threads: BTreeMap<u32, ThreadName>,
    /// Threads that were seen and whose names are not known.
    unnamed: BTreeSet<u32>,
    unwind: Option<Box<dyn Unwind>>,
    /// The stacks on which threads stand that are about to be switched out.
    stands: HashMap<u32, u32>,
}

/// The name of a thread, as far as it is known. The thread may have ended before its name can be
/// read, so the names of all that run are read at the beginning, and new threads have those of
/// their creators.
#[derive(Debug, Default)]
struct ThreadName {
    process: u32,
    name: Option<String>,
    /// Whether the name is in the trace.
    reported: bool,
}

impl ThreadName {
    /// Reports the name of a thread, if it is known and not reported yet.
    fn report(&mut self, id: u32, found: &mut SourceBatch) {
        if let (false, Some(name)) = (self.reported, &self.name) {
            found.threads.push(Thread { id, process: self.process, name: name.clone() });
            self.reported = true;
        }
    }
}

/// The error that a session has no room for the scheduler's events.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the session has no room for more events")]
struct SessionFull;

impl Scheduler {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel, usually a lack of permission.
    pub fn watch(session: &'static Session, watched: Watched<'_>) -> io::Result<Scheduler> {
        let Watched { threads, stacks, ring } = watched;
        let (stacks, unwind) = stacks.unzip();
        let default = if stacks.is_some() { STACK_PAGES } else { PAGES };
        let pages = default.max(ring.unwrap_or(0) / PAGE_SIZE).next_power_of_two();
        let watch = |processor| Watch::new(Target { processor, threads, stacks }, pages);
        let watches = online().into_iter().map(watch).collect::<io::Result<_>>()?;
        let reader = Reader::start(watches)?;
        let define = |name, role, fields| {
            let (manager, kind, parent) = ("system", Kind::Event, 0);
            session.define(&Described { name, manager, kind, role, fields, parent })
        };
        let full = || io::Error::new(io::ErrorKind::StorageFull, SessionFull);
        let inward = [("previous", FieldKind::U32)];
        let outward =
            [("next", FieldKind::U32), ("preempted", FieldKind::U32), ("stack", FieldKind::U32)];
        let outward = &outward[..if unwind.is_some() { 3 } else { 2 }];
        Ok(Scheduler {
            session,
            reader,
            switch_in: define("kernel::switch in", Role::SwitchIn, &inward).ok_or_else(full)?,
            switch_out: define("kernel::switch out", Role::SwitchOut, outward).ok_or_else(full)?,
            first: (session.now(), clock::raw()),
            unnamed: BTreeSet::new(),
            // After the kernel has begun to report changes.
            threads: running(threads),
            unwind,
            stands: HashMap::new(),
        })
    }

    /// Returns the record of a switch; `None` for other events.
    fn record(&mut self, event: &SchedulerEvent, ticks: u64) -> Option<Record> {
        let (id, payload) = match event.kind {
            EventKind::In(previous) => (self.switch_in, [u64::from(previous.unwrap_or(0)), 0]),
            EventKind::Out { next, preempted } => {
                let next = u64::from(next.unwrap_or(0));
                let stack = self.stands.remove(&event.thread).unwrap_or(0);
                (self.switch_out, [next | u64::from(preempted) << 32, stack.into()])
            }
            _ => return None,
        };
        let what = What::new(id, Phase::Point);
        Some(Record { time: ticks.max(1), what, thread: event.thread, payload })
    }

    /// Finds the stack on which a thread stands, or notes what changes in its process.
    fn unwind(&mut self, event: &SchedulerEvent, found: &mut SourceBatch) {
        let Some(unwind) = &mut self.unwind else { return };
        match &event.kind {
            EventKind::Stands(stands) => {
                let stack = unwind.stack(event.process, stands, found);
                self.stands.insert(event.thread, stack);
            }
            _ => unwind.see(event),
        }
    }

    /// Adds the names of threads that were seen and have none yet, from `/proc`.
    fn names(&mut self, found: &mut SourceBatch) {
        for thread in std::mem::take(&mut self.unnamed) {
            let Some(known) = self.threads.get_mut(&thread) else { continue };
            // A thread that has ended meanwhile has no name.
            known.name = known.name.take().or_else(|| name(known.process, thread));
            known.report(thread, found);
        }
    }
}

impl Source for Scheduler {
    fn collect(&mut self, found: &mut SourceBatch) {
        let all = self.reader.take();
        let now = (self.session.now(), clock::raw());
        for event in all {
            let (id, process) = (event.thread, event.process);
            self.unwind(&event, found);
            match &event.kind {
                EventKind::Named { name, .. } => {
                    let name = Some(name.clone());
                    let mut known = ThreadName { process, name, reported: false };
                    known.report(id, found);
                    self.threads.insert(id, known);
                }
                // The number may be that of a thread that has ended.
                EventKind::Began { thread, .. } => {
                    let name = self.threads.get(thread).and_then(|one| one.name.clone());
                    self.threads.insert(id, ThreadName { process, name, reported: false });
                }
                EventKind::Ended => drop(self.threads.remove(&id)),
                EventKind::Stands(_) | EventKind::Mapped(_) => {}
                EventKind::Lost(lost) => found.lost.push((event.processor, *lost)),
                EventKind::In(_) | EventKind::Out { .. } => {
                    let known = self.threads.entry(id).or_default();
                    known.process = process;
                    known.report(id, found);
                    if !known.reported && id != 0 {
                        self.unnamed.insert(id);
                    }
                    let ticks = between(self.first, now, event.time);
                    let record = self.record(&event, ticks);
                    found.records.extend(record.map(|record| (event.processor, record)));
                }
            }
        }
        self.names(found);
    }

    fn finish(&mut self, found: &mut SourceBatch) {
        self.reader.stop();
        self.collect(found);
        if let Some(unwind) = &mut self.unwind {
            unwind.name(found);
        }
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

/// Returns these threads, or all of the machine, with their names.
fn running(threads: Option<&[u32]>) -> BTreeMap<u32, ThreadName> {
    let known = |process, thread| {
        let name = name(process, thread);
        (thread, ThreadName { process, name, reported: false })
    };
    match threads {
        // The first switch tells the process.
        Some(threads) => threads.iter().map(|&thread| known(thread, thread)).collect(),
        None => {
            let each = |process| {
                let threads = process::threads(process).into_iter();
                threads.map(move |thread| known(process, thread))
            };
            process::all().flat_map(each).collect()
        }
    }
}

/// Returns the name of a thread; `None` if it has ended.
fn name(process: u32, thread: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{process}/task/{thread}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
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
