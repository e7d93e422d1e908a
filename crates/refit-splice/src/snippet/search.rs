//! How the entry of a key is found in a table: open addressing without removal. An entry's first word is its key (0: free), set once by
//! whoever is first, by compare-exchange; a place that is taken stays taken by that key, so a key that was found in a table is
//! found there again.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::step::PROBES;
use super::writer::{Label, Writer};
use crate::why::Why;

/// A table, and the registers that a search in it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Holds the key.
    pub(super) key: Register,
    /// Will hold the entry's place, less `table`.
    pub(super) place: Register,
    /// Holds the address that `table` begins behind, which may be `left`.
    pub(super) base: Register,
    /// Counts the places to look at yet.
    pub(super) left: Register,
    /// Bytes from the base to the first entry.
    pub(super) table: i64,
    /// Entries that keys are spread over: a power of two. Behind them there are [`PROBES`] more.
    pub(super) entries: u32,
    /// Bytes of an entry.
    pub(super) bytes: u32,
    /// Whether an entry is made if there is none.
    pub(super) makes: bool,
}

/// `lock cmpxchg` compares with it.
pub(super) const COMPARED: Register = Register::RAX;

impl Writer<'_> {
    /// Where a search begins: spreads the key over the table.
    pub(super) fn spread(&mut self, search: Search) -> Result<(), Why> {
        let Search { key, place, .. } = search;
        // Numbers of threads and addresses alike: the upper half of a product with an odd number mixes all lower bits.
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

    /// Looks for the entry from there on, and jumps to `found`; to `absent` if there is none and none is made. Behind this stands what is
    /// done if there is no room.
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
            // Somebody was first: perhaps with the same key.
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
