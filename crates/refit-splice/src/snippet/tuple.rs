//! Writes the code that stores a key of several items, and finds its number.

use std::sync::Arc;

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::intern::{self, Finding, MIX};
use super::item::Item;
use super::search::COMPARED;
use super::writer::{Label, Writer};
use crate::why::Why;

impl Writer<'_> {
    /// Leaves the number of a key in `number`, the second scratch register; 0 if there was no room.
    /// Jumps if an item cannot be read. Changes the first four scratch registers.
    pub(super) fn tuple(
        &mut self,
        items: &Arc<[Item]>,
        number: Register,
        nowhere: Label,
    ) -> Result<(), Why> {
        let Some(store) = self.setting.tuples else {
            let reason = "the plan has no store for keys of several items".to_owned();
            return Err(Why::Generate { address: self.address, reason });
        };
        let words: usize = items.iter().map(Item::words).sum();
        self.gather(items, 0, words, nowhere)?;
        let (other, place, left) = (self.scratch(0), self.scratch(2), self.scratch(3));
        let left = left.full_register32();
        self.hash_gathered(words, number, other, place)?;
        let (found, new, done) = (self.label(), self.label(), self.label());
        let registers = Finding { hash: number, place, other, left };
        self.find_place(store, registers, found, new)?;
        let none = number.full_register32();
        self.put(Instruction::with2(Code::Xor_r32_rm32, none, none))?;
        self.jump(Code::Jmp_rel32_64, done)?;
        self.bind(new);
        self.store_gathered(words, place, other)?;
        self.complete(place)?;
        self.bind(found);
        self.number_of(store, place, number, other)?;
        self.bind(done);
        self.deepen(-(words as i64) * 8)
    }

    /// Hashes the words on the stack.
    fn hash_gathered(
        &mut self,
        words: usize,
        hash: Register,
        mix: Register,
        index: Register,
    ) -> Result<(), Why> {
        let again = self.label();
        let word = MemoryOperand::with_base_index_scale(Register::RSP, index, 8);
        let narrow = index.full_register32();
        self.put(Instruction::with2(Code::Mov_r64_imm64, mix, MIX))?;
        self.copy(hash, mix)?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, narrow, narrow))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, word))?;
        self.mix(hash, COMPARED, mix)?;
        self.put(Instruction::with1(Code::Inc_rm32, narrow))?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm32, narrow, words as i32))?;
        self.jump(Code::Jb_rel32_64, again)
    }

    /// Copies the words on the stack to a place of the store.
    fn store_gathered(
        &mut self,
        words: usize,
        place: Register,
        index: Register,
    ) -> Result<(), Why> {
        let again = self.label();
        let word = |base: Register, offset: i64| {
            MemoryOperand::with_base_index_scale_displ_size(base, index, 8, offset, 1)
        };
        let narrow = index.full_register32();
        self.put(Instruction::with2(Code::Xor_r32_rm32, narrow, narrow))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, word(Register::RSP, 0)))?;
        let stored = word(place, intern::FIRST as i64);
        self.put(Instruction::with2(Code::Mov_rm64_r64, stored, COMPARED))?;
        self.put(Instruction::with1(Code::Inc_rm32, narrow))?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm32, narrow, words as i32))?;
        self.jump(Code::Jb_rel32_64, again)
    }
}
