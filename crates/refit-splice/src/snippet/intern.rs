//! Finds the place of a stack or of a key in a [`Store`], by its hash.
//!
//! # Several threads, and signal handlers
//!
//! A place belongs to the thread that has set its hash by compare-exchange, from 0; the hash never
//! changes afterwards. That thread alone writes the content, and then the word that says that it is
//! complete; `refit` reads the content only if that word is set. x86 does not reorder stores, so no
//! ordering is needed. Other threads use the place by its hash without reading the content. A
//! handler that interrupts the thread in between finds the same place.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::search::COMPARED;
use super::writer::{Label, Writer};
use crate::store::{self, Store};
use crate::why::Why;

/// Offset of the content in a place, in bytes.
pub(super) const FIRST: u64 = store::CONTENT;
/// Mixes a word into a hash, as a factor.
pub(super) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The registers of a search, besides [`COMPARED`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Finding {
    /// Holds the hash; it becomes odd, since 0 marks free places.
    pub(super) hash: Register,
    /// Receives the address of the place.
    pub(super) place: Register,
    /// Holds temporary values.
    pub(super) other: Register,
    /// Counts the remaining probes: a register of 32 bits.
    pub(super) left: Register,
}

impl Writer<'_> {
    /// Mixes the word in `word` into the hash; `mix` holds [`MIX`].
    pub(super) fn mix(&mut self, hash: Register, word: Register, mix: Register) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Xor_r64_rm64, hash, word))?;
        self.put(Instruction::with2(Code::Imul_r64_rm64, hash, mix))?;
        self.put(Instruction::with2(Code::Rol_rm64_imm8, hash, 29))
    }

    /// Jumps to `found` if the store has a place with this hash, and to `new` if this thread has
    /// just claimed one. Falls through if there is no room.
    pub(super) fn find_place(
        &mut self,
        store: Store,
        registers: Finding,
        found: Label,
        new: Label,
    ) -> Result<(), Why> {
        let Finding { hash, place, other, left } = registers;
        let (again, next) = (self.label(), self.label());
        let bytes = store.place_bytes() as i32;
        let word = MemoryOperand::with_base(place);
        self.put(Instruction::with2(Code::Or_rm64_imm8, hash, 1))?;
        self.copy(place, hash)?;
        let shift = u64::BITS - store::PLACES.ilog2();
        self.put(Instruction::with2(Code::Shr_rm64_imm8, place, shift))?;
        self.put(Instruction::with3(Code::Imul_r64_rm64_imm32, place, place, bytes))?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, other, store.at))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, place, other))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, store::PROBES))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, word))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, hash))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.put(Instruction::with2(Code::Test_rm64_r64, COMPARED, COMPARED))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.put_locked(Instruction::with2(Code::Cmpxchg_rm64_r64, word, hash))?;
        self.jump(Code::Je_rel32_64, new)?;
        // Another thread was first, perhaps with the same content.
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, hash))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.bind(next);
        self.put(Instruction::with2(Code::Add_rm64_imm32, place, bytes))?;
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Jne_rel32_64, again)
    }

    /// Says that the content of the place is complete.
    pub(super) fn complete(&mut self, place: Register) -> Result<(), Why> {
        let complete = MemoryOperand::with_base_displ(place, store::COMPLETE as i64);
        self.put(Instruction::with2(Code::Mov_rm64_imm32, complete, 1))
    }

    /// Computes the number of a place.
    pub(super) fn number_of(
        &mut self,
        store: Store,
        place: Register,
        number: Register,
        other: Register,
    ) -> Result<(), Why> {
        self.copy(number, place)?;
        let before = store.at.wrapping_sub(1);
        self.put(Instruction::with2(Code::Mov_r64_imm64, other, before))?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, number, other))
    }
}
