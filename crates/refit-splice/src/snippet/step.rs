//! What can be done at a site, and what each of it needs.

use super::registers::{Needs, Set};
use super::setting::{Lane, Setting};
use super::value::{Base, Test, Value};

/// How many keys an action keeps cells for; what comes under others is added up in the cells of all others.
pub const KEYS: u32 = 256;
/// The same for a histogram, which has many cells.
const HISTOGRAM_KEYS: u32 = 32;
/// Cells of one thread's timer, as many as a cache line has: the thread, time, entries, exits. Before the first there is as much for what
/// all others do: how many calls were not timed.
pub const TIMER: u32 = 8;
/// Cells of one thread's durations: the thread, calls that were nested too deep, entries, exits, the sum; 59 times of entries, then
/// the sizes of durations, from 0 on as in a histogram.
pub const DURATIONS: u32 = 128;
/// For how many there is room among [`DURATIONS`]: how deep calls of a thread may be nested in each other for their durations to be told.
pub(super) const DEPTH: u32 = 59;
/// A key is looked for in so many places, so there are as many more.
pub(super) const PROBES: u32 = 16;

/// Something that is done at a site, under conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// It is done if all tests of one of these hold, or if there are none.
    pub when: Vec<Vec<Test>>,
    /// The value by which cells are told apart, if they are: each has its own.
    pub key: Option<Value>,
    /// What is done.
    pub action: Action,
}

/// What is done at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Adds one to a cell.
    Count {
        /// Its number.
        cell: u32,
    },
    /// Adds one to the cell of a value's size: the first for 0, the next for 1, then 2–3, 4–7, … 65 cells.
    Histogram {
        /// The number of the first one.
        cell: u32,
        /// What is measured.
        value: Value,
    },
    /// Stores one in a cell: a single instruction, which needs no register and no flag, and may be done again.
    Flag {
        /// Its number.
        cell: u32,
    },
    /// Writes garbage into all that is said to be dead, after everything else: a program that then says the same has been understood.
    Poison {
        /// What unused stack gets, sign-extended; registers get what tells them.
        stack: i32,
    },
    /// Adds the time to a cell of the thread where control leaves, takes it away where it enters, and counts either. So the cell holds
    /// the time that was spent inside, once as many have left as have entered, at any depth. Who leaves more often than it has entered
    /// was inside already when the site was put in: that does not count. See [`TIMER`] for the cells.
    Time {
        /// The number of the first one: a multiple of [`TIMER`].
        cell: u32,
        /// How many threads have cells: a power of two. What others do is not timed, but counted in the first cell.
        threads: u32,
        /// Whether control enters here; else it leaves.
        enters: bool,
        /// Which time.
        clock: Clock,
    },
    /// Keeps the time in a cell of the thread where control enters, one for each depth of calls, and adds one to the cell of the size
    /// of the nanoseconds since then where it leaves. See [`DURATIONS`] for the cells.
    Durations {
        /// As in `Time`.
        cell: u32,
        /// As in `Time`.
        threads: u32,
        /// As in `Time`.
        enters: bool,
        /// As in `Time`.
        clock: Clock,
    },
    /// Writes a record into the instruments' buffers.
    Event {
        /// The event and its phase, as [`What::word`](refit_instruments::record::What::word) says it.
        what: u32,
        /// Its payload.
        payload: [Option<Value>; 2],
    },
}

/// What tells the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time-stamp counter: cycles, whoever runs.
    Wall,
    /// The kernel's clock of the thread: nanoseconds while it runs, which costs a system call.
    Thread,
}

impl From<Action> for Step {
    /// Always done, in cells that all share.
    fn from(action: Action) -> Self {
        Self { when: Vec::new(), key: None, action }
    }
}

impl Step {
    /// How many cells it takes.
    pub fn cells(&self) -> u32 {
        let each = self.action.cells();
        match self.key {
            _ if self.threads() > 0 => self.line() * (1 + self.threads() + PROBES),
            Some(_) => each + (self.keys() + PROBES) * (1 + each),
            None => each,
        }
    }

    /// How many keys have cells of their own.
    pub fn keys(&self) -> u32 {
        match self.action {
            Action::Histogram { .. } => HISTOGRAM_KEYS,
            _ => KEYS,
        }
    }

    /// How many threads are timed.
    pub(crate) fn threads(&self) -> u32 {
        match self.action {
            Action::Time { threads, .. } | Action::Durations { threads, .. } => threads,
            _ => 0,
        }
    }

    /// Cells of each thread that is timed.
    fn line(&self) -> u32 {
        if matches!(self.action, Action::Durations { .. }) { DURATIONS } else { TIMER }
    }

    /// Entries of the table of keys, each a key and then its cells: the numbers of its first cell and of the one behind the last.
    /// The table stands behind the cells of all other keys.
    pub fn table(&self, first: u32) -> std::ops::Range<u32> {
        first + self.action.cells()..first + self.cells()
    }

    /// More than its code takes.
    pub(crate) fn most_bytes(&self) -> u64 {
        let own = match self.action {
            Action::Event { .. } => 320,
            Action::Durations { .. } => 256,
            _ => 128,
        };
        let key = if self.key.is_some() { 192 } else { 0 };
        own + key + 224 * self.values().count() as u64
    }

    /// The values that it looks at.
    pub(super) fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let own: [Option<Value>; 2] = match self.action {
            Action::Histogram { value, .. } => [Some(value), None],
            Action::Event { payload, .. } => payload,
            Action::Count { .. }
            | Action::Flag { .. }
            | Action::Poison { .. }
            | Action::Time { .. }
            | Action::Durations { .. } => [None, None],
        };
        let tested = self.when.iter().flatten().map(|test| test.value);
        tested.chain(self.key).chain(own.into_iter().flatten())
    }

    /// Whether it changes flags: all does but storing one.
    pub(super) fn changes_flags(&self) -> bool {
        !(matches!(self.action, Action::Flag { .. }) && self.when.is_empty())
    }

    /// What it needs for itself.
    pub(super) fn needs(&self, setting: Setting) -> Needs {
        let mut needs = self.action.needs(setting.cells.lane);
        if self.threads() > 0 && self.key.is_none() {
            needs.take(Base::Context.needs(setting.thread));
        }
        for value in self.values() {
            needs.reads |= value.reads();
            needs.take(value.base.needs(setting.thread));
        }
        if self.when.iter().flatten().any(|test| !test.is_small()) {
            needs.scratch = needs.scratch.max(2);
        }
        if !self.when.is_empty() {
            needs.scratch = needs.scratch.max(1);
        }
        if self.key.is_some() && self.threads() == 0 {
            // Its cells, itself, places to look at, and the value of the action.
            needs.scratch = needs.scratch.max(5);
            needs.fixed |= Set::of(&[0]);
        }
        needs
    }
}

impl Action {
    /// Garbage everywhere.
    pub const POISON: Self = Self::Poison { stack: 0x0bad_beef };

    /// How many cells it counts into, for each key; timers have their own.
    pub fn cells(self) -> u32 {
        match self {
            Self::Count { .. } | Self::Flag { .. } => 1,
            Self::Histogram { .. } => 65,
            Self::Poison { .. }
            | Self::Event { .. }
            | Self::Time { .. }
            | Self::Durations { .. } => 0,
        }
    }

    /// The number of its first cell.
    pub(super) fn first(self) -> u32 {
        match self {
            Self::Count { cell }
            | Self::Flag { cell }
            | Self::Histogram { cell, .. }
            | Self::Time { cell, .. }
            | Self::Durations { cell, .. } => cell,
            Self::Poison { .. } | Self::Event { .. } => 0,
        }
    }

    fn needs(self, lane: Lane) -> Needs {
        let needs = |scratch, fixed| Needs { scratch, fixed, reads: Set::NONE, stack: false };
        match self {
            Self::Poison { .. } | Self::Flag { .. } => needs(0, Set::NONE),
            Self::Count { .. } if lane == Lane::One => needs(0, Set::NONE),
            Self::Count { .. } => needs(1, Set::NONE),
            Self::Histogram { .. } => needs(2, Set::NONE),
            // `rdtsc` tells the time in these.
            Self::Time { clock: Clock::Wall, .. } | Self::Durations { clock: Clock::Wall, .. } => {
                needs(3, Set::of(&[0, 2]))
            }
            Self::Time { clock: Clock::Thread, .. }
            | Self::Durations { clock: Clock::Thread, .. } => {
                // The call and its arguments, and where the time is put together.
                let fixed = Set::SYSCALL | Set::of(&[2, 6, 7]);
                Needs { stack: true, ..needs(3, fixed) }
            }
            Self::Event { .. } => needs(6, Set::of(&[0, 2])),
        }
    }
}

impl Base {
    /// What finding it takes, beside the register that it goes to.
    fn needs(self, thread: Option<i32>) -> Needs {
        let call = |fixed: Set, stack| Needs { scratch: 1, fixed, reads: Set::NONE, stack };
        match self {
            Self::Register(_) => call(Set::NONE, false),
            Self::Thread | Self::Context if thread.is_some() => call(Set::NONE, false),
            Self::Goroutine => call(Set::NONE, false),
            Self::Thread | Self::Process | Self::Context => call(Set::SYSCALL, false),
            Self::Memory { .. } => call(Set::SYSCALL | Set::of(&[2, 6, 7, 8, 9, 10]), true),
        }
    }
}
