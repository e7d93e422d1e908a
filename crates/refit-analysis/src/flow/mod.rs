//! Control flow of one function: instructions, basic blocks, edges.

pub(crate) mod build;
pub(crate) mod exits;
mod graph;
mod jump_table;
pub(crate) mod text;
mod trace;
pub(crate) mod traverse;
mod value_range;
pub(crate) mod walk;
pub(crate) mod world;

pub use exits::{slot, stub_slot};
pub use graph::{Block, Edge, EdgeKind, Instruction, Marks, Target};

use graph::LONGEST;

use crate::functions::FunctionId;
use crate::registers::Live;

/// Control flow of one function, and what is live in it.
#[derive(Debug, Clone)]
pub struct Flow {
    pub(crate) function: FunctionId,
    pub(crate) instructions: Vec<Instruction>,
    /// Indices of instructions, block by block.
    pub(crate) order: Vec<u32>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) live: Vec<Live>,
    pub(crate) targets_known: bool,
}

impl Flow {
    /// Whose flow it is.
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// All instructions by ascending address; some overlap where [`Marks::OVERLAPPED`] says so.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// All blocks by ascending start.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// All edges, by the block that they leave.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Whether the targets of all its jumps are known, so that nothing but what is here can be reached within it.
    pub fn targets_known(&self) -> bool {
        self.targets_known
    }

    /// What is live before the instruction at `address`; everything where none begins.
    pub fn live_before(&self, address: u64) -> Live {
        self.index_of(address).map_or(Live::ALL, |i| self.live[i])
    }

    /// The instruction that begins at `address`.
    pub fn instruction_at(&self, address: u64) -> Option<&Instruction> {
        self.index_of(address).map(|i| &self.instructions[i])
    }

    /// The block in which an instruction begins at `address`, or else whose bytes `address` is among.
    pub fn block_at(&self, address: u64) -> Option<(u32, &Block)> {
        let next = self.blocks.partition_point(|b| b.start <= address);
        let mut containing = None;
        // Blocks overlap where instructions do: the one in which an instruction begins there is meant.
        for i in (0..next).rev() {
            let block = &self.blocks[i];
            if block.end <= address {
                // Only what overlaps this one can still reach so far.
                if containing.is_some() || block.end + LONGEST < address {
                    break;
                }
                continue;
            }
            if self.block_instructions(block).any(|n| n.address == address) {
                return Some((i as u32, block));
            }
            containing.get_or_insert((i as u32, block));
        }
        containing
    }

    /// Edges that leave a block.
    pub fn edges_from(&self, block: u32) -> &[Edge] {
        let first = self.edges.partition_point(|e| e.from < block);
        let last = self.edges.partition_point(|e| e.from <= block);
        &self.edges[first..last]
    }

    /// Instructions of a block, in the order they run.
    pub fn block_instructions(&self, block: &Block) -> impl Iterator<Item = &Instruction> {
        let order = &self.order[block.first as usize..(block.first + block.count) as usize];
        order.iter().map(|i| &self.instructions[*i as usize])
    }

    fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, |i| i.address).ok()
    }
}
