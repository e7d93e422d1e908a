//! Follows the instructions of a function backwards, to those that set a register.
//!
//! Every answer holds for all paths that lead to an instruction, or is `None`. The answer is `None`
//! if a path begins outside of the function, passes a call that may change the register, or is
//! longer than [`STEPS`].

use std::collections::BTreeSet;

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::exits::{Exit, exit_of};
use super::walk::Walk;
use super::world::World;
use crate::functions::Function;

/// Maximum number of instructions that are examined for one question.
const STEPS: usize = 4096;
/// Maximum number of copies and sums that are followed.
const DEPTH: u32 = 8;

/// The way in which control got from one instruction to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// By falling through, whatever the instruction does.
    Next,
    /// By a conditional jump that was not taken.
    NotTaken,
    /// By a conditional jump that was taken.
    Taken,
    /// By an unconditional jump.
    Jumped,
}

/// The instructions of a function and their predecessors.
pub(super) struct Trace<'a> {
    pub(super) walk: &'a Walk,
    /// Edges between instructions (to, from, how), sorted.
    before: Vec<(u32, u32, How)>,
    roots: BTreeSet<u32>,
}

impl<'a> Trace<'a> {
    pub(super) fn new(world: &World, function: &Function, walk: &'a Walk) -> Self {
        let mut before = Vec::with_capacity(walk.code.len() * 5 / 4);
        for (i, instruction) in walk.code.iter().enumerate() {
            let i = i as u32;
            let mut add = |address: u64, how| {
                before.extend(walk.index_of(address).map(|to| (to, i, how)));
            };
            let next = instruction.next_ip();
            match exit_of(instruction) {
                Exit::Next | Exit::Call(_) | Exit::CallIndirect => add(next, How::Next),
                Exit::Jump(target) => add(target, How::Jumped),
                Exit::Branch(target) => {
                    add(target, How::Taken);
                    add(next, How::NotTaken);
                }
                Exit::JumpIndirect => {
                    let targets = walk.jumps.get(&i).map_or(&[][..], |j| j.targets());
                    targets.iter().for_each(|t| add(*t, How::Jumped));
                }
                Exit::Return | Exit::Stop => {}
            }
        }
        before.sort_unstable();
        before.dedup();
        let roots = walk.roots(world, function);
        let roots = roots.iter().filter_map(|a| walk.index_of(*a)).collect();
        Self { walk, before, roots }
    }

    pub(super) fn code(&self, i: u32) -> &'a Instruction {
        &self.walk.code[i as usize]
    }

    /// Returns the predecessors of instruction `i`; `None` if control also arrives from outside, or
    /// from an unknown place.
    pub(super) fn before(&self, i: u32) -> Option<&[(u32, u32, How)]> {
        if self.roots.contains(&i) {
            return None;
        }
        let first = self.before.partition_point(|b| b.0 < i);
        let last = self.before.partition_point(|b| b.0 <= i);
        (first < last).then(|| &self.before[first..last])
    }

    /// Returns the instructions that gave `register` the value that it has before instruction `i`.
    pub(super) fn definitions(&self, register: Register, i: u32) -> Option<Vec<u32>> {
        let register = register.full_register();
        let mut info = InstructionInfoFactory::new();
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut work = vec![i];
        while let Some(at) = work.pop() {
            for &(_, from, _) in self.before(at)? {
                if !seen.insert(from) {
                    continue;
                }
                if seen.len() > STEPS {
                    return None;
                }
                let instruction = self.code(from);
                if is_call(instruction) && !survives_calls(register) {
                    return None;
                }
                if writes(&mut info, instruction, register) {
                    found.push(from);
                } else {
                    work.push(from);
                }
            }
        }
        found.sort_unstable();
        Some(found)
    }

    /// Returns the constant that `register` holds before instruction `i`.
    pub(super) fn constant(&self, register: Register, i: u32) -> Option<u64> {
        self.constant_within(register, i, DEPTH)
    }

    fn constant_within(&self, register: Register, i: u32, depth: u32) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let mut value = None;
        for definition in self.definitions(register, i)? {
            let this = self.constant_from(definition, depth)?;
            if value.is_some_and(|v| v != this) {
                return None;
            }
            value = Some(this);
        }
        value
    }

    fn constant_from(&self, i: u32, depth: u32) -> Option<u64> {
        let instruction = self.code(i);
        let first = instruction.op0_register();
        let size = first.size();
        let value = match instruction.mnemonic() {
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                let displacement = instruction.memory_displacement64();
                match instruction.memory_base() {
                    Register::RIP | Register::EIP | Register::None => displacement,
                    base => self.constant_within(base, i, depth)?.wrapping_add(displacement),
                }
            }
            Mnemonic::Mov if is_immediate(instruction, 1) => instruction.immediate(1),
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                self.constant_within(instruction.op1_register(), i, depth)?
            }
            Mnemonic::Add if is_immediate(instruction, 1) => {
                self.constant_within(first, i, depth)?.wrapping_add(instruction.immediate(1))
            }
            Mnemonic::Sub if is_immediate(instruction, 1) => {
                self.constant_within(first, i, depth)?.wrapping_sub(instruction.immediate(1))
            }
            _ => return None,
        };
        match size {
            8 => Some(value),
            4 => Some(value & u64::from(u32::MAX)),
            _ => None,
        }
    }
}

pub(super) fn is_call(instruction: &Instruction) -> bool {
    matches!(exit_of(instruction), Exit::Call(_) | Exit::CallIndirect)
}

/// Whether calls preserve the register, by the ABI.
pub(super) fn survives_calls(register: Register) -> bool {
    use Register as R;
    matches!(register, R::RBX | R::RBP | R::RSP | R::R12 | R::R13 | R::R14 | R::R15)
}

/// Whether an operand is an immediate.
pub fn is_immediate(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_count() > operand
        && matches!(
            instruction.op_kind(operand),
            OpKind::Immediate8
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        )
}

/// Whether `instruction` may change the full register `register`.
pub(super) fn writes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    let info = info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
    info.used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
    })
}
