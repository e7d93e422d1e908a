//! Reading a trace, which is opened and checked as a whole and then streamed in the order of time.
//!
//! [`Trace::open`] reads all files once. It checks every block, and keeps the data that describes
//! the records (definitions, threads, clock, dumps, costs, totals) and the positions of the records
//! of each processor. [`Trace::records`] then reads the files again, merged over processors, in
//! memory that does not grow with the trace. No contents of a file cause a panic; truncated and
//! damaged files are reported by [`Trace::ending`] and [`Trace::losses`].

mod about;
mod blocks;
mod clock;
mod error;
mod index;
mod merge;
mod parts;

use std::path::Path;

pub use self::blocks::Ending;
pub use self::clock::Clock;
pub use self::error::Error;
pub use self::index::{Gap, Losses};
pub use self::merge::{Records, Seen};

use self::about::About;
use self::blocks::Part;
use self::index::Index;
use crate::block::{Cost, Dump, End, Frame, Head, Thread, Total};
use crate::definition::Definition;

/// A trace, in one file or several parts.
#[derive(Debug)]
pub struct Trace {
    parts: Vec<Part>,
    ending: Ending,
    head: Head,
    clock: Clock,
    index: Index,
    about: About,
}

impl Trace {
    /// Opens a trace and reads the data that describes it. The trace is given by the name of its
    /// first file, or by the names of some or all of its files in any order.
    ///
    /// # Errors
    ///
    /// Returns an [`Error`] if no file is named, or a file is not a trace, is empty, has a later
    /// version, ends within its head, or belongs to another trace.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Trace, Error> {
        let parts = parts::open(paths)?;
        let head = parts.first().map(|(head, _)| head.clone()).ok_or(Error::Nothing)?;
        let mut parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
        let (mut about, mut index, mut ending) =
            (About::default(), Index::default(), Ending::Whole);
        for number in 0..parts.len() {
            ending = parts[number].walk(|block| {
                about.take(number, &block, &mut index);
                true
            })?;
            // Parts after the last one belong to an older trace of this name.
            if about.end.is_some() {
                parts.truncate(number + 1);
                break;
            }
        }
        index.arrange();
        about.dumps.sort_by_key(|dump| dump.begin);
        let clock = Clock::new(head.clock, std::mem::take(&mut about.pairs));
        Ok(Trace { parts, ending, head, clock, index, about })
    }

    /// Returns the origin of the trace.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns its files, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// Returns how the last file ends.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Returns the final counts of the writer; `None` if it was killed or is still writing.
    pub fn end(&self) -> Option<&End> {
        self.about.end.as_ref()
    }

    /// Returns the number of blocks with a correct checksum and invalid content, which were
    /// skipped.
    pub fn senseless(&self) -> u64 {
        self.about.senseless
    }

    /// Returns the clock that converts ticks to nanoseconds.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the definition of an event.
    pub fn definition(&self, id: u32) -> Option<&Definition> {
        self.about.definitions.get(&id)
    }

    /// Returns all definitions, in no particular order.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.about.definitions.values()
    }

    /// Returns the information about a thread.
    pub fn thread(&self, id: u32) -> Option<&Thread> {
        self.about.threads.get(&id)
    }

    /// Returns all known threads, sorted by ID.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.about.threads.values()
    }

    /// Returns the number of threads that have records, whether or not their names are known.
    pub fn recorded_threads(&self) -> usize {
        self.index.threads()
    }

    /// Returns the frames of a stack, the innermost first; none if the stack is not known.
    pub fn stack(&self, id: u32) -> impl DoubleEndedIterator<Item = &Frame> {
        let frames = self.about.stacks.get(&id).map_or(&[][..], |stack| &stack.frames);
        frames.iter().filter_map(|frame| self.about.frames.get(frame))
    }

    /// Returns the dumps, sorted by their begin.
    pub fn dumps(&self) -> &[Dump] {
        &self.about.dumps
    }

    /// Returns the costs of measuring.
    pub fn costs(&self) -> impl Iterator<Item = &Cost> {
        self.about.costs.values()
    }

    /// Returns the last written values of counters and timers.
    pub fn totals(&self) -> impl Iterator<Item = &Total> {
        self.about.totals.values()
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.index.records()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the processors that have records.
    pub fn processors(&self) -> impl Iterator<Item = u32> {
        self.index.processors()
    }

    /// Returns the ticks of the first and the last record; `None` without records.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.index.span()
    }

    /// Returns the lost records over all processors: those that the writer last reported, and those
    /// that are missing here in addition.
    pub fn losses(&self) -> Losses {
        let found = self.index.losses();
        let Some(end) = self.end() else { return found };
        Losses {
            full: end.lost_full.max(found.full),
            torn: end.lost_torn.max(found.torn),
            old: end.lost_old.max(found.old),
            unwritten: end.lost_unwritten.max(found.unwritten),
            missing: end.written.saturating_sub(self.len()),
        }
    }

    /// Returns the positions at which records are lost, in the order of time.
    pub fn gaps(&self) -> &[Gap] {
        self.index.gaps()
    }

    /// Returns the records of all processors in the order of time.
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.parts, &self.index)
    }
}
