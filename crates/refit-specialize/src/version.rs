//! Makes a version of a function.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Instruction, Mnemonic};
use refit_splice::{Goal, Version, VersionBlock, VersionInstruction};

use crate::code::Code;
use crate::constants::Constants;
use crate::error::NoVersion;
use crate::evaluate::Evaluator;
use crate::graph::{Graph, Limits};
use crate::node::{End, Node, To, next};
use crate::order::order;
use crate::plan::{Choice, Form, Plan};
use crate::set::Set;
use crate::state::{ARITHMETIC, State};

/// Numbers that tell how a version differs from its function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Instructions of the version.
    pub instructions: usize,
    /// Instructions that were left out, of those that the version stands for, without direct jumps
    /// and padding.
    pub left: usize,
    /// Instructions that became moves of constants, or got known operands.
    pub folded: usize,
    /// Conditional and indirect jumps whose target is known.
    pub branches: usize,
    /// Blocks that are there more than once, beyond the first time.
    pub repeated: usize,
}

/// The value for which a version is made.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentValue<'a> {
    /// Number of the general register that has it.
    pub register: u8,
    /// The value.
    pub value: u64,
    /// All values for which there are tests at the entry, this one among them.
    pub tested: &'a [u64],
}

/// Makes the version of a function for a value of a register.
///
/// # Errors
/// [`NoVersion`].
pub fn version(
    code: &Code,
    known: ArgumentValue<'_>,
    constants: &dyn Constants,
    limits: Limits,
) -> Result<(Version, Figures), NoVersion> {
    let ArgumentValue { register, value, .. } = known;
    let live = code.live_at(code.blocks[code.entry].start);
    if !code.blocks[code.entry].copies {
        return Err(NoVersion::Nothing);
    }
    let tested = tested(known.tested);
    if !(live & tested).is_empty() {
        return Err(NoVersion::Entry);
    }
    let mut evaluator = Evaluator::new(constants);
    let graph = Graph::new(code, &State::with(register, value), &mut evaluator, limits);
    let plan = Plan::new(code, &graph, &mut evaluator);
    let order = order(&graph.nodes);
    let stale = Stale::new(code, &graph, &plan, tested);
    let at: BTreeMap<usize, usize> =
        order.iter().enumerate().map(|(at, &node)| (node, at)).collect();
    let mut writer =
        Writer { code, value, graph: &graph, plan: &plan, at, figures: Figures::default() };
    let blocks: Result<Vec<_>, _> = order
        .iter()
        .enumerate()
        .map(|(at, &node)| writer.block(at, node, stale.at[node]))
        .collect();
    let mut figures = writer.figures;
    let original: BTreeSet<usize> = order.iter().map(|&node| graph.nodes[node].block).collect();
    figures.repeated = order.len() - original.len();
    if figures.left + figures.folded + figures.branches == 0 {
        return Err(NoVersion::Nothing);
    }
    Ok((Version { register, value, blocks: blocks? }, figures))
}

/// Returns what the tests of values change.
fn tested(values: &[u64]) -> Set {
    let needed = values.iter().any(|&value| Version::needs_register(value));
    Set::flags(ARITHMETIC) | if needed { Set::general(1 << 11) } else { Set::NONE }
}

/// The registers and flags that may differ from those of the function at the beginning of each
/// node.
struct Stale {
    at: Vec<Set>,
}

impl Stale {
    fn new(code: &Code, graph: &Graph, plan: &Plan, entry: Set) -> Self {
        let mut stale = Self { at: vec![Set::NONE; graph.nodes.len()] };
        if let Some(first) = stale.at.first_mut() {
            *first = entry;
        }
        let mut open: Vec<usize> = (0..graph.nodes.len()).collect();
        while let Some(node) = open.pop() {
            let end = graph.nodes[node].end;
            let mut now = stale.at[node];
            let choices = &plan.choices[node];
            for (choice, needed) in
                choices.iter().zip(needed_behind_each(plan, code, node, &graph.nodes[node]))
            {
                now = behind(choice, needed, now);
            }
            if let End::Returns(to) = end {
                now = now.difference(returned(code, graph, to));
            }
            for next in next(&graph.nodes, node) {
                if !now.difference(stale.at[next]).is_empty() {
                    stale.at[next] |= now;
                    open.push(next);
                }
            }
        }
        stale
    }
}

/// Returns what is right when a call has returned: what the function reads then, the call has left
/// as the ABI says, or as the function knows of the one that it calls.
fn returned(code: &Code, graph: &Graph, to: To) -> Set {
    match to {
        To::Node(node) => code.live_at(code.blocks[graph.nodes[node].block].start),
        To::Program(address) => code.live_at(address),
    }
}

/// Returns what is stale behind an instruction, if this is stale before it.
fn behind(choice: &Choice, needed: Set, stale: Set) -> Set {
    match choice.form(needed) {
        _ if choice.leaves => stale.difference(choice.kills),
        Form::Left => stale | choice.writes,
        Form::Constant => {
            let flags = Set::flags(u8::MAX);
            stale.difference(choice.kills.difference(flags)) | choice.writes & flags
        }
        Form::Folded => stale.difference(choice.kills),
    }
}

/// Returns what is needed behind each instruction of a node.
fn needed_behind_each(plan: &Plan, code: &Code, node: usize, known: &Node) -> Vec<Set> {
    let mut needed = plan.needed_behind(code, known);
    let mut all: Vec<Set> = plan.choices[node]
        .iter()
        .rev()
        .map(|choice| {
            let behind = needed;
            needed = choice.before(needed);
            behind
        })
        .collect();
    all.reverse();
    all
}

struct Writer<'a> {
    code: &'a Code,
    value: u64,
    graph: &'a Graph,
    plan: &'a Plan,
    /// Positions of the nodes in the version.
    at: BTreeMap<usize, usize>,
    figures: Figures,
}

impl Writer<'_> {
    /// Writes the block at a position of the version, where this is stale.
    fn block(
        &mut self,
        position: usize,
        node: usize,
        mut stale: Set,
    ) -> Result<VersionBlock, NoVersion> {
        let (code, graph, plan) = (self.code, self.graph, self.plan);
        let end = graph.nodes[node].end;
        let known = &code.blocks[graph.nodes[node].block];
        let start = known.start;
        // Return addresses are taken back to there.
        if known.returned_to && !(stale & code.live_at(start)).is_empty() {
            return Err(NoVersion::Inexact { value: self.value, address: start });
        }
        let mut instructions: Vec<VersionInstruction> = Vec::new();
        // Where a thread at the next position can continue.
        let mut back = None;
        // The last instruction, if nothing is left of it.
        let mut left = None;
        let needed = needed_behind_each(plan, code, node, &graph.nodes[node]);
        for (choice, needed) in plan.choices[node].iter().zip(needed) {
            let original = choice.member.instruction.ip();
            let exact = (stale & choice.member.live).is_empty();
            back = back.or(exact.then_some(original));
            let form = choice.form(needed);
            self.count(choice, form, end);
            let instruction = match form {
                Form::Left => {
                    left = Some(original);
                    stale = behind(choice, needed, stale);
                    continue;
                }
                Form::Constant => choice.constant.unwrap_or(choice.folded),
                _ => choice.folded,
            };
            let read = match form {
                _ if choice.leaves => choice.member.live,
                Form::Constant => Set::NONE,
                _ => choice.reads,
            };
            if !(stale & (read | choice.member.unwinding)).is_empty() {
                return Err(NoVersion::Inexact { value: self.value, address: original });
            }
            instructions.push(VersionInstruction { original, instruction, to: None, back });
            (back, left) = (None, None);
            stale = behind(choice, needed, stale);
        }
        let mut block = VersionBlock { start, instructions, next: None, end: start, back: None };
        self.end(&mut block, node, stale, back)?;
        if let Some(left) = left {
            block.end = left;
        }
        self.straighten(position, &mut block);
        Ok(block)
    }

    /// Adds what follows the last instruction.
    fn end(
        &self,
        block: &mut VersionBlock,
        node: usize,
        stale: Set,
        back: Option<u64>,
    ) -> Result<(), NoVersion> {
        let Node { block: own, end, .. } = self.graph.nodes[node];
        let (next, taken, stale) = match end {
            End::Leaves => {
                if let Some(last) = block.instructions.last_mut() {
                    last.to = branch_target(last).map(Goal::Program);
                }
                return Ok(());
            }
            End::Goes(to) => (to, None, stale),
            End::Returns(to) => (to, None, stale.difference(returned(self.code, self.graph, to))),
            End::Branches(to, otherwise) => (otherwise, Some(to), stale),
        };
        for to in taken.into_iter().chain([next]) {
            self.check(own, to, stale)?;
        }
        block.end = self.address(next);
        let exact = (stale & self.code.live_on_way(own, block.end)).is_empty();
        // Nobody returns from a call that does not; its return address leads there all the same.
        let called = matches!(end, End::Returns(_));
        block.back = back.or((exact || called).then_some(block.end));
        block.next = Some(self.goal(next));
        if let Some(last) = block.instructions.last_mut() {
            match taken {
                Some(taken) => last.to = Some(self.goal(taken)),
                None if called => last.to = branch_target(last).map(Goal::Program),
                None => {}
            }
        }
        Ok(())
    }

    /// Refuses a way to the function on which something that it may read is not as it should be.
    fn check(&self, own: usize, to: To, stale: Set) -> Result<(), NoVersion> {
        let To::Program(address) = to else { return Ok(()) };
        match (stale & self.code.live_on_way(own, address)).is_empty() {
            true => Ok(()),
            false => Err(NoVersion::Inexact { value: self.value, address }),
        }
    }

    /// Inverts a branch to the block that follows.
    fn straighten(&self, position: usize, block: &mut VersionBlock) {
        let (Some(last), Some(next)) = (block.instructions.last_mut(), block.next) else { return };
        let follows = |goal: Goal| match goal {
            Goal::Block(at) => position + 1 == at,
            Goal::Program(_) => false,
        };
        let (Some(taken), true) = (last.to, last.instruction.code().is_jcc_short_or_near()) else {
            return;
        };
        if follows(taken) && !follows(next) {
            last.instruction.negate_condition_code();
            (last.to, block.next) = (Some(next), Some(taken));
        }
    }

    fn address(&self, to: To) -> u64 {
        match to {
            To::Node(node) => self.code.blocks[self.graph.nodes[node].block].start,
            To::Program(address) => address,
        }
    }

    fn goal(&self, to: To) -> Goal {
        match to {
            To::Node(node) => self
                .at
                .get(&node)
                .map_or_else(|| Goal::Program(self.address(to)), |&at| Goal::Block(at)),
            To::Program(address) => Goal::Program(address),
        }
    }

    fn count(&mut self, choice: &Choice, form: Form, end: End) {
        let one = &choice.member.instruction;
        let jump = one.code().is_jcc_short_or_near() || one.is_jmp_near_indirect();
        let known = jump && matches!(end, End::Goes(_)) && form == Form::Left;
        let figures = &mut self.figures;
        figures.branches += usize::from(known);
        match form {
            Form::Left => figures.left += usize::from(!idles(one)),
            Form::Constant => {
                figures.instructions += 1;
                figures.folded += 1;
            }
            Form::Folded => {
                figures.instructions += 1;
                figures.folded += usize::from(choice.folded != *one);
            }
        }
    }
}

/// Whether it does nothing but lead on.
fn idles(one: &Instruction) -> bool {
    let nothing = matches!(one.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64);
    nothing || one.code().is_jmp_short_or_near()
}

fn branch_target(one: &VersionInstruction) -> Option<u64> {
    let direct = one.instruction.op0_kind() == iced_x86::OpKind::NearBranch64;
    direct.then(|| one.instruction.near_branch64())
}
