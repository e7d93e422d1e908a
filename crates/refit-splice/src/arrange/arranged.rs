//! An arrangement, decoded and with its gates.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::arrangement::{Alignment, ArrangedBlock, ArrangedCall, ArrangedTable, Arrangement};
use super::gates;
use crate::body::{Body, Kind, Member};
use crate::why::Why;

/// An arrangement that can be written.
#[derive(Debug)]
pub(crate) struct Arranged {
    pub(crate) functions: Vec<Function>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) tables: Vec<ArrangedTable>,
    pub(crate) calls: Vec<ArrangedCall>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) body: Arc<Body>,
    pub(crate) members: Vec<Member>,
    /// Where a jump leads to the copy of the instruction.
    pub(crate) gates: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) function: usize,
    /// Its instructions, as indices.
    pub(crate) members: Range<usize>,
    pub(crate) alignment: Option<Alignment>,
}

impl Arranged {
    /// Decides how an arrangement is written. Also returns the functions that are left out, by
    /// their indices.
    pub(crate) fn new(arrangement: Arrangement) -> (Self, Vec<(usize, Why)>) {
        let (mut refused, mut functions) = (Vec::new(), Vec::new());
        let mut indices = vec![None; arrangement.functions.len()];
        let mut blocks = vec![Vec::new(); arrangement.functions.len()];
        for block in &arrangement.blocks {
            blocks[block.function].push(block);
        }
        for (index, body) in arrangement.functions.into_iter().enumerate() {
            match Function::new(body, &blocks[index]) {
                Ok(function) => {
                    indices[index] = Some(functions.len());
                    functions.push(function);
                }
                Err(why) => refused.push((index, why)),
            }
        }
        let mut seen = BTreeSet::new();
        let there = |block: &ArrangedBlock| {
            let function = indices[block.function]?;
            let members = gates::within(&functions[function].members, &block.addresses);
            let own = &functions[function].members[members.clone()];
            // No instruction is copied twice, nor one that overlaps another.
            let new = own.iter().all(|member| seen.insert(member.instruction.ip()));
            let alignment = block.alignment;
            (new && can_move(own)).then_some(Block { function, members, alignment })
        };
        let blocks = arrangement.blocks.iter().filter_map(there).collect();
        let (tables, calls) = (arrangement.tables, arrangement.calls);
        (Self { functions, blocks, tables, calls }, refused)
    }

    pub(crate) fn line(&self) -> String {
        let (functions, blocks) = (self.functions.len(), self.blocks.len());
        let gates: usize = self.functions.iter().map(|function| function.gates.len()).sum();
        format!("copies of {blocks} blocks of {functions} functions, {gates} places changed")
    }

    /// Returns the instructions of a block.
    pub(crate) fn members(&self, block: &Block) -> &[Member] {
        &self.functions[block.function].members[block.members.clone()]
    }
}

/// Whether the instructions of a block can run in a copy. The kernel makes an interrupted system
/// call again by stepping back to it, and the address of a trap tells what happened.
fn can_move(block: &[Member]) -> bool {
    let moves = |member: &Member| matches!(member.kind, Kind::Plain | Kind::Call);
    let follows = |pair: &[Member]| pair[0].instruction.next_ip() == pair[1].instruction.ip();
    !block.is_empty() && block.iter().all(moves) && block.windows(2).all(follows)
}

impl Function {
    fn new(body: Arc<Body>, blocks: &[&ArrangedBlock]) -> Result<Self, Why> {
        let members = body.members()?;
        let gates = gates::find(&body, &members, blocks)?;
        Ok(Self { body, members, gates })
    }
}
