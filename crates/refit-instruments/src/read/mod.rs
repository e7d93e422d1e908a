//! Reading a trace: opened and checked as a whole, then streamed in the order of time.
//!
//! [`Trace::open`] goes through all files once. It checks every block, keeps what describes the records (definitions,
//! threads, clock, dumps, costs, totals) and where the records of each processor are. [`Trace::records`] then goes
//! through them again, merged over processors, in memory that does not grow with the trace. No bytes of a file,
//! whoever wrote them, make it panic; what is cut off or damaged is told by [`Trace::ending`] and
//! [`Trace::losses`].

mod blocks;
mod clock;
mod error;
mod index;
mod merge;
mod parts;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::de::DeserializeOwned;

pub use self::blocks::Ending;
pub use self::clock::Clock;
pub use self::error::Error;
pub use self::index::{Gap, Losses};
pub use self::merge::{Records, Seen};

use self::blocks::{Block, Part};
use self::index::Index;
use crate::block::{ClockPair, Cost, Dump, End, Head, Kind, Place, Thread, Total};
use crate::definition::Definition;

/// A trace: one file, or the parts of one.
#[derive(Debug)]
pub struct Trace {
    parts: Vec<Part>,
    ending: Ending,
    head: Head,
    clock: Clock,
    index: Index,
    about: About,
}

/// What stands beside the records.
#[derive(Debug, Default)]
struct About {
    head: Option<Head>,
    pairs: Vec<ClockPair>,
    definitions: HashMap<u32, Definition>,
    threads: BTreeMap<u32, Thread>,
    dumps: Vec<Dump>,
    /// By instrument, and whether measured in vivo.
    costs: BTreeMap<(String, bool), Cost>,
    /// By manager, name and instrument.
    totals: BTreeMap<[String; 3], Total>,
    end: Option<End>,
    /// Blocks whose checksum is right and whose content makes no sense.
    senseless: u64,
}

impl Trace {
    /// Opens a trace and reads what describes it: by the name of its first file, or by those of some or all of its
    /// files in any order.
    ///
    /// # Errors
    /// [`Error`]: no file, no trace, empty, of a later version, cut off within its head, not of one trace.
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
            // Parts after the last are of an older trace of this name.
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

    /// How it came to be.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Its files, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// How the last file ends.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// What its writer said at the end; `None`: it was killed, or is still writing.
    pub fn end(&self) -> Option<&End> {
        self.about.end.as_ref()
    }

    /// Blocks that were as they were written but made no sense, and were skipped.
    pub fn senseless(&self) -> u64 {
        self.about.senseless
    }

    /// From ticks to nanoseconds.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The definition of an event.
    pub fn definition(&self, id: u32) -> Option<&Definition> {
        self.about.definitions.get(&id)
    }

    /// All definitions, in no order.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.about.definitions.values()
    }

    /// What is known of a thread.
    pub fn thread(&self, id: u32) -> Option<&Thread> {
        self.about.threads.get(&id)
    }

    /// All threads that are known, by id.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.about.threads.values()
    }

    /// How many threads have records, known by name or not.
    pub fn recorded_threads(&self) -> usize {
        self.index.threads()
    }

    /// Dumps, by their begin.
    pub fn dumps(&self) -> &[Dump] {
        &self.about.dumps
    }

    /// What measuring costs.
    pub fn costs(&self) -> impl Iterator<Item = &Cost> {
        self.about.costs.values()
    }

    /// What counters and timers held, the last that was written of each.
    pub fn totals(&self) -> impl Iterator<Item = &Total> {
        self.about.totals.values()
    }

    /// How many records are there.
    pub fn len(&self) -> u64 {
        self.index.records()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Processors that have records.
    pub fn processors(&self) -> impl Iterator<Item = u32> {
        self.index.processors()
    }

    /// Ticks of the first and the last record; `None`: there are none.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.index.span()
    }

    /// What was lost, over all processors: as the writer said it last, and what is missing here beyond that.
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

    /// Places where records are lost, by time.
    pub fn gaps(&self) -> &[Gap] {
        self.index.gaps()
    }

    /// The records of all processors in the order of time.
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.parts, &self.index)
    }
}

impl About {
    /// Keeps what a block says, or counts it if that makes no sense.
    fn take(&mut self, part: usize, block: &Block<'_>, index: &mut Index) {
        if self.learn(part, block, index).is_none() {
            self.senseless += 1;
        }
    }

    /// Where blocks say the same again, the last of them counts.
    fn learn(&mut self, part: usize, block: &Block<'_>, index: &mut Index) -> Option<()> {
        match Kind::from_number(block.kind) {
            // Of a later version.
            None => {}
            Some(Kind::Records) => index.add(part, block)?,
            Some(Kind::Head) => self.head = Some(read(block)?),
            Some(Kind::Clock) => self.pairs.push(read(block)?),
            Some(Kind::Dump) => self.dumps.push(read(block)?),
            Some(Kind::End) => self.end = Some(read(block)?),
            Some(Kind::Definitions) => {
                let all: Vec<Definition> = read(block)?;
                self.definitions.extend(all.into_iter().map(|one| (one.id, one)));
            }
            Some(Kind::Threads) => {
                let all: Vec<Thread> = read(block)?;
                self.threads.extend(all.into_iter().map(|one| (one.id, one)));
            }
            Some(Kind::Costs) => {
                let all: Vec<Cost> = read(block)?;
                let key = |cost: &Cost| (cost.instrument.clone(), cost.place == Place::InVivo);
                self.costs.extend(all.into_iter().map(|one| (key(&one), one)));
            }
            Some(Kind::Totals) => {
                let all: Vec<Total> = read(block)?;
                let key =
                    |one: &Total| [&one.manager, &one.name, &one.instrument].map(String::clone);
                self.totals.extend(all.into_iter().map(|one| (key(&one), one)));
            }
        }
        Some(())
    }
}

fn read<T: DeserializeOwned>(block: &Block<'_>) -> Option<T> {
    serde_json::from_slice(block.content).ok()
}
