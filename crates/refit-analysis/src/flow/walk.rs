//! The result of traversing one function: its instructions, indirect jumps, and calls with landing
//! pads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::Instruction;

use super::graph::JumpTable;
use super::world::World;
use crate::functions::Function;
use crate::image::landing::{CallSite, call_sites};

/// The result of traversing one function.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Instructions in the order in which they were found.
    pub(crate) code: Vec<Instruction>,
    /// Whether each instruction begins a block.
    pub(crate) leader: Vec<bool>,
    /// Indirect jumps by the index of their instruction, as they were resolved.
    pub(crate) jumps: BTreeMap<u32, Resolved>,
    /// Calls with landing pads, by ascending address; disjoint.
    pub(crate) sites: Vec<CallSite>,
    /// Whether the language-specific data was not understood, so that exceptions may resume
    /// anywhere.
    pub(crate) pads_unknown: bool,
    /// Index in `code` of the instruction at each byte of the ranges, plus one.
    slots: Slots,
}

/// The resolution of an indirect jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// A jump through a table.
    Table {
        /// Its targets, ascending.
        targets: Vec<u64>,
        /// The table, if there is one only.
        table: Option<JumpTable>,
    },
    /// A tail call of a function that follows the ABI.
    TailCall,
    /// Not understood; `targets` holds the targets that were found nevertheless.
    Unknown {
        /// The targets that were found, ascending.
        targets: Vec<u64>,
    },
}

impl Resolved {
    /// Returns the known targets.
    pub(crate) fn targets(&self) -> &[u64] {
        match self {
            Self::Table { targets, .. } | Self::Unknown { targets } => targets,
            Self::TailCall => &[],
        }
    }
}

impl Walk {
    /// Returns an empty walk of `function`.
    pub(super) fn of(function: &Function) -> Self {
        Self { slots: Slots::new(function), ..Self::default() }
    }

    /// Returns the index of the instruction that begins at `address`.
    pub(crate) fn index_of(&self, address: u64) -> Option<u32> {
        self.slots.get(address)
    }

    /// Adds an instruction; `leader` says whether it begins a block.
    pub(super) fn push(&mut self, instruction: Instruction, leader: bool) {
        self.slots.set(instruction.ip(), self.code.len() as u32);
        self.code.push(instruction);
        self.leader.push(leader);
    }

    /// Reads the landing pads of all calls in the ranges of `function`.
    pub(super) fn landing_pads(&mut self, world: &World, function: &Function) {
        for range in &function.ranges {
            let mut at = range.start;
            while let Some(frame) = world.image.frame_at(at) {
                if let Some(address) = frame.language_data {
                    let Range { start, end } = frame.addresses;
                    let length = end.min(range.end) - start.max(range.start);
                    match call_sites(world.image, address, start, length) {
                        Some(sites) => self.sites.extend(sites),
                        None => self.pads_unknown = true,
                    }
                }
                at = frame.addresses.end;
                if at >= range.end {
                    break;
                }
            }
        }
        self.sites.retain(|s| s.addresses.start < s.addresses.end);
        self.sites.sort_by_key(|s| s.addresses.start);
    }

    /// Returns the landing pad of a call, as the unwinder finds it for the call's return address.
    pub(crate) fn pad_of(&self, call: &Instruction) -> Option<u64> {
        let inside = call.next_ip() - 1;
        let next = self.sites.partition_point(|s| s.addresses.start <= inside);
        self.sites[..next].last().filter(|s| s.addresses.contains(&inside))?.pad
    }

    /// Returns all addresses at which control enters from outside.
    pub(crate) fn roots(&self, world: &World, function: &Function) -> BTreeSet<u64> {
        let pads = self.sites.iter().filter_map(|s| s.pad);
        world.inner_of(function).chain(pads).chain([function.entry]).collect()
    }
}

/// Numbers by address, for the bytes of some ranges.
#[derive(Debug, Default)]
struct Slots {
    /// Start and end of each range, and the index of its first byte in `numbers`.
    ranges: Vec<(u64, u64, usize)>,
    numbers: Vec<u32>,
}

impl Slots {
    fn new(function: &Function) -> Self {
        let mut ranges = Vec::with_capacity(function.ranges.len());
        let mut length = 0;
        for range in &function.ranges {
            ranges.push((range.start, range.end, length));
            length += usize::try_from(range.end - range.start).unwrap_or(0);
        }
        Self { ranges, numbers: vec![0; length] }
    }

    fn place(&self, address: u64) -> Option<usize> {
        let range = self.ranges.iter().find(|r| r.0 <= address && address < r.1)?;
        Some(range.2 + (address - range.0) as usize)
    }

    fn get(&self, address: u64) -> Option<u32> {
        self.numbers[self.place(address)?].checked_sub(1)
    }

    fn set(&mut self, address: u64, number: u32) {
        if let Some(place) = self.place(address) {
            self.numbers[place] = number + 1;
        }
    }
}
