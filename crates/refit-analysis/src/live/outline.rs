//! A function as far as it matters to what is live: blocks with what they read and overwrite, and who they call.

use iced_x86::InstructionInfoFactory;

use super::effect::{Effect, effect};
use super::set::{Set, abi};
use crate::flow::build::Shape;
use crate::flow::exits::{self, Exit, exit_of};
use crate::flow::walk::Walk;
use crate::flow::world::World;
use crate::flow::{Edge, EdgeKind, Target};
use crate::functions::{Convention, FunctionId};

/// Who a block calls at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    /// Nobody.
    None,
    /// A function of this module.
    Known(FunctionId),
    /// Some function that follows the ABI.
    Abi,
    /// Somebody who may follow no convention.
    Anybody,
}

/// Ways out of a function, as bits.
pub(crate) mod way {
    /// Returns.
    pub(crate) const CALLER: u8 = 1;
    /// A tail call of a function that follows the ABI.
    pub(crate) const ELSEWHERE: u8 = 2;
    /// Nobody knows where to.
    pub(crate) const UNKNOWN: u8 = 4;
    /// Faults, or calls who never returns: only the unwinder and handlers see what is left.
    pub(crate) const NOWHERE: u8 = 8;
}

/// A block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) reads: Set,
    pub(crate) kills: Set,
    pub(crate) callee: Callee,
    /// Bits of [`way`].
    pub(crate) ways: u8,
    /// Where the numbers of blocks that come next begin, and how many.
    next: (u32, u32),
    /// The same for landing pads, for functions that are called as tail calls.
    pads: (u32, u32),
    tails: (u32, u32),
}

/// A function.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) nodes: Vec<Node>,
    links: Vec<u32>,
    /// The block of the entry.
    pub(crate) entry: u32,
    pub(crate) convention_go: bool,
    /// What its instructions change, calls not counted.
    pub(crate) writes: Set,
    /// Whether a jump is not understood.
    pub(crate) unknown: bool,
    /// Functions into which it jumps or calls past their entry.
    pub(crate) disturbs: Vec<FunctionId>,
}

impl Outline {
    /// Blocks that come after `node`.
    pub(crate) fn next(&self, node: &Node) -> &[u32] {
        &self.links[node.next.0 as usize..][..node.next.1 as usize]
    }

    /// Landing pads of the call at the end of `node`.
    pub(crate) fn pads(&self, node: &Node) -> &[u32] {
        &self.links[node.pads.0 as usize..][..node.pads.1 as usize]
    }

    /// Functions that `node` goes on in.
    pub(crate) fn tails(&self, node: &Node) -> impl Iterator<Item = FunctionId> + '_ {
        self.links[node.tails.0 as usize..][..node.tails.1 as usize].iter().map(|f| FunctionId(*f))
    }

    /// Functions that are called or jumped to.
    pub(crate) fn callees(&self) -> impl Iterator<Item = FunctionId> + '_ {
        self.nodes.iter().flat_map(|node| {
            let called = match node.callee {
                Callee::Known(id) => Some(id),
                _ => None,
            };
            called.into_iter().chain(self.tails(node))
        })
    }
}

/// The outline of function `id`.
pub(crate) fn outline(
    info: &mut InstructionInfoFactory,
    world: &World,
    id: FunctionId,
    walk: &Walk,
    shape: &Shape,
) -> Outline {
    let function = world.function(id);
    let entry = shape.blocks.binary_search_by_key(&function.entry, |b| b.start).unwrap_or(0);
    let mut outline = Outline {
        entry: entry as u32,
        convention_go: function.convention == Convention::Go,
        ..Outline::default()
    };
    let mut edges = shape.edges.as_slice();
    for (i, block) in shape.blocks.iter().enumerate() {
        let order = &shape.order[block.first as usize..(block.first + block.count) as usize];
        let mut sum = Effect::default();
        for &at in order {
            let one = effect(info, &walk.code[at as usize]);
            sum.reads |= one.reads.without(sum.kills);
            sum.kills |= one.kills;
            sum.writes |= one.writes;
        }
        let last = &walk.code[order[order.len() - 1] as usize];
        let count = edges.iter().take_while(|e| e.from == i as u32).count();
        let (own, rest) = edges.split_at(count);
        edges = rest;
        let mut links = Links::default();
        own.iter().for_each(|edge| links.add(edge.to, edge.kind));
        let callee = callee(world, last);
        outline.disturbs.extend(disturbed(world, id, own, last));
        if own.is_empty() {
            links.ways |= way::NOWHERE;
        }
        outline.writes |= sum.writes;
        outline.unknown |= links.ways & way::UNKNOWN != 0;
        let (next, pads, tails) =
            (outline.push(&links.next), outline.push(&links.pads), outline.push(&links.tails));
        let (reads, kills, ways) = (sum.reads, sum.kills, links.ways);
        outline.nodes.push(Node { reads, kills, callee, ways, next, pads, tails });
    }
    outline
}

impl Outline {
    fn push(&mut self, links: &[u32]) -> (u32, u32) {
        let at = self.links.len() as u32;
        self.links.extend_from_slice(links);
        (at, links.len() as u32)
    }
}

#[derive(Default)]
struct Links {
    next: Vec<u32>,
    pads: Vec<u32>,
    tails: Vec<u32>,
    ways: u8,
}

impl Links {
    fn add(&mut self, to: Target, kind: EdgeKind) {
        match to {
            Target::Block(block) if kind == EdgeKind::Unwind => self.pads.push(block),
            Target::Block(block) => self.next.push(block),
            Target::Function(id) if kind != EdgeKind::Unwind => self.tails.push(id.0),
            Target::Caller => self.ways |= way::CALLER,
            Target::Elsewhere => self.ways |= way::ELSEWHERE,
            Target::Function(_) | Target::Outside(_) | Target::Unknown => self.ways |= way::UNKNOWN,
        }
    }
}

/// Functions that a block enters past their entry.
fn disturbed(
    world: &World,
    id: FunctionId,
    edges: &[Edge],
    last: &iced_x86::Instruction,
) -> Vec<FunctionId> {
    let jumps = edges.iter().filter_map(|edge| match edge.to {
        Target::Outside(address) => Some(address),
        _ => None,
    });
    let call = match exit_of(last) {
        Exit::Call(target) if world.entered_at(target).is_none() => Some(target),
        _ => None,
    };
    let entered = jumps.chain(call).filter_map(|address| world.map.at(address));
    // A call of a part of itself is none of its caller's affair, but what returns there is.
    entered.filter(|other| *other != id || call.is_some()).collect()
}

fn callee(world: &World, last: &iced_x86::Instruction) -> Callee {
    match exit_of(last) {
        Exit::Call(target) => world.entered_at(target).map_or(Callee::Anybody, Callee::Known),
        Exit::CallIndirect => indirect(world, last),
        _ => Callee::None,
    }
}

/// Nearly all that is called through a pointer follows the ABI. A resolver of thread-local storage (`call *(%rax)`) and the
/// hooks of profilers keep all registers; they count as reading everything, so that nothing is dead across them.
fn indirect(world: &World, call: &iced_x86::Instruction) -> Callee {
    let name = exits::import(world.image, call);
    let hook = name.is_some_and(exits::is_hook);
    let through_rax = call.op0_kind() == iced_x86::OpKind::Memory
        && call.memory_base() == iced_x86::Register::RAX
        && call.memory_index() == iced_x86::Register::None
        && call.memory_displacement64() == 0;
    if hook || through_rax { Callee::Anybody } else { Callee::Abi }
}

/// What goes on in functions that are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Summary {
    /// Needed when it is entered, whatever its caller needs later.
    pub(crate) reads: Set,
    /// What its caller needs later and it may leave as it was.
    pub(crate) keeps: Set,
}

impl Summary {
    /// Of a function that follows the ABI.
    pub(crate) const ABI: Self = Self { reads: abi::READ, keeps: abi::PRESERVED };
    /// Of a function of which nothing is known.
    pub(crate) const ANY: Self = Self { reads: Set::ALL, keeps: Set::ALL };
}
