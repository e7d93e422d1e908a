//! The cost of measuring: each kind of instrumentation point is measured in a loop without other
//! work (*in vitro*) and between other work (*in vivo*), as in Kohr 1994, §5 and table 1.
//!
//! Both costs are differences between two loops that differ only by the instrumentation point,
//! divided by the number of points. The loops alternate, so that a disturbance affects both. The
//! result is the median of the rounds. The records are written to a session of their own and not
//! read.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use refit_sys::processor;

use crate::block::{Cost, Place};
use crate::instrument::Event;
use crate::session::{Area, Geometry, Session};

const ROUNDS: usize = 48;
/// The number of instrumentation points of a round, which is smaller than a ring of the scratch
/// session.
const POINTS: u64 = 256;
const COLD_ROUNDS: usize = 9;
/// The size of the memory that is accessed to empty the caches, which exceeds a second-level cache.
const EMPTIED_BYTES: usize = 8 << 20;

/// Returns the memory for the records of the measurement, which is created once per process.
fn scratch() -> Option<&'static Area> {
    static SCRATCH: OnceLock<Option<&'static Session>> = OnceLock::new();
    let make = || {
        let geometry = Geometry { definitions: 1, ..Geometry::of_host() };
        Session::create(geometry.with_ring_bytes(1024 * crate::record::SIZE)).ok()
    };
    let session = (*SCRATCH.get_or_init(make))?;
    EVENT.lead_to(session.link(1)?);
    Some(session.area())
}

/// An event like those of programs, except that it is linked to the scratch session.
static EVENT: Event = Event::new("refit", "cost");

/// Executes an instrumentation point once, with a number that it may use.
type Point = fn(&Area, u64);

/// The kinds of instrumentation points.
const KINDS: [(&str, Point); 3] = [
    ("event", |_, n| EVENT.record([n, n])),
    ("counter", |area, n| add(area, n)),
    ("timer", |area, _| {
        let began = area.now();
        add(area, area.now().saturating_sub(began));
    }),
];

#[inline(always)]
fn add(area: &Area, value: u64) {
    if let Some([count, sum]) = area.cell(processor::current(), 1) {
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(value, Ordering::Relaxed);
    }
}

/// Measures the costs, which takes some ten milliseconds. Returns an empty list if there is no
/// memory.
pub fn measure() -> Vec<Cost> {
    let Some(area) = scratch() else { return Vec::new() };
    let mut walked = vec![0_u8; EMPTIED_BYTES];
    let mut costs = Vec::new();
    for (name, point) in KINDS {
        let cold = cold(area, point, &mut walked);
        for (place, work) in [(Place::InVitro, 0), (Place::InVivo, 64)] {
            let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(area, point, work)).collect();
            rounds.sort_by(f64::total_cmp);
            let at = |part: usize| rounds[ROUNDS * part / 4];
            let (ticks, spread) = (at(2).max(0.0), (at(3) - at(1)) / 2.0);
            costs.push(Cost { instrument: name.into(), place, ticks, spread, cold });
        }
    }
    costs
}

/// Returns the ticks of one instrumentation point after the given amount of work.
fn round(area: &Area, point: Point, work: u64) -> f64 {
    empty(area);
    let without = timed(area, |n| {
        labour(n, work);
    });
    let with = timed(area, |n| point(area, labour(n, work)));
    (with as f64 - without as f64) / POINTS as f64
}

fn timed(area: &Area, mut step: impl FnMut(u64)) -> u64 {
    let began = area.now();
    for n in 0..POINTS {
        step(black_box(n));
    }
    area.now().saturating_sub(began)
}

/// Performs work that needs registers and has a result: the given number of steps of a linear
/// congruential generator.
#[inline(always)]
fn labour(n: u64, steps: u64) -> u64 {
    black_box((0..steps).fold(n, |x, _| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
}

/// Returns the ticks of one instrumentation point after the caches were emptied, as the median of
/// several measurements.
fn cold(area: &Area, point: Point, walked: &mut [u8]) -> f64 {
    let mut ticks: Vec<u64> = (0..COLD_ROUNDS)
        .map(|_| {
            empty(area);
            walked.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&walked);
            let began = area.now();
            point(area, began);
            area.now().saturating_sub(began)
        })
        .collect();
    ticks.sort_unstable();
    ticks[COLD_ROUNDS / 2] as f64
}

/// Empties the rings. Only this thread writes to them, so all reserved records are complete.
fn empty(area: &Area) {
    for ring in area.rings() {
        let begin = ring.limit.load(Ordering::Relaxed).saturating_sub(ring.slots.len() as u64);
        ring.give_back(begin, ring.reserved());
    }
}
