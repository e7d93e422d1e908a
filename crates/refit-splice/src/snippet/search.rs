//! Finds the entry of a key in a table, by open addressing without removal. The first word of an
//! entry is its key (0: free). The first thread that needs the entry sets the word, by
//! compare-exchange, and it never changes afterwards, so a key that was found in a table is found
//! there again.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::step::PROBES;
use super::writer::{Label, Writer};
use crate::why::Why;

/// A table, and the registers that a search in it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Holds the key.
    pub(super) key: Register,
    /// Receives the entry's address, less `table`.
    pub(super) place: Register,
    /// Holds the address that `table` is relative to; may be the same register as `left`.
    pub(super) base: Register,
    /// Counts the remaining probes.
    pub(super) left: Register,
    /// Offset of the first entry from the base, in bytes.
    pub(super) table: i64,
    /// Number of entries over which keys are spread: a power of two. [`PROBES`] more follow them.
    pub(super) entries: u32,
    /// Bytes of an entry.
    pub(super) bytes: u32,
    /// Whether a missing entry is made.
    pub(super) makes: bool,
}

/// The register that `lock cmpxchg` compares with.
pub(super) const COMPARED: Register = Register::RAX;

impl Writer<'_> {
    /// Computes where a search begins, by hashing the key.
    pub(super) fn spread(&mut self, search: Search) -> Result<(), Why> {
        let Search { key, place, .. } = search;
        // Works for thread ids and addresses alike: the upper half of a product with an odd number
        // mixes all lower bits.
        self.put(Instruction::with3(Code::Imul_r64_rm64_imm32, place, key, 0x5bd1_e995))?;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, place, 20))?;
        let mask = search.entries as i32 - 1;
        self.put(Instruction::with2(Code::And_rm32_imm32, place.full_register32(), mask))?;
        if search.bytes.is_power_of_two() {
            let shift = search.bytes.trailing_zeros();
            return self.put(Instruction::with2(Code::Shl_rm64_imm8, place, shift));
        }
        let bytes = search.bytes as i32;
        self.put(Instruction::with3(Code::Imul_r64_rm64_imm32, place, place, bytes))
    }

    /// Searches from there on, and jumps to `found`; to `absent` if there is no entry and none is
    /// made. Falls through if the table is full.
    pub(super) fn search(
        &mut self,
        search: Search,
        found: Label,
        absent: Label,
    ) -> Result<(), Why> {
        let Search { key, place, .. } = search;
        let (again, next) = (self.label(), self.label());
        self.put(Instruction::with2(Code::Add_r64_rm64, place, search.base))?;
        let left = search.left.full_register32();
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, PROBES))?;
        self.bind(again);
        let word = MemoryOperand::with_base_displ(place, search.table);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, word))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, key))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.put(Instruction::with2(Code::Test_rm64_r64, COMPARED, COMPARED))?;
        self.jump(Code::Jne_rel32_64, next)?;
        if search.makes {
            self.put_locked(Instruction::with2(Code::Cmpxchg_rm64_r64, word, key))?;
            self.jump(Code::Je_rel32_64, found)?;
            // Another thread was first, perhaps with the same key.
            self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, key))?;
            self.jump(Code::Je_rel32_64, found)?;
        } else {
            self.jump(Code::Jmp_rel32_64, absent)?;
        }
        self.bind(next);
        self.put(Instruction::with2(Code::Add_rm64_imm32, place, search.bytes as i32))?;
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Jne_rel32_64, again)
    }
}
