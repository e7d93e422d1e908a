//! Recursive traversal: from the entries of a function along every way that control can take within its ranges.
//!
//! Instructions are kept by the address where they begin, so that two may overlap: a jump past a `lock` prefix leads into
//! an instruction that was decoded before, and both are real. A run of instructions ends where it meets one that is there
//! already, which thereby begins a block.
//!
//! Indirect jumps wait until nothing else is left to follow, since it takes the ways to a jump to see what bounds its
//! table. New targets may open new ways to jumps that were understood; so in the end all are looked at once more, and a jump
//! that would be understood otherwise now is not understood. What it leads to according to either stays.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::exits::{Exit, exit_of};
use super::jump_table;
use super::walk::{Resolved, Walk};
use super::world::World;
use crate::functions::{Function, FunctionId};

/// Jumps that open new ways again and again are given up after so many turns.
const TURNS: usize = 64;

/// Follows the code of function `id`.
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
