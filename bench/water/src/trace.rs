//! The instruments of the program, and variants of it that have none, or only a clock around one
//! procedure.

use std::cell::Cell;
use std::time::Instant;

use parking_lot::Mutex;
use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::{Event, Span};

/// The procedures of Kohr 1994, table 2, as far as this program has them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Procedure {
    Main,
    Initia,
    Mdmain,
    Predic,
    Correc,
    Bndry,
    Kineti,
    Poteng,
    Intraf,
    Interf,
    Cshift,
    Update,
}

/// Probes of the program's actions, which may do nothing.
pub(crate) trait Probes: 'static {
    /// Lives as long as the procedure runs.
    type Guard;
    fn procedure(which: Procedure) -> Self::Guard;
    /// Begins waiting at a barrier.
    fn barrier(which: u64) -> Self::Guard;
    /// Begins waiting for a lock.
    fn lock(which: u64) -> Self::Guard;
    /// Begins holding the lock.
    fn held(which: u64) -> Self::Guard;
}

/// No instruments, not even suspended ones.
pub(crate) struct Plain;

impl Probes for Plain {
    type Guard = ();
    fn procedure(_: Procedure) {}
    fn barrier(_: u64) {}
    fn lock(_: u64) {}
    fn held(_: u64) {}
}

/// No instruments except a clock around barriers and the procedures with long calls, with which the
/// instruments are compared.
pub(crate) struct Timed;

/// The nanoseconds of each interval so far, by procedure, of all threads; those of MDMAIN without
/// its waiting.
static TIMES: [Mutex<Vec<u64>>; NAMES.len()] = [const { Mutex::new(Vec::new()) }; NAMES.len()];

thread_local! {
    /// The nanoseconds for which this thread has waited at barriers since its MDMAIN began.
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the names of the procedures that have a clock around them, with the median of their
/// intervals.
pub(crate) fn timed() -> impl Iterator<Item = (&'static str, u64)> {
    NAMES.iter().zip(&TIMES).filter_map(|(name, times)| Some((*name, median(&mut times.lock())?)))
}

/// Returns the median, the value that half of them do not exceed; `None` if there are none.
pub(crate) fn median(times: &mut [u64]) -> Option<u64> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// Measures the time for which it lives: that of a procedure, or (`None`) of waiting.
pub(crate) struct Stopwatch(Option<Procedure>, Instant);

impl Stopwatch {
    fn start(which: Option<Procedure>) -> Stopwatch {
        if matches!(which, Some(Procedure::Mdmain)) {
            WAITED.set(0);
        }
        Stopwatch(which, Instant::now())
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.1.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match self.0 {
            None => WAITED.set(WAITED.get() + nanos),
            Some(which) => {
                let waited = if matches!(which, Procedure::Mdmain) { WAITED.get() } else { 0 };
                TIMES[which as usize].lock().push(nanos.saturating_sub(waited));
            }
        }
    }
}

impl Probes for Timed {
    type Guard = Option<Stopwatch>;
    fn procedure(which: Procedure) -> Option<Stopwatch> {
        use Procedure::{Interf, Intraf, Mdmain, Predic};
        // A clock around the others would cost as much as they do.
        let long = matches!(which, Mdmain | Predic | Intraf | Interf);
        long.then(|| Stopwatch::start(Some(which)))
    }
    fn barrier(_: u64) -> Option<Stopwatch> {
        Some(Stopwatch::start(None))
    }
    fn lock(_: u64) -> Option<Stopwatch> {
        None
    }
    fn held(_: u64) -> Option<Stopwatch> {
        None
    }
}

const fn procedure(name: &'static str) -> Event {
    Event::new("procedures", name)
}

const NAMES: [&str; 12] = [
    "water::main",
    "water::INITIA",
    "water::MDMAIN",
    "water::PREDIC",
    "water::CORREC",
    "water::BNDRY",
    "water::KINETI",
    "water::POTENG",
    "water::INTRAF",
    "water::INTERF",
    "water::CSHIFT",
    "water::UPDATE_FORCES",
];

static PROCEDURES: [Event; 12] = {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = NAMES;
    [
        procedure(a),
        procedure(b),
        procedure(c),
        procedure(d),
        procedure(e),
        procedure(f),
        procedure(g),
        procedure(h),
        procedure(i),
        procedure(j),
        procedure(k),
        procedure(l),
    ]
};

const fn synchronization(name: &'static str, role: Role) -> Event {
    Event::new("synchronization", name).fields(&[("which", FieldKind::Address)]).role(role)
}

static BARRIER: Event = synchronization("water::barrier", Role::Wait);
static LOCK: Event = synchronization("water::lock", Role::Wait);
static HELD: Event = synchronization("water::held", Role::Hold);

/// Procedures and barriers, or barriers and locks, or all of these.
pub(crate) struct Traced<const PROCEDURES_TOO: bool, const WAITS_TOO: bool>;

impl<const P: bool, const W: bool> Probes for Traced<P, W> {
    type Guard = Option<Span>;
    fn procedure(which: Procedure) -> Option<Span> {
        P.then(|| PROCEDURES[which as usize].span([0; 2]))
    }
    fn barrier(which: u64) -> Option<Span> {
        (P || W).then(|| BARRIER.span([which, 0]))
    }
    fn lock(which: u64) -> Option<Span> {
        W.then(|| LOCK.span([which, 0]))
    }
    fn held(which: u64) -> Option<Span> {
        W.then(|| HELD.span([which, 0]))
    }
}
