//! Control flow of one function: instructions, basic blocks, edges.

pub(crate) mod build;
mod entered;
pub(crate) mod exits;
mod graph;
mod jump_table;
pub(crate) mod text;
mod trace;
pub(crate) mod traverse;
mod value_range;
pub(crate) mod walk;
pub(crate) mod world;

pub use entered::constant_read;
pub(crate) use entered::entered;
pub use exits::{imported, slot, stub_slot};
pub use graph::{Block, Edge, EdgeKind, Instruction, JumpTable, Marks, Target};

pub use trace::is_immediate;

use graph::LONGEST;

use crate::functions::FunctionId;
use crate::registers::Live;

/// Control flow of one function, with the live set before each instruction.
#[derive(Debug, Clone)]
pub struct Flow {
    pub(crate) function: FunctionId,
    pub(crate) instructions: Vec<Instruction>,
    /// Indices of instructions, block by block.
    pub(crate) order: Vec<u32>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) live: Vec<Live>,
    pub(crate) tables: Vec<JumpTable>,
    pub(crate) targets_known: bool,
}

impl Flow {
    /// Returns the function.
    pub fn function(&self) -> FunctionId {
        self.function
    }

    /// Returns all instructions by ascending address; those marked [`Marks::OVERLAPPED`] overlap
    /// others.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns all blocks by ascending start.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns all edges, by the block that they leave.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the table of the jump at an address, if it has one, and no other one.
    pub fn table_of(&self, jump: u64) -> Option<&JumpTable> {
        self.tables.iter().find(|table| table.jump == jump)
    }

    /// Whether the targets of all jumps are known, so that control within the function reaches only
    /// the instructions listed here.
    pub fn targets_known(&self) -> bool {
        self.targets_known
    }

    /// Returns the live set before the instruction at `address`; everything if none begins there.
    pub fn live_before(&self, address: u64) -> Live {
        self.index_of(address).map_or(Live::ALL, |i| self.live[i])
    }

    /// Returns the instruction that begins at `address`.
    pub fn instruction_at(&self, address: u64) -> Option<&Instruction> {
        self.index_of(address).map(|i| &self.instructions[i])
    }

    /// Returns the block that has an instruction at `address`, or else one that contains the byte
    /// at `address`.
    pub fn block_at(&self, address: u64) -> Option<(u32, &Block)> {
        let next = self.blocks.partition_point(|b| b.start <= address);
        let mut containing = None;
        // Blocks overlap where instructions do: prefer the one in which an instruction begins
        // there.
        for i in (0..next).rev() {
            let block = &self.blocks[i];
            if block.end <= address {
                // Blocks further down overlap this one at most, and so do not reach `address`.
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

    /// Returns where blocks begin that are entered other than by falling through, and those that
    /// begin within an instruction.
    pub fn entered(&self) -> impl Iterator<Item = u64> + '_ {
        entered(&self.blocks, &self.edges, |address| self.instruction_at(address).is_some())
    }

    /// Returns the edges that leave a block.
    pub fn edges_from(&self, block: u32) -> &[Edge] {
        let first = self.edges.partition_point(|e| e.from < block);
        let last = self.edges.partition_point(|e| e.from <= block);
        &self.edges[first..last]
    }

    /// Returns the instructions of a block, in the order in which they run.
    pub fn block_instructions(&self, block: &Block) -> impl Iterator<Item = &Instruction> {
        let order = &self.order[block.first as usize..(block.first + block.count) as usize];
        order.iter().map(|i| &self.instructions[*i as usize])
    }

    fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, |i| i.address).ok()
    }
}
