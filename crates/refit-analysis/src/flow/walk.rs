//! Recursive traversal: from the entries of a function along every way that control can take within its ranges.
//!
//! Instructions are kept by the address where they begin, so that two may overlap: a jump past a `lock` prefix leads into
//! an instruction that was decoded before, and both are real. A run of instructions ends where it meets one that is there
//! already, which thereby begins a block.
//!
//! Indirect jumps wait until nothing else is left to follow, since it takes the ways to a jump to see what bounds its
//! table. New targets may open new ways to jumps that were understood; so in the end all are looked at once more, and a jump
//! that would be understood otherwise now is not understood. What it leads to according to either stays.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::exits::{Exit, exit_of};
use super::jump_table::{self, Resolved};
use super::world::World;
use crate::functions::{Function, FunctionId};
use crate::image::landing::{CallSite, call_sites};

/// What was found of one function.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Instructions in the order in which they were found.
    pub(crate) code: Vec<Instruction>,
    /// Whether each begins a block.
    pub(crate) leader: Vec<bool>,
    /// Indirect jumps by their instruction, and what they turned out to be.
    pub(crate) jumps: BTreeMap<u32, Resolved>,
    /// Calls with landing pads, by ascending address; no two overlap.
    pub(crate) sites: Vec<CallSite>,
    /// Whether it is not known where exceptions land.
    pub(crate) pads_unknown: bool,
    /// Where in `code` the instruction at each byte of the ranges is, plus one.
    slots: Slots,
}

/// Jumps that open new ways again and again are given up after so many turns.
const TURNS: usize = 64;

/// Follows the code of function `id`.
pub(crate) fn walk(world: &World, id: FunctionId) -> Walk {
    let function = world.function(id);
    let mut walk = Walk { slots: Slots::new(function), ..Walk::default() };
    walk.landing_pads(world, function);
    let mut walker = Walker { world, function, walk, work: Vec::new() };
    walker.enter_all();
    walker.run();
    for _ in 0..TURNS {
        if !walker.resolve_jumps() {
            break;
        }
        walker.run();
    }
    walker.check_jumps();
    walker.walk
}

struct Walker<'a, 'w> {
    world: &'a World<'w>,
    function: &'a Function,
    walk: Walk,
    work: Vec<u64>,
}

impl Walker<'_, '_> {
    fn enter_all(&mut self) {
        let pads: Vec<u64> = self.walk.sites.iter().filter_map(|s| s.pad).collect();
        let inner: Vec<u64> = self.world.inner_of(self.function).collect();
        // The order makes no difference to what is found; the entry is found first.
        for address in pads.into_iter().chain(inner).chain([self.function.entry]) {
            self.work.push(address);
        }
    }

    fn run(&mut self) {
        while let Some(address) = self.work.pop() {
            let Some(range) = self.function.ranges.iter().find(|r| r.contains(&address)) else {
                continue;
            };
            if let Some(there) = self.walk.index_of(address) {
                self.walk.leader[there as usize] = true;
                continue;
            }
            let length = usize::try_from(range.end - address).unwrap_or(0);
            let Some(bytes) = self.world.image.bytes(address, length) else { continue };
            self.follow(address, bytes);
        }
    }

    /// Decodes from `address` on until control leaves, or meets what is known.
    fn follow(&mut self, address: u64, bytes: &[u8]) {
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut begins = true;
        while decoder.can_decode() {
            let at = decoder.ip();
            if let Some(there) = self.walk.index_of(at) {
                self.walk.leader[there as usize] = true;
                return;
            }
            let instruction = decoder.decode();
            self.walk.push(instruction, begins);
            begins = false;
            if instruction.is_invalid() {
                return;
            }
            let next = instruction.next_ip();
            match exit_of(&instruction) {
                Exit::Next => {}
                Exit::Jump(target) => return self.work.push(target),
                Exit::Branch(target) => {
                    self.work.extend([next, target]);
                    return;
                }
                Exit::Call(_) | Exit::CallIndirect => return self.call(&instruction),
                Exit::JumpIndirect | Exit::Return | Exit::Stop => return,
            }
        }
    }

    fn call(&mut self, call: &Instruction) {
        if self.world.comes_back(call) {
            self.work.push(call.next_ip());
        }
        // `call 1f; 1: pop` and local subroutines: a block of this function.
        if let Exit::Call(target) = exit_of(call)
            && target != self.function.entry
            && self.function.contains(target)
        {
            self.work.push(target);
        }
    }

    /// Looks at indirect jumps that were not looked at; whether there is more to follow.
    fn resolve_jumps(&mut self) -> bool {
        let new: Vec<u32> = (0..self.walk.code.len() as u32)
            .filter(|i| exit_of(&self.walk.code[*i as usize]) == Exit::JumpIndirect)
            .filter(|i| !self.walk.jumps.contains_key(i))
            .collect();
        if new.is_empty() {
            return false;
        }
        for (jump, resolved) in jump_table::resolve(self.world, self.function, &self.walk, &new) {
            self.work.extend(resolved.targets().iter().copied());
            self.walk.jumps.insert(jump, resolved);
        }
        true
    }

    /// Looks at all tables once more, now that all ways to them are known.
    fn check_jumps(&mut self) {
        let tables: Vec<u32> = self
            .walk
            .jumps
            .iter()
            .filter(|(_, resolved)| matches!(resolved, Resolved::Table { .. }))
            .map(|(jump, _)| *jump)
            .collect();
        let again = jump_table::resolve(self.world, self.function, &self.walk, &tables);
        for (jump, resolved) in again {
            let before = &self.walk.jumps[&jump];
            if *before != resolved {
                let targets = before.targets().to_vec();
                self.walk.jumps.insert(jump, Resolved::Unknown { targets });
            }
        }
        // Given up, or found by the last turn.
        for (i, instruction) in self.walk.code.iter().enumerate() {
            if exit_of(instruction) == Exit::JumpIndirect {
                let unknown = Resolved::Unknown { targets: Vec::new() };
                self.walk.jumps.entry(i as u32).or_insert(unknown);
            }
        }
    }
}

impl Walk {
    /// Number of the instruction that begins at `address`.
    pub(crate) fn index_of(&self, address: u64) -> Option<u32> {
        self.slots.get(address)
    }

    fn push(&mut self, instruction: Instruction, leader: bool) {
        self.slots.set(instruction.ip(), self.code.len() as u32);
        self.code.push(instruction);
        self.leader.push(leader);
    }

    /// Reads the landing pads of all calls in the ranges of `function`.
    fn landing_pads(&mut self, world: &World, function: &Function) {
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

    /// The landing pad of a call at `address`: what the unwinder would find for its return address.
    pub(crate) fn pad_of(&self, call: &Instruction) -> Option<u64> {
        let inside = call.next_ip() - 1;
        let next = self.sites.partition_point(|s| s.addresses.start <= inside);
        self.sites[..next].last().filter(|s| s.addresses.contains(&inside))?.pad
    }

    /// All addresses at which control comes from outside.
    pub(crate) fn roots(&self, world: &World, function: &Function) -> BTreeSet<u64> {
        let pads = self.sites.iter().filter_map(|s| s.pad);
        world.inner_of(function).chain(pads).chain([function.entry]).collect()
    }
}

/// Numbers by address, for the bytes of some ranges.
#[derive(Debug, Default)]
struct Slots {
    /// Start and end of each range, and where its bytes begin in `numbers`.
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
