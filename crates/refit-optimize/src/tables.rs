//! Jump tables that can have a copy, for the copy of the jump.
//!
//! Compilers write `lea T(%rip), %b; movslq (%b,%i,4), %r; add %b, %r; jmp *%r` for a switch in
//! position-independent code: entries are distances from the table. In the copy, the load reads a
//! copy of the table, whose entries are the distances of the copied targets from the same base. So
//! only the displacement of the load differs. Nobody else sees the value: `r` is used by the
//! addition and the jump alone, and dead at all targets. Before a call, `rax` counts as live: a
//! variadic function reads `al`.

use std::collections::BTreeSet;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use refit_analysis::Module;
use refit_analysis::flow::{Block, EdgeKind, Flow, Target};
use refit_probe::code::decode;
use refit_splice::ArrangedTable;

/// Maximum number of entries of a table that is copied.
const MOST_ENTRIES: u64 = 1024;

/// Returns the table by which a block, mapped `bias` bytes from its address, is left; `None` if
/// there is none, or it is of another form.
pub fn of_block(module: &Module, flow: &Flow, number: usize, bias: u64) -> Option<ArrangedTable> {
    let block = &flow.blocks()[number];
    let edges = flow.edges_from(u32::try_from(number).ok()?);
    let targets: Option<BTreeSet<u64>> = edges
        .iter()
        .map(|edge| match (edge.kind, edge.to) {
            (EdgeKind::Table, Target::Block(to)) => flow.blocks().get(to as usize),
            _ => None,
        })
        .map(|target| target.map(|block| block.start))
        .collect();
    let targets = targets.filter(|targets| !targets.is_empty())?;
    let code = code(module, flow, block)?;
    let (load, table) = load(&code)?;
    let register = number_of(code.last()?.op0_register())?;
    let dead = |target: &u64| !flow.live_before(*target).general(register);
    if !targets.iter().all(dead) {
        return None;
    }
    // All of its entries lead to these; what follows it may, too, which does no harm.
    let entry = |at: u64| {
        let place = table.checked_add(at * 4)?;
        let constant = module.image().is_constant(place, 4);
        let distance = module.image().offset32(place).filter(|_| constant)?;
        let target = table.wrapping_add_signed(distance.into());
        targets.contains(&target).then(|| target.wrapping_add(bias))
    };
    let entries: Vec<u64> = (0..MOST_ENTRIES).map_while(entry).collect();
    let found = |target: &u64| entries.contains(&target.wrapping_add(bias));
    (targets.iter().all(found) && entries.len() < MOST_ENTRIES as usize).then(|| ArrangedTable {
        load: load.wrapping_add(bias),
        jump: code[code.len() - 1].ip().wrapping_add(bias),
        address: table.wrapping_add(bias),
        targets: entries,
    })
}

fn code(module: &Module, flow: &Flow, block: &Block) -> Option<Vec<Instruction>> {
    flow.block_instructions(block).map(|one| decode(module, one.address)).collect()
}

/// Returns the addresses of the load and of the table of such a switch.
fn load(code: &[Instruction]) -> Option<(u64, u64)> {
    let [before @ .., load, add, jump] = code else { return None };
    let (target, base) = (jump.op0_register(), load.memory_base());
    let jumps = jump.is_jmp_near_indirect() && jump.op0_kind() == OpKind::Register;
    let adds = add.mnemonic() == Mnemonic::Add
        && add.op1_kind() == OpKind::Register
        && (add.op0_register(), add.op1_register()) == (target, base);
    let loads = load.mnemonic() == Mnemonic::Movsxd
        && load.op0_register() == target
        && load.op1_kind() == OpKind::Memory
        && load.memory_displacement64() == 0
        && load.memory_index_scale() == 4
        && load.segment_prefix() == Register::None
        && target != base;
    if !(jumps && adds && loads) {
        return None;
    }
    let mut info = InstructionInfoFactory::new();
    let mut writes = |one: &Instruction| {
        let used = info.info(one).used_registers();
        used.iter().any(|used| {
            let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            !reads && used.register().full_register() == base
        })
    };
    let last = before.iter().rev().find(|one| writes(one))?;
    let constant = last.mnemonic() == Mnemonic::Lea && last.is_ip_rel_memory_operand();
    constant.then(|| (load.ip(), last.memory_displacement64()))
}

/// Returns the number of a general register.
fn number_of(register: Register) -> Option<u8> {
    register.is_gpr64().then(|| u8::try_from(register.number()).ok())?
}

#[cfg(test)]
mod tests {
    use refit_analysis::FunctionId;

    use super::*;

    #[test]
    fn some_switches_of_compilers_are_found() {
        let module = Module::open("/bin/bash").expect("a program");
        let (mut all, mut found) = (0, 0);
        for id in (0..module.functions().len() as u32).map(FunctionId) {
            let flow = module.flow(id);
            for block in 0..flow.blocks().len() {
                let edges = flow.edges_from(block as u32);
                if edges.iter().any(|edge| edge.kind == EdgeKind::Table) {
                    all += 1;
                    found += usize::from(of_block(&module, &flow, block, 0).is_some());
                }
            }
        }
        // Of most, the analysis cannot rule out that a call at a target reads `rax`.
        assert!(found >= 4 && all > 20, "{found} of {all}");
    }
}
