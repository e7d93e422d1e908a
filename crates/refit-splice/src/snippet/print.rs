//! Writes messages into the instruments' buffers: records of several slots, which
//! `refit_instruments::messages::Messages` reads.
//!
//! The slots of a message are reserved together, so they follow each other in the ring of one
//! processor. The first word of a slot is the time, stored last; its lowest bit is set in the first
//! slot of a message, and clear in the others. The second word of the first slot has the number of
//! the message and the thread. All other words are those of the items. What
//! [`event`](super::event) says of the order of stores holds for each slot.

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use refit_instruments::messages::{self, WORDS};

use super::item::Item;
use super::writer::{Label, Writer};
use crate::why::Why;

impl Writer<'_> {
    /// Writes a message; jumps if a value cannot be read.
    pub(super) fn print(&mut self, what: u32, items: &[Item], nowhere: Label) -> Result<(), Why> {
        let Some(rings) = self.setting.rings else { return Ok(()) };
        let slots = messages::slots(items.iter().map(Item::words).sum());
        let words = slots * WORDS;
        self.gather(items, 1, words, nowhere)?;
        let [source, left, next, head, number, first] = [0, 1, 2, 3, 4, 5].map(|n| self.scratch(n));
        self.thread(number)?;
        let stack = |offset: i64| MemoryOperand::with_base_displ(Register::RSP, offset);
        self.put(Instruction::with2(Code::Mov_rm32_imm32, stack(0), what))?;
        self.put(Instruction::with2(Code::Mov_rm32_r32, stack(4), number.full_register32()))?;
        let over = self.label();
        self.ring_of_processor(rings, number, head)?;
        self.reserve(head, number, next, slots as u32, over)?;
        self.slots_of(rings, head, first)?;
        self.copy(source, Register::RSP)?;
        let left = left.full_register32();
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, slots as i32))?;
        self.put(Instruction::with2(Code::Or_rm64_imm8, Register::RDX, 1))?;
        let again = self.label();
        self.bind(again);
        self.copy(next, number)?;
        // The register of the head is free by now.
        let slot = head;
        self.slot_of(rings, next, first, slot)?;
        for word in 0..WORDS as i64 {
            let from = MemoryOperand::with_base_displ(source, word * 8);
            self.put(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, from))?;
            let to = MemoryOperand::with_base_displ(slot, (word + 1) * 8);
            self.put(Instruction::with2(Code::Mov_rm64_r64, to, Register::RAX))?;
        }
        let time = MemoryOperand::with_base(slot);
        self.put(Instruction::with2(Code::Mov_rm64_r64, time, Register::RDX))?;
        self.put(Instruction::with2(Code::And_rm64_imm8, Register::RDX, -2))?;
        self.put(Instruction::with2(Code::Add_rm64_imm8, source, WORDS as i32 * 8))?;
        self.put(Instruction::with1(Code::Inc_rm64, number))?;
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Jne_rel32_64, again)?;
        self.bind(over);
        self.deepen(-(words as i64) * 8)
    }
}
