//! Writes records into the instruments' buffers from the program itself. The code does in machine
//! instructions what `Ring::write` of refit-instruments does.
//!
//! The stores are in program order, which is all that x86-64 needs for a Release, and any load is
//! an Acquire; the compare-exchange is a full barrier. If the ring has no free slot, or is closed,
//! the record is dropped and counted as lost: the program must never wait for a reader that it does
//! not know.

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use refit_instruments::session::layout::{self, ring};

use super::setting::Rings;
use super::step::Clock;
use super::value::Value;
use super::writer::{Label, Writer};
use crate::why::Why;

const WORD: u64 = 8;

impl Writer<'_> {
    /// Writes a record; `what` is the word of its event and phase.
    pub(super) fn event(
        &mut self,
        what: u32,
        payload: [Option<Value>; 2],
        over: Label,
    ) -> Result<(), Why> {
        let Some(rings) = self.setting.rings else { return Ok(()) };
        let (first, second, thread) = (self.scratch(0), self.scratch(1), self.scratch(2));
        for (value, into) in payload.into_iter().zip([first, second]) {
            match value {
                Some(value) => self.load(value, into, over)?,
                None => {
                    let half = into.full_register32();
                    self.put(Instruction::with2(Code::Xor_r32_rm32, half, half))?;
                }
            }
        }
        self.thread(thread)?;
        let (head, number, slot) = (self.scratch(3), self.scratch(4), self.scratch(5));
        self.ring_of_processor(rings, number, head)?;
        self.reserve(head, number, slot, 1, over)?;
        self.slots_of(rings, head, slot)?;
        self.slot_of(rings, number, slot, slot)?;
        let at = |word: i64| MemoryOperand::with_base_displ(slot, word * WORD as i64);
        let thread_at = MemoryOperand::with_base_displ(slot, 12);
        self.put(Instruction::with2(Code::Mov_rm32_imm32, at(1), what))?;
        self.put(Instruction::with2(Code::Mov_rm32_r32, thread_at, thread.full_register32()))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(2), first))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(3), second))?;
        // The time is stored last: a reader that sees it also sees the other words of the record.
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(0), Register::RDX))
    }

    /// Finds the address of this processor's ring head, in `head`, and its number times the bytes
    /// of a head, in `processor`.
    pub(super) fn ring_of_processor(
        &mut self,
        rings: Rings,
        processor: Register,
        head: Register,
    ) -> Result<(), Why> {
        let narrow = processor.full_register32();
        let known = self.label();
        if self.processor(processor)? {
            let count = rings.geometry.processors as i32;
            self.put(Instruction::with2(Code::Cmp_rm32_imm32, narrow, count))?;
            self.jump(Code::Jb_rel32_64, known)?;
        }
        // If the number of the processor is unknown, any ring will do; this is the first.
        self.put(Instruction::with2(Code::Xor_r32_rm32, narrow, narrow))?;
        self.bind(known);
        let heads = rings.address + rings.geometry.rings_at() as u64 * WORD;
        let bytes = (layout::RING as u64 * WORD) as i32;
        self.put(Instruction::with2(Code::Mov_r64_imm64, head, heads))?;
        self.put(Instruction::with3(Code::Imul_r64_rm64_imm32, processor, processor, bytes))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, head, processor))
    }

    /// Reserves the next `slots` slots: leaves the number of the first in `number`, and in `rdx` a
    /// time at which that number was the next. If they are not free, counts a loss and jumps.
    pub(super) fn reserve(
        &mut self,
        head: Register,
        number: Register,
        next: Register,
        slots: u32,
        over: Label,
    ) -> Result<(), Why> {
        let word = |index: usize| MemoryOperand::with_base_displ(head, (index * 8) as i64);
        let (again, full, taken) = (self.label(), self.label(), self.label());
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, number, word(ring::RESERVED)))?;
        let behind = MemoryOperand::with_base_displ(number, slots.into());
        self.put(Instruction::with2(Code::Lea_r64_m, next, behind))?;
        // The number of a closed ring is beyond any limit: its top bit is set.
        self.put(Instruction::with2(Code::Cmp_r64_rm64, next, word(ring::LIMIT)))?;
        self.jump(Code::Ja_rel32_64, full)?;
        self.time(Clock::Wall)?;
        self.copy(Register::RAX, number)?;
        let exchange = Instruction::with2(Code::Cmpxchg_rm64_r64, word(ring::RESERVED), next);
        self.put_locked(exchange)?;
        self.jump(Code::Jne_rel32_64, again)?;
        self.jump(Code::Jmp_rel32_64, taken)?;
        self.bind(full);
        self.increment(word(ring::LOST))?;
        self.jump(Code::Jmp_rel32_64, over)?;
        self.bind(taken);
        Ok(())
    }

    /// Computes the address of a ring's slots in `first`; changes `head`, the ring's.
    pub(super) fn slots_of(
        &mut self,
        rings: Rings,
        head: Register,
        first: Register,
    ) -> Result<(), Why> {
        let geometry = rings.geometry;
        let heads = rings.address + geometry.rings_at() as u64 * WORD;
        let slots = rings.address + geometry.slots_at() as u64 * WORD;
        // Heads are 256 bytes apart; a ring has as many slots as records.
        let bytes = (layout::RING as u64 * WORD).trailing_zeros();
        let record = (layout::SLOT as u64 * WORD).trailing_zeros();
        self.put(Instruction::with2(Code::Mov_r64_imm64, first, heads))?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, head, first))?;
        let ring_shift = geometry.records.trailing_zeros() + record - bytes;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, head, ring_shift))?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, first, slots))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, first, head))
    }

    /// Computes the address of the slot of a record in `slot`; `first` is that of the ring's slots,
    /// and may be the same register. Changes `number`.
    pub(super) fn slot_of(
        &mut self,
        rings: Rings,
        number: Register,
        first: Register,
        slot: Register,
    ) -> Result<(), Why> {
        let record = (layout::SLOT as u64 * WORD).trailing_zeros();
        let mask = rings.geometry.records as i32 - 1;
        self.put(Instruction::with2(Code::And_rm64_imm32, number, mask))?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, number, record))?;
        if slot != first {
            self.copy(slot, first)?;
        }
        self.put(Instruction::with2(Code::Add_r64_rm64, slot, number))
    }
}
