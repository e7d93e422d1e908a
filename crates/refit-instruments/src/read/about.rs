//! The data of a trace other than the records, taken from its blocks.

use std::collections::{BTreeMap, HashMap};

use serde::de::DeserializeOwned;

use super::blocks::Block;
use super::index::Index;
use crate::block::{
    ClockPair, Cost, DEEPEST, Dump, End, Frame, Head, Kind, Place, Stack, Thread, Total,
};
use crate::definition::Definition;

/// The data of a trace other than the records.
#[derive(Debug, Default)]
pub(super) struct About {
    pub(super) head: Option<Head>,
    pub(super) pairs: Vec<ClockPair>,
    pub(super) definitions: HashMap<u32, Definition>,
    pub(super) threads: BTreeMap<u32, Thread>,
    pub(super) frames: HashMap<u32, Frame>,
    pub(super) stacks: HashMap<u32, Stack>,
    pub(super) dumps: Vec<Dump>,
    /// The costs by instrument, and by whether they were measured in vivo.
    pub(super) costs: BTreeMap<(String, bool), Cost>,
    /// The totals by manager, name and instrument.
    pub(super) totals: BTreeMap<[String; 3], Total>,
    pub(super) end: Option<End>,
    /// The number of blocks with a correct checksum and invalid content.
    pub(super) senseless: u64,
}

impl About {
    /// Stores the content of a block, or counts it if it is invalid.
    pub(super) fn take(&mut self, part: usize, block: &Block<'_>, index: &mut Index) {
        if self.learn(part, block, index).is_none() {
            self.senseless += 1;
        }
    }

    /// Stores the content of a block, which replaces earlier blocks with the same subject. Returns
    /// `None` if it is invalid.
    fn learn(&mut self, part: usize, block: &Block<'_>, index: &mut Index) -> Option<()> {
        match Kind::from_number(block.kind) {
            // A kind of a later version.
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
            Some(Kind::Frames) => {
                let all: Vec<Frame> = read(block)?;
                all.iter().all(|one| one.functions.len() <= DEEPEST).then_some(())?;
                self.frames.extend(all.into_iter().map(|one| (one.id, one)));
            }
            Some(Kind::Stacks) => {
                let all: Vec<Stack> = read(block)?;
                all.iter().all(|one| one.frames.len() <= DEEPEST).then_some(())?;
                self.stacks.extend(all.into_iter().map(|one| (one.id, one)));
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
