//! Finds where functions are left, and which function returns then.

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register};
use refit_analysis::flow::{Edge, EdgeKind, Marks, Target, slot, stub_slot};
use refit_analysis::functions::{Convention, Sources};
use refit_analysis::{FunctionId, Module};
use refit_splice::At;

use crate::code::decode;
use crate::sites::Place;

/// The function of unwinders that landing pads call at their end (Itanium C++ ABI, level 1).
const RESUME: &str = "_Unwind_Resume";

/// A place at which a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Address in the file.
    pub(crate) address: u64,
    /// When actions run there.
    pub(crate) at: At,
    /// Where control goes.
    pub(crate) to: Destination,
}

/// Where control goes when a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To the caller.
    Caller,
    /// To another function, which returns to the caller (tail call).
    Callee(Callee),
    /// Nowhere: into a call that never returns.
    Nowhere,
    /// To the unwinder, which goes on with the caller: an exception has passed, and the function
    /// has cleaned up. Handlers of the function itself are reached by jumps.
    Unwinder,
}

impl Destination {
    /// Returns its index in [`Steps::ways`](crate::steps::Steps::ways).
    pub(crate) fn way(self) -> usize {
        match self {
            Self::Caller => 0,
            Self::Callee(_) => 1,
            Self::Nowhere => 2,
            Self::Unwinder => 3,
        }
    }
}

/// A function that another one jumps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Callee {
    /// One of the same file.
    Function(FunctionId),
    /// The one whose address is in this word of the file: the loader stores it there, and nobody
    /// changes it any more.
    Stored(u64),
    /// Only the program knows.
    Unknown,
}

impl Place<'_> {
    /// Returns an instruction in each block that leaves the function: the last instruction that a
    /// jump can replace, or else the leaving instruction itself, for a copy of the function. With
    /// `returning`, a result for the caller has to be in its register already. `entry` is no such
    /// instruction.
    pub(crate) fn exits(&self, entry: u64, returning: bool) -> Vec<Exit> {
        let mut exits = Vec::new();
        for (index, block) in self.flow().blocks().iter().enumerate() {
            let edges = self.flow().edges_from(index as u32);
            let own = self.flow().block_instructions(block).map(|one| one.address);
            let mut own: Vec<_> = own.collect();
            let Some(&last) = own.last() else { continue };
            let to = match edges.iter().find(leaves).map(|edge| edge.to) {
                Some(Target::Caller) => Destination::Caller,
                Some(_) if self.resumes(last) => Destination::Unwinder,
                Some(target) => Destination::Callee(self.callee(target, last)),
                // Where it is part of the file, its code seems to return.
                None if self.calls(last) && self.resumes(last) => Destination::Unwinder,
                None if edges.is_empty() && self.calls(last) => Destination::Nowhere,
                None => continue,
            };
            let falls = edges.iter().any(|edge| edge.kind == EdgeKind::Fall);
            if falls && to != Destination::Unwinder {
                exits.push(Exit { address: last, at: At::Taken, to });
                continue;
            }
            if returning && to == Destination::Caller {
                let sets = |&address: &u64| sets_result(self.module, address);
                let from = own.iter().rposition(sets).map_or(0, |at| at + 1);
                own.drain(..from);
            }
            let fits = |&&address: &&u64| address != entry && self.fits_a_jump(address);
            let address = *own.iter().rev().find(fits).unwrap_or(&last);
            exits.push(Exit { address, at: At::Before, to });
        }
        exits
    }

    /// Whether the instruction at an address is a call.
    fn calls(&self, address: u64) -> bool {
        self.flow().instruction_at(address).is_some_and(|one| one.marks.contains(Marks::CALL))
    }

    /// Whether the call or jump at an address goes to the function that continues an exception.
    fn resumes(&self, address: u64) -> bool {
        let (module, image) = (self.module, self.module.image());
        let Some(instruction) = decode(module, address) else { return false };
        let named = |name: &str| name.strip_suffix("@plt").unwrap_or(name) == RESUME;
        let imported = |slot| image.import_at(slot).is_some_and(named);
        if let Some(slot) = slot(&instruction) {
            return imported(slot);
        }
        let target = instruction.near_branch_target();
        let own =
            || module.entered_at(target).is_some_and(|one| one.names.iter().any(|n| named(n)));
        target != 0 && (stub_slot(image, target).is_some_and(imported) || own())
    }

    /// Returns the function to which the jump at an address goes, which leads to `target`.
    fn callee(&self, target: Target, jump: u64) -> Callee {
        let module = self.module;
        // Go's stacks move while a function runs, so addresses do not tell frames apart.
        if module.function(self.function).convention == Convention::Go {
            return Callee::Unknown;
        }
        let function = match target {
            Target::Function(function) => Some(function),
            Target::Outside(address) => module.function_at(address),
            _ => None,
        };
        match function {
            Some(function) => callee_of(module, function),
            None => decode(module, jump).map_or(Callee::Unknown, |jump| stored(module, &jump)),
        }
    }
}

/// Returns the function that runs when control goes to one of a file: a stub jumps on.
pub(crate) fn callee_of(module: &Module, function: FunctionId) -> Callee {
    let there = module.function(function);
    match stub_slot(module.image(), there.entry) {
        Some(slot) if there.sources.contains(Sources::STUB) => Callee::Stored(slot),
        _ => Callee::Function(function),
    }
}

/// Returns the function to which an indirect jump goes.
fn stored(module: &Module, jump: &Instruction) -> Callee {
    let image = module.image();
    let stays = |slot: &u64| image.import_at(*slot).is_some() || image.is_constant(*slot, 8);
    slot(jump).filter(stays).map_or(Callee::Unknown, Callee::Stored)
}

/// Whether control leaves the function by an edge.
fn leaves(edge: &&Edge) -> bool {
    match edge.to {
        Target::Caller => true,
        // Calls have edges of their own; a jump to another function is a call that does not return
        // here.
        Target::Function(_) | Target::Outside(_) | Target::Elsewhere => {
            matches!(edge.kind, EdgeKind::Jump | EdgeKind::Branch)
        }
        Target::Block(_) | Target::Unknown => false,
    }
}

/// Whether the instruction may change the function's result: whether it writes to `rax` or a part
/// of it.
fn sets_result(module: &Module, address: u64) -> bool {
    let Some(instruction) = decode(module, address) else { return true };
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&instruction).used_registers();
    used.iter().any(|one| {
        let writes = !matches!(
            one.access(),
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        );
        writes && one.register().full_register() == Register::RAX
    })
}
