//! Counters and timers, whose values are kept per processor and summed by the reader.

use std::sync::atomic::{AtomicU64, Ordering};

use refit_sys::processor;

use super::{Core, Instrument};
use crate::definition::FieldKind;
use crate::session::{Area, Kind};

/// A counter.
#[derive(Debug)]
pub struct Counter(Core);

impl Counter {
    /// Creates a counter with a name that belongs to a manager.
    pub const fn new(manager: &'static str, name: &'static str) -> Self {
        let mut core = Core::new(Kind::Counter, manager, name);
        core.fields = &[("sum", FieldKind::U64), ("count", FieldKind::U64)];
        Self(core)
    }

    /// Increases the count by one, and the sum by `value`.
    #[inline(always)]
    pub fn add(&'static self, value: u64) {
        add(&self.0, value);
    }

    /// Returns the count and the sum; zeros without a session.
    pub fn totals(&'static self) -> [u64; 2] {
        totals_of(&self.0)
    }
}

impl Instrument for Counter {
    fn core(&'static self) -> &'static Core {
        &self.0
    }
}

/// Sums the time that a part of the program takes, in ticks of the session's clock.
#[derive(Debug)]
pub struct Timer(Core);

impl Timer {
    /// Creates a timer with a name that belongs to a manager.
    pub const fn new(manager: &'static str, name: &'static str) -> Self {
        let mut core = Core::new(Kind::Timer, manager, name);
        core.fields = &[("sum", FieldKind::Ticks), ("count", FieldKind::U64)];
        Self(core)
    }

    /// Starts the timer, which runs until the returned guard is dropped.
    #[inline(always)]
    #[must_use = "it stops at once if it is not kept"]
    pub fn start(&'static self) -> Running {
        let mut began = None;
        // All sessions of a host have the same clock, so any of them can be used.
        if let Some(link) = self.0.on() {
            self.0.each(link, |_, area| began = began.or_else(|| Some((area, area.now()))));
        }
        Running { timer: self, began }
    }

    /// Returns the number of runs and their ticks; zeros without a session.
    pub fn totals(&'static self) -> [u64; 2] {
        totals_of(&self.0)
    }
}

impl Instrument for Timer {
    fn core(&'static self) -> &'static Core {
        &self.0
    }
}

/// A running timer.
#[derive(Debug)]
pub struct Running {
    timer: &'static Timer,
    began: Option<(&'static Area, u64)>,
}

impl Drop for Running {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((area, began)) = self.began {
            // A thread that was moved to a processor whose counter is behind by some ticks counts
            // as having taken no time.
            add(&self.timer.0, area.now().saturating_sub(began));
        }
    }
}

/// Performs two additions, which are not atomic together: a reader between them sees the sum
/// without its count, which is corrected a moment later.
#[inline(always)]
fn add(core: &'static Core, value: u64) {
    let Some(link) = core.on() else { return };
    core.each(link, |id, area| {
        if let Some([count, sum]) = area.cell(processor::current(), id) {
            count.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(value, Ordering::Relaxed);
        }
    });
}

fn totals_of(core: &'static Core) -> [u64; 2] {
    core.first().map_or([0, 0], |(id, area)| area.totals(id))
}

impl Area {
    /// Returns the count and the sum of an instrument over all processors.
    pub(crate) fn totals(&self, id: u32) -> [u64; 2] {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (0..self.geometry().processors).filter_map(|processor| self.cell(processor, id)).fold(
            [0_u64; 2],
            |[count, sum], cell| {
                [count.wrapping_add(load(&cell[0])), sum.wrapping_add(load(&cell[1]))]
            },
        )
    }
}
