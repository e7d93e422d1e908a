//! Recursive traversal: follows control from the entries of a function along every path within its
//! ranges.
//!
//! Instructions are keyed by the address at which they begin, so two may overlap: a jump that skips
//! a `lock` prefix leads into an instruction that was decoded before, and both are real. A run of
//! instructions ends where it reaches a known instruction, which then begins a block.
//!
//! Indirect jumps are resolved when nothing else is left to follow, since bounding a table needs
//! all paths to its jump. The targets of a jump may add paths to jumps that were resolved before.
//! So all tables are resolved once more at the end, and a jump whose result then differs counts as
//! not understood. The targets of its first result stay in the graph.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::exits::{Exit, exit_of};
use super::jump_table;
use super::walk::{Resolved, Walk};
use super::world::World;
use crate::functions::{Function, FunctionId};

/// Maximum number of rounds of resolving indirect jumps. Jumps that are found in later rounds are
/// given up.
const TURNS: usize = 64;

/// Traverses the code of function `id`.
pub(crate) fn traverse(world: &World, id: FunctionId) -> Walk {
    let function = world.function(id);
    let mut walk = Walk::of(function);
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
        // The order does not affect the result; the entry is followed first.
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

    /// Decodes from `address` on until control leaves, or reaches a known instruction.
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
        // `call 1f; 1: pop` and local subroutines: the target is a block of this function.
        if let Exit::Call(target) = exit_of(call)
            && target != self.function.entry
            && self.function.contains(target)
        {
            self.work.push(target);
        }
    }

    /// Resolves the indirect jumps that are new; returns whether there is more to follow.
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

    /// Resolves all tables once more, now that all paths to them are known.
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
        // Jumps that were given up, or that the last round found.
        for (i, instruction) in self.walk.code.iter().enumerate() {
            if exit_of(instruction) == Exit::JumpIndirect {
                let unknown = Resolved::Unknown { targets: Vec::new() };
                self.walk.jumps.entry(i as u32).or_insert(unknown);
            }
        }
    }
}
