//! The def-use web of a constant that a register has: all instructions that put it there, and all
//! that use it.
//!
//! A web begins with one `mov REGISTER, NUMBER`. It contains the copies in other registers, the
//! counters that begin with the number and change by constants, and further instructions that put
//! the same number where one of its uses reads it. The number *escapes* if it is stored, returned,
//! or computed with: then its uses are not known.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Mnemonic, OpKind};
use refit_analysis::registers::ARGUMENTS;

use crate::code::{Code, Leaves, addressing, is_call, number};
use crate::compare::stepped;
use crate::immediate::Immediate;
use crate::knob::Escape;
use crate::trace::{How, definitions, uses};

/// A web. Instructions are indices in the function's code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Web {
    /// Instructions that put the number into a register.
    pub definitions: BTreeSet<usize>,
    /// Instructions that compare it, or a counter that began with it, and the register.
    pub compared: BTreeSet<(usize, u8)>,
    /// Instructions that change such a counter by a constant.
    pub steps: BTreeSet<(usize, u8)>,
    /// Calls that have it as an argument, and the argument's number, from 1 on.
    pub arguments: BTreeSet<(usize, u8)>,
    /// Registers of results that have it, or the counter, when the function returns: the
    /// instructions that have put it there, and the register.
    pub returned: BTreeSet<(usize, u8)>,
    /// The ways in which it escapes, but for a counter that is returned.
    pub escapes: BTreeSet<Escape>,
    /// Whether other numbers come to its uses, too.
    pub merged: bool,
}

/// The role of an instruction that reads a register with the number.
enum Role {
    Compares,
    Steps,
    Copies(u8),
    Passes(u8),
    Escapes(Escape),
}

impl Web {
    /// Returns the web of the instruction at this index, which puts a number into a register.
    pub fn of(code: &Code<'_>, definition: usize) -> Option<Self> {
        let (register, value) = constant(code, definition)?;
        let (mut web, mut read) = (Self::default(), BTreeSet::new());
        // Instructions after which a register has the number, a copy, or a counter.
        let mut carriers: BTreeMap<(usize, u8), bool> =
            BTreeMap::from([((definition, register), false)]);
        web.definitions.insert(definition);
        while let Some((&(from, register), done)) = carriers.iter_mut().find(|(_, done)| !**done) {
            *done = true;
            for reached in uses(code, from, register) {
                if reached.how == How::Returned {
                    web.returned.insert((from, register));
                    continue;
                }
                if let Some(escape) = escape(reached.how) {
                    web.escapes.insert(escape);
                    continue;
                }
                let at = reached.at;
                read.insert((at, register));
                match role(code, at, register) {
                    Role::Compares => drop(web.compared.insert((at, register))),
                    Role::Passes(number) => drop(web.arguments.insert((at, number))),
                    Role::Escapes(escape) => drop(web.escapes.insert(escape)),
                    Role::Steps => {
                        web.steps.insert((at, register));
                        carriers.entry((at, register)).or_insert(false);
                    }
                    Role::Copies(to) => drop(carriers.entry((at, to)).or_insert(false)),
                }
            }
            for &(at, register) in &read {
                for other in definitions(code, at, register) {
                    let same = |&at: &usize| constant(code, at) == Some((register, value));
                    if let Some(other) = other.filter(same) {
                        web.definitions.insert(other);
                        carriers.entry((other, register)).or_insert(false);
                    }
                }
            }
        }
        let is_own = |definition: Option<usize>, register| {
            definition.is_some_and(|at| carriers.contains_key(&(at, register)))
        };
        if !web.steps.is_empty() {
            // A counter is no second half of a result, which rdx would be.
            web.returned.retain(|&(_, register)| register == 0);
        } else if !web.returned.is_empty() {
            web.escapes.insert(Escape::Returned);
        }
        web.merged = read.iter().any(|&(at, register)| {
            definitions(code, at, register).into_iter().any(|one| !is_own(one, register))
        });
        Some(web)
    }
}

/// Returns the register and the number, if an instruction puts a number into a whole register.
pub fn constant(code: &Code<'_>, at: usize) -> Option<(u8, i64)> {
    let step = &code.steps[at];
    let target = step.instruction.op0_register();
    let moves = step.instruction.mnemonic() == Mnemonic::Mov
        && step.instruction.op0_kind() == OpKind::Register
        && target.size() >= 4;
    let (_, value) = Immediate::of(&step.instruction, &step.offsets).filter(|_| moves)?;
    Some((number(target)?, value))
}

fn escape(how: How) -> Option<Escape> {
    match how {
        How::Read => None,
        How::Changed => Some(Escape::Computed),
        How::Crosses => Some(Escape::Crosses),
        How::Returned => Some(Escape::Returned),
        How::Lost => Some(Escape::Lost),
    }
}

fn role(code: &Code<'_>, at: usize, register: u8) -> Role {
    let step = &code.steps[at];
    let instruction = &step.instruction;
    if is_call(instruction) || step.leaves == Some(Leaves::Calls) {
        let argument = ARGUMENTS.iter().position(|&one| one == register);
        // A call through a register reads that one, too.
        return argument
            .map_or(Role::Escapes(Escape::Addresses), |one| Role::Passes(one as u8 + 1));
    }
    let mnemonic = instruction.mnemonic();
    if mnemonic != Mnemonic::Lea && addressing(instruction) >> register & 1 != 0 {
        return Role::Escapes(Escape::Addresses);
    }
    let own = |operand: u32| {
        instruction.op_count() > operand
            && instruction.op_kind(operand) == OpKind::Register
            && number(instruction.op_register(operand)) == Some(register)
    };
    let whole =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register().size() >= 4;
    match mnemonic {
        Mnemonic::Cmp | Mnemonic::Test => Role::Compares,
        Mnemonic::Syscall | Mnemonic::Sysenter => Role::Escapes(Escape::SystemCall),
        Mnemonic::Mov | Mnemonic::Movsxd if own(1) && whole => {
            let to = number(instruction.op0_register());
            to.map_or(Role::Escapes(Escape::Computed), Role::Copies)
        }
        Mnemonic::Mov | Mnemonic::Push if instruction.op0_kind() != OpKind::Register || own(0) => {
            Role::Escapes(Escape::Stored)
        }
        _ if stepped(instruction, register).is_some() => Role::Steps,
        _ => Role::Escapes(Escape::Computed),
    }
}
