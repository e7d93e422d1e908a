//! Writes the instructions of an arrangement.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Code, FlowControl, Instruction, OpKind};

use super::align::{self, NOPS, Padding};
use super::arranged::{Arranged, Block};
use super::arrangement::Callee;
use super::calls::{self, Comparison};
use crate::body::{Kind, Member, has_no_long_form};
use crate::listing::{COPY_LABELS, Listing};
use crate::relocate::made;
use crate::why::Why;

/// The instructions of an arrangement, and what they stand for.
pub(super) struct Written {
    pub(super) code: Listing,
    /// Positions of the copies of instructions, with the addresses of the originals.
    pub(super) places: Vec<(u64, usize)>,
    /// Further positions at which all is as before an instruction, but for what is dead there.
    pub(super) others: Vec<(u64, usize)>,
    /// Positions of jumps to what follows an instruction, with the address of what follows.
    pub(super) jumps: Vec<(u64, usize)>,
    /// Positions at which threads continue that are at jumps without a copy: these lead to what
    /// follows.
    pub(super) left_out: Vec<(u64, usize)>,
    /// Where the copies of the parts of functions begin: function, position.
    pub(super) runs: Vec<(usize, usize)>,
    /// The instructions without bytes before aligned blocks.
    pub(super) paddings: Vec<Padding>,
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
        if arranged.blocks.get(number + 1).is_none_or(|next| next.function != block.function) {
            writer.finish_calls()?;
        }
    }
    Ok(writer.written)
}

struct Writer<'a> {
    arranged: &'a Arranged,
    /// Labels of the copies to which branches and calls lead, by the addresses of the originals.
    labels: HashMap<u64, u64>,
    tables: &'a HashMap<u64, i64>,
    /// The ways of calls, by their addresses.
    calls: HashMap<u64, &'a Callee>,
    /// A label that has not been used yet.
    next_label: u64,
    /// Calls of this function that are compared with further functions.
    unfinished: Vec<Unfinished<'a>>,
    written: Written,
}

/// A call through a pointer that is not to the most frequent target.
struct Unfinished<'a> {
    /// Where control comes from the first comparison.
    label: u64,
    call: Member,
    /// The other functions with which it is compared.
    targets: &'a [u64],
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
        let calls: HashMap<u64, &Callee> =
            arranged.calls.iter().map(|one| (one.address, &one.callee)).collect();
        for callee in calls.values() {
            if let Callee::Likely(functions) = callee {
                targets.extend(functions);
            }
        }
        let members = arranged.blocks.iter().flat_map(|block| arranged.members(block));
        let copied = members.map(|member| member.instruction.ip());
        let labels: HashMap<u64, u64> =
            copied.filter(|address| targets.contains(address)).zip(COPY_LABELS..).collect();
        let next_label = COPY_LABELS + labels.len() as u64;
        let written = Written {
            code: Listing::default(),
            places: Vec::new(),
            others: Vec::new(),
            jumps: Vec::new(),
            left_out: Vec::new(),
            runs: Vec::new(),
            paddings: Vec::new(),
        };
        Self { arranged, labels, tables, calls, next_label, unfinished: Vec::new(), written }
    }

    /// Writes a block; `next` is the address of the one whose copy follows.
    fn block(&mut self, block: &Block, next: Option<u64>) -> Result<(), Why> {
        if self.written.runs.last().is_none_or(|&(function, _)| function != block.function) {
            self.written.runs.push((block.function, self.written.code.len()));
        }
        let arranged = self.arranged;
        let members = arranged.members(block);
        let Some((last, others)) = members.split_last() else { return Ok(()) };
        if let Some(alignment) = block.alignment {
            self.written.paddings.push((self.written.code.len(), alignment));
            self.leave_room(&members[0]);
        }
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

    /// Leaves room for `nop`s, which run before the copy of an instruction; `endbr64` has none.
    fn leave_room(&mut self, before: &Member) {
        let Member { instruction, .. } = before;
        let address = if before.is_landing() { instruction.next_ip() } else { instruction.ip() };
        self.written.code.stand_for(address);
        for _ in 0..NOPS {
            let position = self.written.code.len();
            self.written.others.push((address, position));
            self.written.code.push(align::nothing());
        }
    }

    /// Says what the next instruction stands for, and binds its label.
    fn begin(&mut self, member: &Member) {
        let address = member.instruction.ip();
        self.written.code.stand_for(address);
        if let Some(&label) = self.labels.get(&address) {
            self.bind(label);
        }
    }

    fn bind(&mut self, label: u64) {
        let mut here = Instruction::with(Code::Zero_bytes);
        here.set_ip(label);
        self.written.code.push(here);
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
        match self.calls.get(&address).copied().filter(|_| member.kind == Kind::Call) {
            Some(Callee::Likely(functions)) => self.compare_first(member, functions)?,
            Some(&Callee::Stored(slot)) => {
                self.place(address);
                self.written.code.push(calls::stored(instruction, slot)?);
            }
            None if !member.is_landing() => {
                self.place(address);
                self.copy(member, target(instruction));
            }
            None => {}
        }
        // A call that does not return has a return address as well, and no other copy's.
        let goes_on = member.goes_on() || member.kind == Kind::Call;
        if goes_on && next != Some(behind) {
            self.jump_behind(instruction)?;
        }
        Ok(())
    }

    /// Writes a jump to what follows an instruction.
    fn jump_behind(&mut self, instruction: &Instruction) -> Result<(), Why> {
        let behind = instruction.next_ip();
        self.written.code.stand_after(&[*instruction]);
        let position = self.written.code.len();
        self.written.jumps.push((behind, position));
        let jump = Instruction::with_branch(Code::Jmp_rel32_64, self.label(behind));
        self.written.code.push(made(instruction.ip(), jump)?);
        Ok(())
    }

    /// Writes a call through a pointer, as far as it leads to the most frequent function that has a
    /// copy.
    fn compare_first(&mut self, call: &Member, targets: &'a [u64]) -> Result<(), Why> {
        self.place(call.instruction.ip());
        let first = targets.iter().position(|function| self.labels.contains_key(function));
        let Some(first) = first else {
            self.copy(call, None);
            return Ok(());
        };
        let label = self.new_label();
        self.compare(&call.instruction, targets[first], label)?;
        let targets = &targets[first + 1..];
        self.unfinished.push(Unfinished { label, call: *call, targets });
        Ok(())
    }

    fn compare(&mut self, call: &Instruction, function: u64, other: u64) -> Result<(), Why> {
        let copy = self.label(function);
        let Comparison { load, compare, branch, call: direct } =
            calls::compared(call, function, copy, other)?;
        for one in [load, compare, branch, direct] {
            let position = self.written.code.len();
            self.written.others.push((call.ip(), position));
            self.written.code.push(one);
        }
        Ok(())
    }

    /// Writes the rest of all calls through pointers of a function.
    fn finish_calls(&mut self) -> Result<(), Why> {
        for Unfinished { mut label, call, targets } in std::mem::take(&mut self.unfinished) {
            let address = call.instruction.ip();
            let copied: Vec<u64> =
                targets.iter().copied().filter(|one| self.labels.contains_key(one)).collect();
            for function in copied {
                let other = self.new_label();
                self.written.code.stand_for(address);
                self.bind(label);
                self.compare(&call.instruction, function, other)?;
                self.jump_behind(&call.instruction)?;
                label = other;
            }
            self.written.code.stand_for(address);
            self.bind(label);
            let position = self.written.code.len();
            self.written.others.push((address, position));
            self.copy(&call, None);
            self.jump_behind(&call.instruction)?;
        }
        Ok(())
    }

    fn new_label(&mut self) -> u64 {
        self.next_label += 1;
        self.next_label - 1
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
