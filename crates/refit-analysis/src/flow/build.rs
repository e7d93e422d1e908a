//! Builds basic blocks and edges from the result of a traversal.

use iced_x86::{FlowControl, Instruction as Decoded, Mnemonic};

use super::exits::{self, Exit, exit_of};
use super::graph::{Block, Edge, EdgeKind, Instruction, LONGEST, Marks, Target};
use super::walk::{Resolved, Walk};
use super::world::World;

use crate::functions::{Function, FunctionId};

/// Blocks and edges of a function; instructions are indices into [`Walk::code`].
#[derive(Debug)]
pub(crate) struct Shape {
    /// Instructions by ascending address.
    pub(crate) sorted: Vec<u32>,
    /// Instructions block by block.
    pub(crate) order: Vec<u32>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) edges: Vec<Edge>,
}

/// Divides a traversal into blocks and connects them.
pub(crate) fn shape(world: &World, id: FunctionId, walk: &Walk) -> Shape {
    let mut sorted: Vec<u32> = (0..walk.code.len() as u32).collect();
    sorted.sort_unstable_by_key(|i| walk.code[*i as usize].ip());
    let (mut order, mut blocks) = (Vec::with_capacity(sorted.len()), Vec::new());
    for &first in sorted.iter().filter(|i| walk.leader[**i as usize]) {
        let begin = order.len() as u32;
        let mut at = first;
        loop {
            order.push(at);
            let instruction = &walk.code[at as usize];
            if exit_of(instruction) != Exit::Next {
                break;
            }
            match walk.index_of(instruction.next_ip()) {
                Some(next) if !walk.leader[next as usize] => at = next,
                _ => break,
            }
        }
        blocks.push(Block {
            start: walk.code[first as usize].ip(),
            end: walk.code[at as usize].next_ip(),
            first: begin,
            count: order.len() as u32 - begin,
        });
    }
    let mut shape = Shape { sorted, order, blocks, edges: Vec::new() };
    let linker = Linker { world, function: world.function(id), walk, blocks: &shape.blocks };
    let mut edges = Vec::with_capacity(shape.blocks.len() * 3 / 2);
    for (i, block) in shape.blocks.iter().enumerate() {
        let last = shape.order[(block.first + block.count - 1) as usize];
        linker.leave(i as u32, last, &mut edges);
    }
    edges.sort_unstable();
    edges.dedup();
    shape.edges = edges;
    shape
}

struct Linker<'a, 'w> {
    world: &'a World<'w>,
    function: &'a Function,
    walk: &'a Walk,
    blocks: &'a [Block],
}

impl Linker<'_, '_> {
    /// Adds the edges that leave block `from`, whose last instruction is `last`.
    fn leave(&self, from: u32, last: u32, edges: &mut Vec<Edge>) {
        let instruction = &self.walk.code[last as usize];
        let mut add = |to, kind| edges.push(Edge { from, to, kind });
        let next = instruction.next_ip();
        match exit_of(instruction) {
            Exit::Next => add(self.target(next), EdgeKind::Fall),
            Exit::Jump(target) => add(self.target(target), EdgeKind::Jump),
            Exit::Branch(target) => {
                add(self.target(target), EdgeKind::Branch);
                add(self.target(next), EdgeKind::Fall);
            }
            Exit::Call(_) | Exit::CallIndirect => {
                if self.world.comes_back(instruction) {
                    add(self.target(next), EdgeKind::Return);
                }
                if let Exit::Call(target) = exit_of(instruction)
                    && target != self.function.entry
                    && self.function.contains(target)
                {
                    add(self.target(target), EdgeKind::Call);
                }
                self.unwind(instruction, &mut add);
            }
            Exit::JumpIndirect => match self.walk.jumps.get(&last) {
                Some(Resolved::TailCall) => add(Target::Elsewhere, EdgeKind::Jump),
                Some(Resolved::Table { targets, .. }) => {
                    targets.iter().for_each(|t| add(self.target(*t), EdgeKind::Table));
                }
                unknown => {
                    let targets = unknown.map_or(&[][..], Resolved::targets);
                    targets.iter().for_each(|t| add(self.target(*t), EdgeKind::Table));
                    add(Target::Unknown, EdgeKind::Jump);
                }
            },
            Exit::Return => add(Target::Caller, EdgeKind::Jump),
            Exit::Stop => {}
        }
    }

    fn unwind(&self, call: &Decoded, add: &mut impl FnMut(Target, EdgeKind)) {
        if self.walk.pads_unknown {
            add(Target::Unknown, EdgeKind::Unwind);
        } else if let Some(pad) = self.walk.pad_of(call) {
            add(self.target(pad), EdgeKind::Unwind);
        }
    }

    fn target(&self, address: u64) -> Target {
        if let Ok(block) = self.blocks.binary_search_by_key(&address, |b| b.start) {
            return Target::Block(block as u32);
        }
        match self.world.entered_at(address) {
            Some(id) => Target::Function(id),
            None => Target::Outside(address),
        }
    }
}

/// Returns the instructions in their public form, by ascending address.
pub(crate) fn instructions(walk: &Walk, shape: &Shape) -> Vec<Instruction> {
    let mut list: Vec<Instruction> = Vec::with_capacity(shape.sorted.len());
    for &i in &shape.sorted {
        let decoded = &walk.code[i as usize];
        for before in list.iter_mut().rev().take(LONGEST as usize) {
            if before.end() > decoded.ip() {
                before.marks.insert(Marks::OVERLAPPED);
            }
        }
        list.push(Instruction {
            address: decoded.ip(),
            length: decoded.len() as u8,
            marks: marks(decoded),
        });
    }
    list
}

fn marks(decoded: &Decoded) -> Marks {
    let mut marks = Marks::default();
    if decoded.is_ip_rel_memory_operand() {
        marks.insert(Marks::RELATIVE);
    }
    match exit_of(decoded) {
        Exit::Jump(_) | Exit::Branch(_) => marks.insert(Marks::JUMP),
        Exit::Call(_) => marks.insert(Marks::CALL),
        Exit::CallIndirect => {
            marks.insert(Marks::CALL);
            marks.insert(Marks::INDIRECT);
        }
        Exit::JumpIndirect => {
            marks.insert(Marks::JUMP);
            marks.insert(Marks::INDIRECT);
        }
        Exit::Return => marks.insert(Marks::RETURN),
        Exit::Stop => marks.insert(Marks::TRAP),
        Exit::Next => {}
    }
    if exits::is_system_call(decoded) {
        marks.insert(Marks::SYSCALL);
    }
    if decoded.flow_control() == FlowControl::Interrupt {
        marks.insert(Marks::TRAP);
    }
    match decoded.mnemonic() {
        Mnemonic::Endbr64 => marks.insert(Marks::LANDING),
        Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne | Mnemonic::Jrcxz | Mnemonic::Jecxz => {
            marks.insert(Marks::SHORT);
        }
        Mnemonic::Xbegin => marks.insert(Marks::SHORT),
        _ => {}
    }
    marks
}
