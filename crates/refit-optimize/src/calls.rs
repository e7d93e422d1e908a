//! The calls of hot blocks whose copies get to their targets in other ways: calls through pointers
//! that mostly lead to the same functions, and those of stubs.
//!
//! *Where calls through pointers lead.* At the calls, the program counts the values of the register
//! that the target, or its address, is computed from. Many such calls are too short for a jump, so
//! the values are counted some instructions before, by what the register is loaded from. What is
//! stored at such an address is read afterwards: it may have changed, or be gone, so the result
//! says what is likely, and the copies compare.

use std::collections::BTreeMap;
use std::time::Duration;

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register, UsedRegister,
};
use refit_analysis::Module;
use refit_analysis::flow::{Block, Flow, stub_slot};
use refit_analysis::live::flag;
use refit_probe::code::decode;
use refit_probe::files::Files;
use refit_probe::spec::{Place, Spec, What};
use refit_probe::watch::{self, Error};
use refit_splice::process::Program;
use refit_splice::{ArrangedCall, Callee, JUMP};
use tracing::debug;

use crate::profile::Profile;

/// Maximum number of calls whose targets are counted: those that run most often.
const MOST: usize = 400;
/// Calls that run less often than this part of all of them are left as they are.
const RARE: f64 = 0.0005;
/// Maximum number of functions with which a pointer is compared.
pub(crate) const COMPARED: usize = 4;
/// A function is compared with if it is called in this part of the calls that lead to none of those
/// before it.
const LIKELY: f64 = 0.6;

/// A call through a register, or through memory at a distance from one.
#[derive(Clone, Copy, Debug)]
struct Site {
    address: u64,
    /// Where the register is counted.
    counted: Counted,
    /// Distance of the pointer from the address in the register; `None` if the register has it.
    distance: Option<u64>,
    count: u64,
}

/// A place that control passes before a call, at which a value is what the call's register will
/// have, unless the code in between writes to the memory that it is loaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    address: u64,
    register: Register,
    /// Offset of the value from what the register points to; `None` if the register has it.
    offset: Option<i32>,
}

/// The functions that calls lead to, by the address of the call in the file: the address of each in
/// the file, and in which part of the calls it is called. The most frequent come first.
pub type Targets = BTreeMap<u64, Vec<(u64, f64)>>;

/// Counts for some time to which functions of the same file the hot calls through pointers lead.
///
/// # Errors
/// [`Error`]: the program cannot be changed.
pub fn targets(
    program: &Program,
    files: &mut Files,
    file: usize,
    profile: &Profile,
    time: Duration,
) -> Result<Targets, Error> {
    let path = files.mapped(file).path.display().to_string();
    let (module, bias) = files.open(file)?;
    let sites = sites(module, profile);
    let spec = |site: &Site| {
        let Counted { address, register, offset } = site.counted;
        let place = Place { module: Some(path.clone()), what: What::At(address) };
        Spec::count_by(place, register.number() as u8, offset)
    };
    let specs: Vec<Spec> = sites.iter().map(spec).collect();
    if specs.is_empty() {
        return Ok(Targets::new());
    }
    let prepared = watch::prepare(program, &specs, None)?;
    debug!(sites = sites.len(), refused = ?prepared.refused, "counts targets of calls");
    let watch = prepared.install(program)?;
    // The time for which is counted.
    std::thread::sleep(time);
    let mut found = Targets::new();
    let mut reader = watch.reader();
    for place in &watch.watched {
        let address = place.address.wrapping_sub(bias);
        let site = sites.iter().find(|site| site.counted.address == address);
        let (Some(site), [watching]) = (site, &place.actions[..]) else { continue };
        let Ok(counts) = reader.read(watching) else { continue };
        let mut calls = BTreeMap::<u64, u64>::new();
        let mut all = counts.all.count();
        for (&value, count) in &counts.keys {
            all += count.count();
            let pointer = match site.distance {
                Some(distance) => program.word(value.wrapping_add(distance)).ok(),
                None => Some(value),
            };
            let target = pointer.map(|pointer| pointer.wrapping_sub(bias));
            if let Some(target) = target.filter(|&target| module.entered_at(target).is_some()) {
                *calls.entry(target).or_default() += count.count();
            }
        }
        let parts = calls.into_iter().map(|(target, count)| (target, count as f64 / all as f64));
        let mut parts: Vec<(u64, f64)> = parts.collect();
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        found.insert(site.address, parts);
    }
    drop(reader);
    watch.remove(program)?;
    debug!(sites = sites.len(), counted = found.len(), "targets of calls through pointers");
    Ok(found)
}

/// Returns the hot calls through pointers.
fn sites(module: &Module, profile: &Profile) -> Vec<Site> {
    let mut all = Vec::new();
    for function in &profile.functions {
        let flow = module.flow(function.id);
        for (block, count) in flow.blocks().iter().zip(&function.blocks) {
            let count = count.unwrap_or(0);
            let call = last(module, &flow, block).filter(|_| count > 0);
            let Some(call) = call.filter(|call| can_compare(&flow, call)) else { continue };
            let Some((register, distance)) = pointer(&call) else { continue };
            let block: Vec<_> = flow.block_instructions(block).collect();
            let before = block.iter().rev().skip(1);
            let before = before.map_while(|one| decode(module, one.address));
            let counted = counted(&call, register, before);
            all.push(Site { address: call.ip(), counted, distance, count });
        }
    }
    all.sort_by_key(|site| std::cmp::Reverse(site.count));
    let sum: u64 = all.iter().map(|site| site.count).sum();
    all.retain(|site| site.count as f64 > sum as f64 * RARE);
    all.truncate(MOST);
    all
}

/// Returns the register that has the target of a call through a pointer, or that points to it, at a
/// distance; `None` of other calls.
fn pointer(call: &Instruction) -> Option<(Register, Option<u64>)> {
    match call.op0_kind() {
        OpKind::Register => Some((call.op0_register(), None)),
        OpKind::Memory
            if call.memory_index() == Register::None && call.segment_prefix() == Register::None =>
        {
            Some((call.memory_base(), Some(call.memory_displacement64())))
        }
        _ => None,
    }
}

/// Returns where the register of a call is counted: at the last of the instructions `before` from
/// which on there is room for a jump, or else at the call itself. The last one comes first.
fn counted(
    call: &Instruction,
    register: Register,
    before: impl Iterator<Item = Instruction>,
) -> Counted {
    let at_call = Counted { address: call.ip(), register, offset: None };
    let (mut counted, mut information) = (at_call, InstructionInfoFactory::new());
    for instruction in before {
        if call.next_ip() - counted.address >= JUMP as u64 {
            break;
        }
        let writes = |used: &UsedRegister| {
            used.register().full_register() == counted.register && used.access() != OpAccess::Read
        };
        if information.info(&instruction).used_registers().iter().any(writes) {
            match source(&instruction) {
                Some((register, None)) => counted.register = register,
                Some((base, offset)) if counted.offset.is_none() => {
                    (counted.register, counted.offset) = (base, offset);
                }
                _ => return at_call,
            }
        }
        counted.address = instruction.ip();
    }
    counted
}

/// Returns the register that an instruction copies to another, or the one that points to what it
/// loads, with an offset, if it does nothing else.
fn source(instruction: &Instruction) -> Option<(Register, Option<i32>)> {
    let whole = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
    match (instruction.op0_kind(), instruction.op1_kind()) {
        (OpKind::Register, OpKind::Register) if whole => Some((instruction.op1_register(), None)),
        (OpKind::Register, OpKind::Memory) if whole => {
            let plain = instruction.memory_index() == Register::None
                && instruction.segment_prefix() == Register::None
                && instruction.memory_base().is_gpr64();
            let offset = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
            plain.then(|| (instruction.memory_base(), Some(offset)))
        }
        _ => None,
    }
}

/// Whether a call is one through a pointer that can be compared before it.
fn can_compare(flow: &Flow, call: &Instruction) -> bool {
    let Some((register, _)) = pointer(call) else { return false };
    let live = flow.live_before(call.ip());
    let is_free = live.flags & !flag::DIRECTION == 0 && !live.general(11);
    let fits = register.is_gpr64() && ![Register::RSP, Register::R11].contains(&register);
    call.is_call_near_indirect() && fits && is_free
}

fn last(module: &Module, flow: &Flow, block: &Block) -> Option<Instruction> {
    decode(module, flow.block_instructions(block).last()?.address)
}

/// Returns how the copy of a block, mapped `bias` bytes from its address, makes the call at its
/// end; `None` if it makes it as the block itself.
pub fn of_block(
    module: &Module,
    flow: &Flow,
    block: &Block,
    targets: &Targets,
    bias: u64,
) -> Option<ArrangedCall> {
    let call = last(module, flow, block)?;
    let address = call.ip().wrapping_add(bias);
    if call.is_call_near() && call.op0_kind() == OpKind::NearBranch64 {
        let slot = stub_slot(module.image(), call.near_branch_target())?;
        return Some(ArrangedCall { address, callee: Callee::Stored(slot.wrapping_add(bias)) });
    }
    let parts = targets.get(&call.ip()).filter(|_| can_compare(flow, &call))?;
    let mut left = 1.0;
    let likely = parts.iter().take(COMPARED).take_while(|(_, part)| {
        let is_likely = *part >= left * LIKELY;
        left -= part;
        is_likely
    });
    let likely: Vec<u64> = likely.map(|(target, _)| target.wrapping_add(bias)).collect();
    (!likely.is_empty()).then_some(ArrangedCall { address, callee: Callee::Likely(likely) })
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// Returns where the call at the end of this code, which begins at 0, is counted.
    fn counted_in(code: &[u8]) -> Counted {
        let mut all: Vec<_> = Decoder::new(64, code, DecoderOptions::NONE).into_iter().collect();
        let call = all.pop().expect("a call");
        let (register, _) = pointer(&call).expect("through a pointer");
        counted(&call, register, all.into_iter().rev())
    }

    #[test]
    fn a_call_without_room_is_counted_before() {
        let at = |address, register, offset| Counted { address, register, offset };
        // call *0x100(%rax)
        let long = counted_in(&[0x90, 0xff, 0x90, 0, 1, 0, 0]);
        assert_eq!(long, at(1, Register::RAX, None));
        // mov 8(%rdi), %rax; call *0x30(%rax)
        let loaded = counted_in(&[0x48, 0x8b, 0x47, 0x08, 0xff, 0x50, 0x30]);
        assert_eq!(loaded, at(0, Register::RDI, Some(8)));
        // mov %rdi, %rax; xor %edi, %edi; call *0x30(%rax)
        let copied = counted_in(&[0x48, 0x89, 0xf8, 0x31, 0xff, 0xff, 0x50, 0x30]);
        assert_eq!(copied, at(3, Register::RAX, None));
        // mov %rbx, %rax; call *%rax
        let moved = counted_in(&[0x48, 0x89, 0xd8, 0xff, 0xd0]);
        assert_eq!(moved, at(0, Register::RBX, None));
        // add %rbx, %rax; call *%rax: the sum is nowhere before.
        assert_eq!(counted_in(&[0x48, 0x01, 0xd8, 0xff, 0xd0]), at(3, Register::RAX, None));
    }
}
