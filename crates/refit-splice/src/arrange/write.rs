//! Writes the instructions of an arrangement.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Code, FlowControl, Instruction, OpKind};

use super::arranged::{Arranged, Block};
use crate::body::{Kind, Member, has_no_long_form};
use crate::listing::{COPY_LABELS, Listing};
use crate::relocate::made;
use crate::why::Why;

/// The instructions of an arrangement, and what they stand for.
pub(super) struct Written {
    pub(super) code: Listing,
    /// Positions of the copies of instructions, with the addresses of the originals.
    pub(super) places: Vec<(u64, usize)>,
    /// Positions of jumps to what follows an instruction, with the address of what follows.
    pub(super) jumps: Vec<(u64, usize)>,
    /// Positions at which threads continue that are at jumps without a copy: these lead to what
    /// follows.
    pub(super) left_out: Vec<(u64, usize)>,
    /// Where the copies of the parts of functions begin: function, position.
    pub(super) runs: Vec<(usize, usize)>,
}

/// Writes the instructions of an arrangement. `tables` has the distances of the copies of jump
/// tables from the tables, by the addresses of the loads of their entries.
///
/// # Errors
/// [`Why::Generate`].
pub(super) fn write(arranged: &Arranged, tables: &HashMap<u64, i64>) -> Result<Written, Why> {
    let mut writer = Writer::new(arranged, tables);
    for (number, block) in arranged.blocks.iter().enumerate() {
        let next = arranged.blocks.get(number + 1);
        let next = next.and_then(|next| arranged.members(next).first());
        writer.block(block, next.map(|one| one.instruction.ip()))?;
    }
    Ok(writer.written)
}

struct Writer<'a> {
    arranged: &'a Arranged,
    /// Labels of the copies to which branches and calls lead, by the addresses of the originals.
    labels: HashMap<u64, u64>,
    tables: &'a HashMap<u64, i64>,
    written: Written,
}

impl<'a> Writer<'a> {
    fn new(arranged: &'a Arranged, tables: &'a HashMap<u64, i64>) -> Self {
        let mut targets = BTreeSet::new();
        for block in &arranged.blocks {
            for member in arranged.members(block) {
                targets.extend(target(&member.instruction));
            }
            targets.extend(arranged.members(block).last().map(|one| one.instruction.next_ip()));
        }
        let members = arranged.blocks.iter().flat_map(|block| arranged.members(block));
        let copied = members.map(|member| member.instruction.ip());
        let labels =
            copied.filter(|address| targets.contains(address)).zip(COPY_LABELS..).collect();
        let written = Written {
            code: Listing::default(),
            places: Vec::new(),
            jumps: Vec::new(),
            left_out: Vec::new(),
            runs: Vec::new(),
        };
        Self { arranged, labels, tables, written }
    }

    /// Writes a block; `next` is the address of the one whose copy follows.
    fn block(&mut self, block: &Block, next: Option<u64>) -> Result<(), Why> {
        if self.written.runs.last().is_none_or(|&(function, _)| function != block.function) {
            self.written.runs.push((block.function, self.written.code.len()));
        }
        let arranged = self.arranged;
        let members = arranged.members(block);
        let Some((last, others)) = members.split_last() else { return Ok(()) };
        for member in others {
            self.begin(member);
            if !member.is_landing() {
                self.place(member.instruction.ip());
                self.copy(member, target(&member.instruction));
            }
        }
        self.begin(last);
        self.last(last, next)
    }

    /// Says what the next instruction stands for, and binds its label.
    fn begin(&mut self, member: &Member) {
        let address = member.instruction.ip();
        self.written.code.stand_for(address);
        if let Some(&label) = self.labels.get(&address) {
            let mut here = Instruction::with(Code::Zero_bytes);
            here.set_ip(label);
            self.written.code.push(here);
        }
    }

    /// Records that the next instruction is the copy of one.
    fn place(&mut self, address: u64) {
        let position = self.written.code.len();
        self.written.places.push((address, position));
    }

    /// Writes the last instruction of a block, such that what followed it follows.
    fn last(&mut self, member: &Member, next: Option<u64>) -> Result<(), Why> {
        let instruction = &member.instruction;
        let (address, behind) = (instruction.ip(), instruction.next_ip());
        let goes = target(instruction).filter(|_| member.kind == Kind::Plain);
        if goes.is_some() && goes == next {
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch => {
                    let position = self.written.code.len();
                    self.written.left_out.push((address, position));
                    return Ok(());
                }
                _ if instruction.code().is_jcc_short_or_near() => {
                    let mut inverse = *instruction;
                    inverse.negate_condition_code();
                    self.place(address);
                    self.copy(&Member { instruction: inverse, ..*member }, Some(behind));
                    return Ok(());
                }
                _ => {}
            }
        }
        if !member.is_landing() {
            self.place(address);
            self.copy(member, target(instruction));
        }
        // A call that does not return has a return address as well, and no other copy's.
        let goes_on = member.goes_on() || member.kind == Kind::Call;
        if goes_on && next != Some(behind) {
            self.written.code.stand_after(&[*instruction]);
            let position = self.written.code.len();
            self.written.jumps.push((behind, position));
            let to = self.label(behind);
            let jump = Instruction::with_branch(Code::Jmp_rel32_64, to);
            self.written.code.push(made(address, jump)?);
        }
        Ok(())
    }

    /// Writes an instruction so that it has the same effect at any address; a branch or call leads
    /// to `to`.
    fn copy(&mut self, member: &Member, to: Option<u64>) {
        let mut copy = member.instruction;
        if let Some(&distance) = self.tables.get(&copy.ip()) {
            copy.set_memory_displacement64(
                copy.memory_displacement64().wrapping_add_signed(distance),
            );
            // The encoder takes four bytes.
            copy.set_memory_displ_size(8);
        }
        copy.set_ip(0);
        if let Some(to) = to {
            if has_no_long_form(&copy) {
                // The jump may be encoded as several instructions, and then has no offset of its
                // own, so a `nop` marks its position.
                self.written.code.push(Instruction::with(Code::Nopd));
            }
            copy.set_near_branch64(self.label(to));
        }
        self.written.code.push(copy);
    }

    /// Returns the label of the copy of the instruction at `address`, or the address itself if it
    /// has no copy.
    fn label(&self, address: u64) -> u64 {
        self.labels.get(&address).copied().unwrap_or(address)
    }
}

/// Returns where a direct jump or call leads.
fn target(instruction: &Instruction) -> Option<u64> {
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch_target())
}
