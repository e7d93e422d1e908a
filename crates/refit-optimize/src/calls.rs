//! The calls of hot blocks whose copies get to their targets in other ways: calls through pointers
//! that mostly lead to the same functions, and those of stubs.
//!
//! *Where calls through pointers lead.* At the calls, the program counts the values of the register
//! that the target, or its address, is computed from. What is stored at such an address is read
//! afterwards: it may have changed, or be gone, so the result says what is likely, and the copies
//! compare.

use std::collections::BTreeMap;
use std::time::Duration;

use iced_x86::{Instruction, OpKind, Register};
use refit_analysis::Module;
use refit_analysis::flow::{Block, Flow, stub_slot};
use refit_analysis::live::flag;
use refit_probe::code::decode;
use refit_probe::files::Files;
use refit_probe::spec::Spec;
use refit_probe::watch::{self, Error};
use refit_splice::process::Program;
use refit_splice::{ArrangedCall, Callee};
use tracing::debug;

use crate::profile::Profile;

/// Maximum number of calls whose targets are counted: those that run most often.
const MOST: usize = 400;
/// Calls that run less often than this part of all of them are left as they are.
const RARE: f64 = 0.0005;
/// Maximum number of functions with which a pointer is compared.
const COMPARED: usize = 4;
/// A function is compared with if it is called in this part of the calls that lead to none of those
/// before it.
const LIKELY: f64 = 0.6;

/// A call through a register, or through memory at a distance from one.
#[derive(Clone, Copy, Debug)]
struct Site {
    address: u64,
    register: Register,
    /// Distance of the pointer from the address in the register; `None` if the register has it.
    distance: Option<u64>,
    count: u64,
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
        let register = format!("{:?}", site.register).to_lowercase();
        format!("uprobe:{path}:{:#x} {{ count by {register} }}", site.address).parse::<Spec>().ok()
    };
    let specs: Vec<Spec> = sites.iter().filter_map(spec).collect();
    if specs.is_empty() {
        return Ok(Targets::new());
    }
    let watch = watch::prepare(program, &specs, None)?.install(program)?;
    // The time for which is counted.
    std::thread::sleep(time);
    let mut found = Targets::new();
    let mut reader = watch.reader();
    for place in &watch.watched {
        let address = place.address.wrapping_sub(bias);
        let site = sites.iter().find(|site| site.address == address);
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
        found.insert(address, parts);
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
            let memory = call.op0_kind() == OpKind::Memory;
            let register = if memory { call.memory_base() } else { call.op0_register() };
            let distance = memory.then(|| call.memory_displacement64());
            all.push(Site { address: call.ip(), register, distance, count });
        }
    }
    all.sort_by_key(|site| std::cmp::Reverse(site.count));
    let sum: u64 = all.iter().map(|site| site.count).sum();
    all.retain(|site| site.count as f64 > sum as f64 * RARE);
    all.truncate(MOST);
    all
}

/// Whether a call is one through a pointer that can be compared before it.
fn can_compare(flow: &Flow, call: &Instruction) -> bool {
    let register = match call.op0_kind() {
        OpKind::Register => call.op0_register(),
        OpKind::Memory
            if call.memory_index() == Register::None && call.segment_prefix() == Register::None =>
        {
            call.memory_base()
        }
        _ => return false,
    };
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
