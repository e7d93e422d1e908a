//! Jump tables that can have a copy, for the copy of the jump.
//!
//! Compilers write `jmp *T(,%i,8)`, or load the entry into a register first; in
//! position-independent code, `movslq (%b,%i,4), %r; add %b, %r; jmp *%r`, and entries are
//! distances from the table. The copy of the instruction that reads an entry reads a copy of the
//! table, which has the targets' copies. So only its displacement differs. Nobody else sees the
//! value: `r` is used by the addition and the jump alone, and dead at all targets.
//!
//! *Where `r` is dead.* The analysis has registers live where it does not know better: `rax` before
//! calls, since a variadic function reads `al`, and at returns. Neither can be the address of a
//! target: before a variadic call, `al` is set to a number, and a function does not return where it
//! has jumped to. So those do not count here.

use std::collections::BTreeSet;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use refit_analysis::Module;
use refit_analysis::flow::{Block, EdgeKind, Flow, JumpTable, Target};
use refit_probe::code::decode;
use refit_splice::ArrangedTable;

/// Maximum number of entries of a table that is copied.
const MOST_ENTRIES: usize = 1024;
/// Maximum number of blocks that are searched for a use of a register.
const SEARCHED: usize = 64;

/// Returns the table by which a block, mapped `bias` bytes from its address, is left; `None` if
/// there is none, or it cannot have a copy.
pub fn of_block(module: &Module, flow: &Flow, block: &Block, bias: u64) -> Option<ArrangedTable> {
    let last = flow.block_instructions(block).last()?;
    let table = flow.table_of(last.address)?;
    let fits = (1..=MOST_ENTRIES).contains(&table.targets.len());
    let is_seen_only_there = table.load == table.jump || is_hidden(module, flow, block, table);
    (fits && is_seen_only_there).then(|| ArrangedTable {
        load: table.load.wrapping_add(bias),
        jump: table.jump.wrapping_add(bias),
        address: table.address.wrapping_add(bias),
        base: table.base.map(|base| base.wrapping_add(bias)),
        targets: table.targets.iter().map(|target| target.wrapping_add(bias)).collect(),
    })
}

/// Whether nobody but the jump sees what is loaded into a register in the same block.
fn is_hidden(module: &Module, flow: &Flow, block: &Block, table: &JumpTable) -> bool {
    let mut info = InstructionInfoFactory::new();
    let behind = flow.block_instructions(block).skip_while(|one| one.address != table.load);
    let code: Option<Vec<_>> = behind.map(|one| decode(module, one.address)).collect();
    let Some([load, between @ .., jump]) = code.as_deref() else { return false };
    let register = load.op0_register();
    if load.op0_kind() != OpKind::Register
        || !register.is_gpr64()
        || jump.op0_register() != register
        || jump.op0_kind() != OpKind::Register
    {
        return false;
    }
    let mut sums = 0;
    for one in between {
        let adds = one.mnemonic() == Mnemonic::Add
            && one.op1_kind() == OpKind::Register
            && one.op0_register() == register
            && one.op1_register() != register;
        sums += usize::from(adds);
        if !adds && Use::of(&mut info, one, register) != Use::None {
            return false;
        }
    }
    let targets: BTreeSet<u64> = table.targets.iter().copied().collect();
    sums == usize::from(table.base.is_some())
        && targets.iter().all(|&target| is_dead(module, flow, &mut info, target, register))
}

/// Whether a register that holds the address of a target of a jump is written before it is read,
/// from an address on.
fn is_dead(
    module: &Module,
    flow: &Flow,
    info: &mut InstructionInfoFactory,
    address: u64,
    register: Register,
) -> bool {
    let number = u8::try_from(register.number()).unwrap_or_default();
    if !flow.live_before(address).general(number) {
        return true;
    }
    // Of the others, calls and returns may need the value.
    if register != Register::RAX {
        return false;
    }
    let Some((first, _)) = flow.block_at(address).filter(|(_, block)| block.start == address)
    else {
        return false;
    };
    let (mut open, mut seen) = (vec![first], BTreeSet::from([first]));
    while let Some(number) = open.pop() {
        match passes(module, flow, info, number) {
            None => return false,
            Some(next) => open.extend(next.into_iter().filter(|&next| seen.insert(next))),
        }
        if seen.len() > SEARCHED {
            return false;
        }
    }
    true
}

/// Returns the blocks to which `rax` passes through a block, unread; `None` if it is read.
fn passes(
    module: &Module,
    flow: &Flow,
    info: &mut InstructionInfoFactory,
    number: u32,
) -> Option<Vec<u32>> {
    let block = flow.blocks().get(number as usize)?;
    for one in flow.block_instructions(block) {
        let instruction = decode(module, one.address)?;
        match Use::of(info, &instruction, Register::RAX) {
            Use::Reads => return None,
            Use::Writes => return Some(Vec::new()),
            Use::None if instruction.is_call_near() || instruction.is_call_near_indirect() => {
                return Some(Vec::new());
            }
            Use::None => {}
        }
    }
    let edges = flow.edges_from(number).iter();
    let next = edges.filter_map(|edge| match (edge.kind, edge.to) {
        (EdgeKind::Unwind, _) | (_, Target::Caller | Target::Function(_) | Target::Elsewhere) => {
            None
        }
        (_, Target::Block(to)) => Some(Some(to)),
        _ => Some(None),
    });
    next.collect()
}

/// The use that an instruction makes of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    None,
    /// Writes the whole of it, without reading it.
    Writes,
    /// Reads it, or writes a part.
    Reads,
}

impl Use {
    fn of(info: &mut InstructionInfoFactory, one: &Instruction, register: Register) -> Self {
        let mut all = Self::None;
        for used in info.info(one).used_registers() {
            if used.register().full_register() != register {
                continue;
            }
            let whole = used.register().is_gpr64() || used.register().is_gpr32();
            match used.access() {
                OpAccess::NoMemAccess | OpAccess::None => {}
                OpAccess::Write if whole => {
                    all = if all == Self::None { Self::Writes } else { all }
                }
                _ => return Self::Reads,
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use refit_analysis::FunctionId;

    use super::*;

    /// Returns the number of blocks of a program that end with a jump by a table, and of those
    /// whose table can have a copy.
    fn tables(path: &str) -> (usize, usize) {
        let module = Module::open(path).expect("a program");
        let (mut all, mut found) = (0, 0);
        for id in (0..module.functions().len() as u32).map(FunctionId) {
            let flow = module.flow(id);
            for (number, block) in flow.blocks().iter().enumerate() {
                if flow.edges_from(number as u32).iter().any(|edge| edge.kind == EdgeKind::Table) {
                    all += 1;
                    found += usize::from(of_block(&module, &flow, block, 0).is_some());
                }
            }
        }
        (all, found)
    }

    #[test]
    fn most_switches_of_compilers_can_have_copies() {
        let (all, found) = tables("/bin/bash");
        assert!(all > 20 && found * 4 >= all * 3, "{found} of {all}");
    }
}
