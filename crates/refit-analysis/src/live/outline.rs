//! Outline of a function for liveness: its blocks, the registers that they read and overwrite, and
//! their callees.

use iced_x86::InstructionInfoFactory;

use super::effect::{Effect, effect};
use super::set::{Set, abi};
use crate::flow::build::Shape;
use crate::flow::exits::{self, Exit, exit_of};
use crate::flow::walk::Walk;
use crate::flow::world::World;
use crate::flow::{Edge, EdgeKind, Target};
use crate::functions::{Convention, FunctionId};

/// The callee of the call at the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee {
    /// The block ends with no call.
    None,
    /// A function of this module.
    Known(FunctionId),
    /// A function that follows the ABI.
    Abi,
    /// A function that may follow no convention.
    Anybody,
}

/// Ways out of a function, as bits.
pub(crate) mod way {
    /// Returns to the caller.
    pub(crate) const CALLER: u8 = 1;
    /// Tail call of a function that follows the ABI.
    pub(crate) const ELSEWHERE: u8 = 2;
    /// To an unknown place.
    pub(crate) const UNKNOWN: u8 = 4;
    /// Faults, or calls a function that never returns: only the unwinder and handlers see the
    /// registers.
    pub(crate) const NOWHERE: u8 = 8;
}

/// A basic block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) reads: Set,
    pub(crate) kills: Set,
    pub(crate) callee: Callee,
    /// Bits of [`way`].
    pub(crate) ways: u8,
    /// Position and number of the blocks that come next.
    next: (u32, u32),
    /// The same for landing pads, and for functions that are entered by tail calls.
    pads: (u32, u32),
    tails: (u32, u32),
}

/// The outline of a function.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) nodes: Vec<Node>,
    links: Vec<u32>,
    /// Index of the block of the entry.
    pub(crate) entry: u32,
    pub(crate) convention_go: bool,
    /// Registers and flags that its instructions change, without its callees.
    pub(crate) writes: Set,
    /// Whether a jump was not understood.
    pub(crate) unknown: bool,
    /// Functions that it jumps to or calls past their entry.
    pub(crate) disturbs: Vec<FunctionId>,
}

impl Outline {
    /// Returns the blocks that come after `node`.
    pub(crate) fn next(&self, node: &Node) -> &[u32] {
        &self.links[node.next.0 as usize..][..node.next.1 as usize]
    }

    /// Returns the landing pads of the call at the end of `node`.
    pub(crate) fn pads(&self, node: &Node) -> &[u32] {
        &self.links[node.pads.0 as usize..][..node.pads.1 as usize]
    }

    /// Returns the functions that `node` enters by tail calls.
    pub(crate) fn tails(&self, node: &Node) -> impl Iterator<Item = FunctionId> + '_ {
        self.links[node.tails.0 as usize..][..node.tails.1 as usize].iter().map(|f| FunctionId(*f))
    }

    /// Returns the functions that are called or jumped to.
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

/// Builds the outline of function `id`.
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

/// Returns the functions that a block enters past their entry.
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
    // A call of a part of the function itself does not concern its callers, but code that returns
    // there does.
    entered.filter(|other| *other != id || call.is_some()).collect()
}

fn callee(world: &World, last: &iced_x86::Instruction) -> Callee {
    match exit_of(last) {
        Exit::Call(target) => world.entered_at(target).map_or(Callee::Anybody, Callee::Known),
        Exit::CallIndirect => indirect(world, last),
        _ => Callee::None,
    }
}

/// Returns the callee of an indirect call. Nearly all of them follow the ABI. A resolver of
/// thread-local storage (`call *(%rax)`) and the hooks of profilers preserve all registers; they
/// count as reading everything, so that nothing is dead across them.
fn indirect(world: &World, call: &iced_x86::Instruction) -> Callee {
    let name = exits::import(world.image, call);
    let hook = name.is_some_and(exits::is_hook);
    let through_rax = call.op0_kind() == iced_x86::OpKind::Memory
        && call.memory_base() == iced_x86::Register::RAX
        && call.memory_index() == iced_x86::Register::None
        && call.memory_displacement64() == 0;
    if hook || through_rax { Callee::Anybody } else { Callee::Abi }
}

/// The effect of a function on live sets, its callees included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Summary {
    /// Live at its entry, whatever its caller needs later.
    pub(crate) reads: Set,
    /// The part of its caller's later needs that the function may preserve.
    pub(crate) keeps: Set,
}

impl Summary {
    /// Summary of a function that follows the ABI.
    pub(crate) const ABI: Self = Self { reads: abi::READ, keeps: abi::PRESERVED };
    /// Summary of an unknown function.
    pub(crate) const ANY: Self = Self { reads: Set::ALL, keeps: Set::ALL };
}
