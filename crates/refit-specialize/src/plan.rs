//! The forms that each instruction of a version may have, and what of its results is needed.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpKind};
use refit_analysis::live::effects;

use crate::code::{Code, Member};
use crate::evaluate::Evaluator;
use crate::fold;
use crate::graph::Graph;
use crate::node::{End, Node, To};
use crate::set::Set;
use crate::state::State;

/// The forms that an instruction may have.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The instruction.
    pub member: Member,
    /// The instruction with its known operands put in.
    pub folded: Instruction,
    /// The move of a constant that has its effect on registers.
    pub constant: Option<Instruction>,
    /// Whether it may be left out if nothing needs its results.
    pub pure: bool,
    /// Registers and flags that the folded instruction reads.
    pub reads: Set,
    /// Registers and flags that the instruction surely overwrites.
    pub kills: Set,
    /// Registers and flags that it changes, perhaps or in part.
    pub writes: Set,
    /// Whether control leaves the version or a call is made there: then the state is that of the
    /// function.
    pub leaves: bool,
}

/// The form that is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing is left of it.
    Left,
    /// The move of a constant.
    Constant,
    /// The folded instruction.
    Folded,
}

impl Choice {
    /// Returns the form that suffices if this is needed behind it.
    pub fn form(&self, needed: Set) -> Form {
        let flags = Set::flags(u8::MAX);
        if self.pure && (self.writes & needed).is_empty() {
            Form::Left
        } else if self.constant.is_some() && (self.writes & flags & needed).is_empty() {
            Form::Constant
        } else {
            Form::Folded
        }
    }

    /// Returns what is needed before it if this is needed behind it.
    pub fn before(&self, needed: Set) -> Set {
        let before = match self.form(needed) {
            _ if self.leaves => self.member.live,
            Form::Left => needed,
            Form::Constant => needed.difference(self.kills & Set::general(u16::MAX)),
            Form::Folded => needed.difference(self.kills) | self.reads,
        };
        before | self.member.unwinding
    }
}

/// The instructions of a version, and what is needed at its blocks.
#[derive(Debug, Default)]
pub struct Plan {
    /// The choices for each node.
    pub choices: Vec<Vec<Choice>>,
    /// The set that is needed at the beginning of each node.
    pub needed: Vec<Set>,
}

impl Plan {
    /// Decides what each instruction may become, and what is needed.
    pub fn new(code: &Code, graph: &Graph, evaluator: &mut Evaluator<'_>) -> Self {
        let mut info = InstructionInfoFactory::new();
        let choices = graph.nodes.iter().map(|node| {
            let (mut state, block) = (node.state.clone(), &code.blocks[node.block]);
            let mut all = Vec::new();
            for (number, member) in block.members.iter().enumerate() {
                let before = state.clone();
                evaluator.step(&member.instruction, &mut state);
                let ends = number + 1 == block.members.len();
                let end = ends.then_some(node.end);
                all.push(choice(member, (&before, &state), end, evaluator, &mut info));
            }
            all
        });
        let choices: Vec<Vec<Choice>> = choices.collect();
        let mut plan = Self { needed: vec![Set::NONE; choices.len()], choices };
        plan.solve(code, graph);
        plan
    }

    /// Returns what is needed behind a node.
    pub fn needed_behind(&self, code: &Code, node: &Node) -> Set {
        let at = |to: To| match to {
            To::Node(node) => self.needed[node],
            To::Program(address) => code.live_on_way(node.block, address),
        };
        match node.end {
            // The last instruction says what is needed before it.
            End::Leaves => Set::NONE,
            End::Goes(to) | End::Returns(to) => at(to),
            End::Branches(to, otherwise) => at(to) | at(otherwise),
        }
    }

    /// Finds the least sets, which only grow.
    fn solve(&mut self, code: &Code, graph: &Graph) {
        let mut changes = true;
        while changes {
            changes = false;
            for (at, node) in graph.nodes.iter().enumerate().rev() {
                let mut needed = self.needed_behind(code, node);
                for choice in self.choices[at].iter().rev() {
                    needed = choice.before(needed);
                }
                let block = &code.blocks[node.block];
                if block.returned_to {
                    // Return addresses are taken back to the function.
                    needed |= code.live_at(block.start);
                }
                changes |= needed != self.needed[at];
                self.needed[at] |= needed;
            }
        }
    }
}

/// Decides what an instruction may become; `end` is that of its block, if it is the last one.
fn choice(
    member: &Member,
    (before, after): (&State, &State),
    end: Option<End>,
    evaluator: &Evaluator<'_>,
    info: &mut InstructionInfoFactory,
) -> Choice {
    let one = &member.instruction;
    let constants = evaluator.constants();
    let jumps = one.op0_kind() == OpKind::NearBranch64 || is_jump(one);
    let (pure, leaves, folds) = match end {
        // The jump becomes a part of the way to what follows.
        Some(End::Goes(_)) if jumps => (true, false, false),
        Some(End::Leaves | End::Returns(_)) => (false, true, !jumps),
        Some(End::Branches(..)) => (false, false, false),
        Some(End::Goes(_)) | None => (fold::is_pure(one, before, constants), false, true),
    };
    let folded = if folds { fold::folded(one, before, constants) } else { *one };
    let original = effects(info, one);
    let (kills, writes) = (Set::of(&original.kills), Set::of(&original.writes));
    let constant = fold::constant(one, after).filter(|constant| {
        let target = constant.op0_register().full_register().number();
        let only = writes.difference(Set::flags(u8::MAX)) == Set::general(1 << target);
        pure && folds && only
    });
    let reads = Set::of(&effects(info, &folded).reads);
    Choice { member: *member, folded, constant, pure, reads, kills, writes, leaves }
}

fn is_jump(one: &Instruction) -> bool {
    matches!(
        one.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::IndirectBranch
    )
}
