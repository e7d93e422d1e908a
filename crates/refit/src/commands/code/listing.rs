//! A control-flow graph as lines of text.

use refit_analysis::flow::{Block, Flow, Instruction, Target};
use refit_analysis::lines::{Lines, Origin};
use refit_analysis::live::flag;
use refit_analysis::{Live, Module};
use serde::Serialize;

use super::edge::leads;

/// The names of general registers by number.
const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The names of the flags that programs compute with.
const FLAGS: [(u8, &str); 6] = [
    (flag::CARRY, "cf"),
    (flag::PARITY, "pf"),
    (flag::AUXILIARY, "af"),
    (flag::ZERO, "zf"),
    (flag::SIGN, "sf"),
    (flag::OVERFLOW, "of"),
];

/// A place in the source.
#[derive(Serialize)]
pub(super) struct SourcePlace {
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl SourcePlace {
    pub(super) fn of(origin: Origin) -> Self {
        Self { function: origin.function, file: origin.file, line: origin.line }
    }
}

/// Returns the places in the source of the instructions of a block, in their order, each once; an
/// inlined function stands before the one into which it was inlined.
fn origins(flow: &Flow, block: &Block, source: &Lines) -> Vec<String> {
    let mut lines = Vec::new();
    for instruction in flow.block_instructions(block) {
        let origins = source.at(instruction.address);
        let Some((outer, inlined)) = origins.split_last() else { continue };
        let mut line = String::new();
        for origin in inlined {
            let name = origin.function.as_deref().unwrap_or("?");
            line += &format!("{origin} {name}, inlined at ");
        }
        line += &outer.to_string();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the lines of the graph: a head line, then block by block.
pub(super) fn lines(
    module: &Module,
    flow: &Flow,
    live: bool,
    source: Option<&Lines>,
) -> Vec<String> {
    let function = module.function(flow.function());
    let known = if flow.targets_known() { "" } else { "; some jumps could not be resolved" };
    let mut lines = vec![format!(
        "{} at 0x{:x}: {} bytes, {} blocks, {} instructions{known}",
        function.name(),
        function.entry,
        function.size(),
        flow.blocks().len(),
        flow.instructions().len(),
    )];
    let mut comes_from = vec![Vec::new(); flow.blocks().len()];
    for edge in flow.edges() {
        if let Target::Block(to) = edge.to {
            comes_from[to as usize].push(edge.from.to_string());
        }
    }
    for (i, block) in flow.blocks().iter().enumerate() {
        lines.push(String::new());
        let mut from = std::mem::take(&mut comes_from[i]);
        from.dedup();
        if block.start == function.entry {
            from.insert(0, "entry".to_owned());
        }
        let from =
            if from.is_empty() { String::new() } else { format!("  ← {}", from.join(", ")) };
        lines.push(format!("block {i}{from}"));
        let places = source.map(|source| origins(flow, block, source)).unwrap_or_default();
        lines.extend(places.into_iter().map(|line| format!("  {line}")));
        lines.extend(instructions(module, flow, block, live).into_iter().map(|l| format!("  {l}")));
        for edge in flow.edges_from(i as u32) {
            lines.push(format!("  → {}", leads(module, edge)));
        }
    }
    lines
}

/// Returns lines for the instructions of a block.
pub(super) fn instructions(module: &Module, flow: &Flow, block: &Block, live: bool) -> Vec<String> {
    let line = |instruction: &Instruction| {
        let text = format!("{:x}  {}", instruction.address, module.text(instruction));
        if !live {
            return text;
        }
        let dead = dead(&flow.live_before(instruction.address)).join(" ");
        let dead = if dead.is_empty() { "-".to_owned() } else { dead };
        format!("{text:<56}  ; dead: {dead}")
    };
    flow.block_instructions(block).map(line).collect()
}

/// Returns the dead parts of the state: general registers, flags, the number of vector registers,
/// the red zone.
pub(super) fn dead(live: &Live) -> Vec<String> {
    let mut dead: Vec<String> = Vec::new();
    let general = GENERAL.iter().enumerate().filter(|(i, _)| !live.general(*i as u8));
    dead.extend(general.map(|(_, name)| (*name).to_owned()));
    let flags: Vec<&str> =
        FLAGS.iter().filter(|(bit, _)| live.flags & bit == 0).map(|(_, name)| *name).collect();
    if flags.len() == FLAGS.len() {
        dead.push("flags".to_owned());
    } else {
        dead.extend(flags.into_iter().map(str::to_owned));
    }
    let vectors = (live.vectors | live.upper).count_zeros();
    if vectors > 0 {
        dead.push(format!("{vectors} vectors"));
    }
    if !live.red_zone {
        dead.push("red zone".to_owned());
    }
    dead
}
