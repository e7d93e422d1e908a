//! The actions at a site, and what each of them needs.

use std::sync::Arc;

use super::formula::{Formula, Kept};
use super::item::Item;
use super::key::Key;
use super::value::{Base, Test, Value};

/// Number of keys that have cells of their own; values under other keys are added up in shared
/// cells.
pub const KEYS: u32 = 256;
/// The same number for a histogram, which has many cells.
const HISTOGRAM_KEYS: u32 = 32;
/// Cells of one thread's timer, as many as a cache line has: the thread, time, entries, exits. A
/// line precedes that of the first thread, and counts the calls of all other threads, which are not
/// timed.
pub const TIMER: u32 = 8;
/// Cells of one thread's durations: the thread, calls that were nested too deep, entries, exits,
/// the sum; 59 times of entries, then the sizes of durations, from 0 on as in a histogram.
pub const DURATIONS: u32 = 128;
/// Deepest nesting of a thread's calls for which there is room among [`DURATIONS`].
pub(super) const DEPTH: u32 = 59;
/// Number of entries that are probed for a key, and number of entries that a table has in addition
/// so that every probe is within it.
pub(super) const PROBES: u32 = 16;

/// An action at a site, with its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Conditions: the action runs if all tests of one of these hold, or if there are none.
    pub when: Vec<Vec<Test>>,
    /// The value or the items by which cells are distinguished; each key has its own cells.
    pub key: Option<Key>,
    /// The action.
    pub action: Action,
}

/// An action at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Adds one to a cell.
    Count {
        /// Number of the cell.
        cell: u32,
    },
    /// Adds one to the cell of a value's size: the first for 0, the next for 1, then 2–3, 4–7, … 65
    /// cells.
    Histogram {
        /// Number of the first cell.
        cell: u32,
        /// The value.
        value: Value,
    },
    /// Adds one to the cell whose number, counted from the first, is the value; to none if there is
    /// no such cell.
    Buckets {
        /// Number of the first cell.
        cell: u32,
        /// The value.
        value: Value,
        /// Number of cells.
        count: u32,
    },
    /// Adds one to a cell, and folds a value into the next one.
    Fold {
        /// Number of the first cell.
        cell: u32,
        /// The value.
        value: Value,
        /// The result that is kept.
        fold: Fold,
    },
    /// Stores one in a cell: a single instruction, which needs no register and no flag, and may be
    /// repeated.
    Flag {
        /// Number of the cell.
        cell: u32,
    },
    /// Writes garbage into everything that is dead, after all other actions: if the program still
    /// behaves as before, the analysis is confirmed.
    Poison {
        /// Value of unused stack, sign-extended; registers get garbage that contains their number.
        stack: i32,
    },
    /// At the entry of `_Unwind_Find_FDE`, returns the frame description if the address asked for
    /// is in a patch area; otherwise the function runs. After all other actions, since it returns.
    FindFrame,
    /// The same at the entry of `_dl_find_object`, which finds the loaded object of an address.
    FindObject,
    /// Adds the time to a cell of the thread where control leaves, subtracts it where control
    /// enters, and counts both. So, at any depth, the cell holds the time spent inside once exits
    /// equal entries. A thread that leaves more often than it has entered was inside before the
    /// site was installed; such an exit does not count. [`TIMER`] describes the cells.
    Time {
        /// Number of the first cell: a multiple of [`TIMER`].
        cell: u32,
        /// Number of threads that have cells: a power of two. Calls of other threads are not timed,
        /// but counted in the first cell.
        threads: u32,
        /// Whether control enters here; otherwise it leaves.
        enters: bool,
        /// The clock.
        clock: Clock,
    },
    /// Where control enters, stores the time in a cell of the thread, one for each depth of calls.
    /// Where control leaves, adds one to the cell for the size of the duration in nanoseconds.
    /// [`DURATIONS`] describes the cells.
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
        /// The event and its phase, encoded by
        /// [`What::word`](refit_instruments::record::What::word).
        what: u32,
        /// Its payload.
        payload: [Option<Value>; 2],
    },
    /// Writes a message into the instruments' buffers: a record of as many slots as it needs
    /// (`refit_instruments::messages::Messages`).
    Print {
        /// A number that tells the reader what the message is.
        what: u32,
        /// The items.
        items: Arc<[Item]>,
    },
    /// Computes a local of the site ([`Base::Local`]), which following actions read.
    Assign {
        /// Number of the local, less than [`LOCALS`](crate::LOCALS).
        local: u8,
        /// The formula.
        formula: Arc<Formula>,
        /// Whether the local has the value 0 if the condition does not hold; otherwise it keeps the
        /// value of an earlier action.
        first: bool,
    },
    /// Stores a value in a map that all processors share.
    Keep {
        /// Where.
        kept: Kept,
        /// The value; 0 is no value, and deletes what is there.
        value: Value,
        /// Whether the value is added to what is there.
        adds: bool,
    },
}

/// A result that is kept of many values, which are signed, of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Their sum, which wraps around.
    Sum,
    /// The least of them.
    Least,
    /// The greatest of them.
    Greatest,
}

impl Fold {
    /// Returns the value that a cell holds, of which at least one was folded.
    pub fn value(self, cell: u64) -> i64 {
        match self {
            Self::Sum => cell.cast_signed(),
            Self::Least => (!cell).cast_signed() ^ i64::MIN,
            Self::Greatest => cell.cast_signed() ^ i64::MIN,
        }
    }

    /// Returns the cell for the values of two cells. A cell into which nothing was folded is 0.
    fn join(self, one: u64, other: u64) -> u64 {
        match self {
            Self::Sum => one.wrapping_add(other),
            // A cell holds the value as a number without sign whose order is that of the values,
            // or, for the least, the reverse.
            Self::Least | Self::Greatest => one.max(other),
        }
    }
}

/// A clock that snippets read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time-stamp counter: cycles, whether the thread runs or waits.
    Wall,
    /// The kernel's CPU clock of the thread: nanoseconds while it runs. Reading it costs a system
    /// call.
    Thread,
}

impl From<Action> for Step {
    /// Returns a step that always runs, with cells that all keys share.
    fn from(action: Action) -> Self {
        Self { when: Vec::new(), key: None, action }
    }
}

impl Step {
    /// Returns the number of cells that it takes.
    pub fn cells(&self) -> u32 {
        let each = self.action.cells();
        match &self.key {
            _ if self.threads() > 0 => self.line() * (1 + self.threads() + PROBES),
            Some(_) => each + (self.keys() + PROBES) * (1 + each),
            None => each,
        }
    }

    /// Returns the number of keys that have cells of their own.
    pub fn keys(&self) -> u32 {
        match self.action {
            Action::Histogram { .. } | Action::Buckets { .. } => HISTOGRAM_KEYS,
            _ => KEYS,
        }
    }

    /// Returns the number of threads that are timed.
    pub(crate) fn threads(&self) -> u32 {
        match self.action {
            Action::Time { threads, .. } | Action::Durations { threads, .. } => threads,
            _ => 0,
        }
    }

    /// Returns the number of cells of each thread that is timed.
    fn line(&self) -> u32 {
        if matches!(self.action, Action::Durations { .. }) { DURATIONS } else { TIMER }
    }

    /// Returns the range of cells of the table of keys, whose entries are a key followed by its
    /// cells. The table follows the cells that keys without an entry share.
    pub fn table(&self, first: u32) -> std::ops::Range<u32> {
        first + self.action.cells()..first + self.cells()
    }

    /// Returns an upper bound of the bytes of its code.
    pub(crate) fn most_bytes(&self) -> u64 {
        let own = match self.action {
            Action::Keep { .. } => 512,
            Action::Event { .. } | Action::Print { .. } => 320,
            Action::Durations { .. } | Action::FindFrame | Action::FindObject => 256,
            Action::Flag { .. } => 16,
            Action::Poison { .. } => 640,
            // With its descriptor, and the code to which it is aborted.
            Action::Count { .. } => 192,
            _ => 128,
        };
        let keys = self.keys_sought().into_iter().map(|key| match key {
            Key::Value(_) => 192,
            Key::Tuple(_) => 512,
        });
        let computed = self.formula().map_or(0, Formula::most_bytes);
        let items = self.items().map(Item::most_bytes).sum::<u64>();
        own + keys.sum::<u64>()
            + computed
            + items
            + self.values().map(Value::most_bytes).sum::<u64>()
    }

    /// Whether it counts in a cell that no key selects.
    pub(crate) fn is_plain_count(&self) -> bool {
        self.key.is_none() && matches!(self.action, Action::Count { .. })
    }

    /// Whether it only sets a flag, on no condition: a single instruction.
    pub(crate) fn is_flag(&self) -> bool {
        self.when.is_empty() && matches!(self.action, Action::Flag { .. })
    }

    /// Returns an upper bound of the bytes that describe its code to unwinders. They describe each
    /// move of the stack pointer, with the places of all registers that are on the stack.
    pub(crate) fn most_described(&self) -> usize {
        const MOVE: usize = 128;
        let values = self.values().map(|value| match value.base {
            Base::Stack(_) => 20,
            Base::Memory { .. } | Base::Processor => 2,
            _ => 0,
        });
        let items = self.items().count();
        let gathered = if items > 0 { 4 + 2 * items } else { 0 };
        let computed = self.formula().map_or(0, |formula| 6 + 2 * formula.compared().len());
        // Each exchange of an entry moves a value to another register and back.
        let kept = 2 * self.kept().len();
        // Poison pushes 16 words.
        let poison = if matches!(self.action, Action::Poison { .. }) { 256 } else { 0 };
        64 + poison + MOVE * (values.sum::<usize>() + gathered + computed + kept)
    }

    /// Whether it walks the stack.
    pub(crate) fn walks_stack(&self) -> bool {
        self.values().any(|value| matches!(value.base, Base::Stack(_)))
    }

    /// Returns the number of words of its longest key that has several items, if there is one.
    pub fn tuple_words(&self) -> Option<usize> {
        let words = |key: &Key| key.items().iter().map(Item::words).sum();
        self.keys_sought().into_iter().map(words).max().filter(|words| *words > 0)
    }

    /// Returns the number of locals that a snippet with it has at least.
    pub(super) fn locals(&self) -> u8 {
        if let Action::Assign { local, .. } = self.action { local + 1 } else { 0 }
    }

    /// Returns the formula that it computes.
    pub(super) fn formula(&self) -> Option<&Formula> {
        if let Action::Assign { formula, .. } = &self.action { Some(formula) } else { None }
    }

    /// Returns where it keeps values, and looks them up.
    fn kept(&self) -> Vec<&Kept> {
        match &self.action {
            Action::Keep { kept, .. } => vec![kept],
            Action::Assign { formula, .. } => formula.kept(),
            _ => Vec::new(),
        }
    }

    /// Returns the number of maps of kept values that a program with it has at least.
    pub(crate) fn maps(&self) -> u16 {
        self.kept().into_iter().map(|kept| kept.map + 1).max().unwrap_or(0)
    }

    /// Returns its keys: that of its cells, and those of kept values.
    fn keys_sought(&self) -> Vec<&Key> {
        self.key
            .iter()
            .chain(self.kept().into_iter().filter_map(|kept| kept.key.as_ref()))
            .collect()
    }

    /// Returns the items that it gathers.
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> + '_ {
        let keys = self.keys_sought().into_iter().flat_map(Key::items);
        let compared = self.formula().into_iter().flat_map(Formula::compared);
        let printed: &[Item] = match &self.action {
            Action::Print { items, .. } => items,
            _ => &[],
        };
        keys.chain(printed).chain(compared)
    }

    /// Returns the values that it reads.
    pub(super) fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let own: [Option<Value>; 2] = match &self.action {
            Action::Histogram { value, .. }
            | Action::Buckets { value, .. }
            | Action::Fold { value, .. } => [Some(*value), None],
            Action::Event { payload, .. } => *payload,
            Action::Keep { value, .. } => [Some(*value), None],
            Action::Count { .. }
            | Action::Flag { .. }
            | Action::Poison { .. }
            | Action::FindFrame
            | Action::FindObject
            | Action::Time { .. }
            | Action::Durations { .. }
            | Action::Print { .. }
            | Action::Assign { .. } => [None, None],
        };
        let keys = self.keys_sought().into_iter().filter_map(|key| match key {
            Key::Value(key) => Some(*key),
            Key::Tuple(_) => None,
        });
        let computed = self.formula().map_or_else(Vec::new, Formula::values);
        let tested = self.when.iter().flatten().map(|test| test.value);
        let gathered = self.items().filter_map(Item::value);
        tested.chain(keys).chain(own.into_iter().flatten()).chain(computed).chain(gathered)
    }

    /// Whether it changes flags that have to be restored: every step does, except an unconditional
    /// store of a flag, and what runs once everything is restored.
    pub(super) fn changes_flags(&self) -> bool {
        let none = matches!(self.action, Action::Flag { .. }) || self.action.finds();
        !(none && self.when.is_empty())
    }
}

impl Action {
    /// Poison with the usual garbage.
    pub const POISON: Self = Self::Poison { stack: 0x0bad_beef };

    /// Whether unwinders learn of generated code by it.
    pub(crate) fn finds(&self) -> bool {
        matches!(self, Self::FindFrame | Self::FindObject)
    }

    /// Returns the number of cells for each key; timers have their own.
    pub fn cells(&self) -> u32 {
        match self {
            Self::Count { .. } | Self::Flag { .. } => 1,
            Self::Fold { .. } => 2,
            Self::Histogram { .. } => 65,
            Self::Buckets { count, .. } => *count,
            Self::Poison { .. }
            | Self::FindFrame
            | Self::FindObject
            | Self::Event { .. }
            | Self::Print { .. }
            | Self::Assign { .. }
            | Self::Keep { .. }
            | Self::Time { .. }
            | Self::Durations { .. } => 0,
        }
    }

    /// Adds the cells of another processor, or of another patch area.
    pub(crate) fn add(&self, to: &mut [u64], cells: &[u64]) {
        for (number, (sum, part)) in to.iter_mut().zip(cells).enumerate() {
            *sum = match self {
                Self::Fold { fold, .. } if number == 1 => fold.join(*sum, *part),
                _ => sum.wrapping_add(*part),
            };
        }
    }

    /// Returns the number of its first cell.
    pub(super) fn first(&self) -> u32 {
        match *self {
            Self::Count { cell }
            | Self::Flag { cell }
            | Self::Histogram { cell, .. }
            | Self::Buckets { cell, .. }
            | Self::Fold { cell, .. }
            | Self::Time { cell, .. }
            | Self::Durations { cell, .. } => cell,
            Self::Poison { .. }
            | Self::FindFrame
            | Self::FindObject
            | Self::Event { .. }
            | Self::Print { .. }
            | Self::Assign { .. }
            | Self::Keep { .. } => 0,
        }
    }
}
