//! Finds frame descriptions of patch areas for unwinders. That of GCC's runtime library asks
//! `_Unwind_Find_FDE(pc, bases)` for the description of each frame (`unwind-dw2-fde.h`). From GCC
//! 12 on, this function asks the dynamic loader (glibc 2.35 and later), as LLVM's unwinder does:
//! `_dl_find_object(pc, result)` (`<dlfcn.h>`).
//!
//! The code runs at the entry of one of these functions, where only its two arguments are live, and
//! it may run in a signal handler: it calls nothing, allocates nothing, and reads only what is
//! mapped as long as it is.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::writer::{Label, Writer};
use crate::indices;
use crate::why::Why;

/// Arguments: the address asked for, and where the answer goes.
const COUNTER: Register = Register::RDI;
const RESULT: Register = Register::RSI;
/// Holds the address of an entry of the list.
const ENTRY: Register = Register::R10;

/// Offsets in an entry ([`indices`]).
const BEGIN: i64 = 0;
const LENGTH_OF_CODE: i64 = 8;
const INDEX: i64 = 16;
const LINK_MAP: i64 = 24;

/// Returns the operand of a word of the entry.
fn entry(offset: i64) -> MemoryOperand {
    MemoryOperand::with_base_displ(ENTRY, offset)
}

/// Offsets in an index of the number of its entries, and of the first of them: the distances of a
/// piece of code and of its description, 32 bits each.
const ENTRIES_COUNT: i64 = 8;
const ENTRIES: i64 = 12;
/// Offset in a description of the length of the code.
const LENGTH: i64 = 12;

impl Writer<'_> {
    /// Returns to the caller if a patch area that the list names describes the address; otherwise
    /// falls through, with the arguments unchanged.
    pub(super) fn find_frame(&mut self) -> Result<(), Why> {
        let over = self.label();
        self.find_description(over)?;
        self.plain(Code::Retnq);
        self.bind(over);
        Ok(())
    }

    /// Does the same for a loaded object: returns 0, and stores flags, the range of the code, its
    /// `struct link_map`, and its index (`struct dl_find_object`).
    pub(super) fn find_object(&mut self) -> Result<(), Why> {
        let value = Register::RAX;
        let over = self.label();
        self.find_description(over)?;
        let result = |word: i64| MemoryOperand::with_base_displ(RESULT, word * 8);
        self.put(Instruction::with2(Code::Mov_rm64_imm32, result(0), 0))?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, value, entry(BEGIN)))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, result(1), value))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, value, entry(LENGTH_OF_CODE)))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, result(2), value))?;
        for (word, offset) in [(3, LINK_MAP), (4, INDEX)] {
            self.put(Instruction::with2(Code::Mov_r64_rm64, value, entry(offset)))?;
            self.put(Instruction::with2(Code::Mov_rm64_r64, result(word), value))?;
        }
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX))?;
        self.plain(Code::Retnq);
        self.bind(over);
        Ok(())
    }

    /// Finds the entry of the area that describes the address: it is in the area's code, or at a
    /// jump that leads there. Leaves the address of the description in `rax`, and stores the bases;
    /// jumps if there is none.
    fn find_description(&mut self, none: Label) -> Result<(), Why> {
        let next = self.label();
        let (left, index, distance) = (Register::R11, Register::R8, Register::R9);
        let list = self.setting.indices.cast_signed();
        let list = MemoryOperand::with_base_displ(Register::RIP, list);
        let count = MemoryOperand::with_base(ENTRY);
        self.put(Instruction::with2(Code::Lea_r64_m, ENTRY, list))?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, left, count))?;
        // The entries follow the word with their number.
        self.put(Instruction::with2(Code::Sub_rm64_imm8, ENTRY, indices::BYTES as i32 - 8))?;
        self.bind(next);
        self.put(Instruction::with2(Code::Sub_rm64_imm8, left, 1))?;
        self.jump(Code::Jb_rel32_64, none)?;
        self.put(Instruction::with2(Code::Add_rm64_imm8, ENTRY, indices::BYTES as i32))?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, entry(LENGTH_OF_CODE), 0))?;
        self.jump(Code::Je_rel32_64, next)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, index, entry(INDEX)))?;
        // Distances in an index have 32 bits.
        self.copy(distance, COUNTER)?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, distance, index))?;
        self.put(Instruction::with2(Code::Movsxd_r64_rm32, Register::RCX, Register::R9D))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, Register::RCX, distance))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.find_in_index(index, next)
    }

    /// Finds the description of the address in an index, whose distance from it is in `r9`; jumps
    /// if none covers it.
    fn find_in_index(&mut self, index: Register, none: Label) -> Result<(), Why> {
        let (middle, high, low, sought) =
            (Register::EAX, Register::ECX, Register::EDX, Register::R9D);
        let (description, begin, end) = (Register::RAX, Register::RCX, Register::R9);
        let (again, lower, done) = (self.label(), self.label(), self.label());
        let entry = |number: Register, offset: i64| {
            MemoryOperand::with_base_index_scale_displ_size(index, number, 8, offset, 8)
        };
        let count = MemoryOperand::with_base_displ(index, ENTRIES_COUNT);
        self.put(Instruction::with2(Code::Mov_r32_rm32, high, count))?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, low, low))?;
        // The number of entries that begin at or before the address is at least `low`, and at most
        // `high`.
        self.bind(again);
        self.put(Instruction::with2(Code::Cmp_r32_rm32, low, high))?;
        self.jump(Code::Jae_rel32_64, done)?;
        let sum = MemoryOperand::with_base_index(Register::RDX, Register::RCX);
        self.put(Instruction::with2(Code::Lea_r32_m, middle, sum))?;
        self.put(Instruction::with2(Code::Shr_rm32_imm8, middle, 1))?;
        let begins = entry(Register::RAX, ENTRIES);
        self.put(Instruction::with2(Code::Cmp_rm32_r32, begins, sought))?;
        self.jump(Code::Jg_rel32_64, lower)?;
        let more = MemoryOperand::with_base_displ(Register::RAX, 1);
        self.put(Instruction::with2(Code::Lea_r32_m, low, more))?;
        self.jump(Code::Jmp_rel32_64, again)?;
        self.bind(lower);
        self.put(Instruction::with2(Code::Mov_r32_rm32, high, middle))?;
        self.jump(Code::Jmp_rel32_64, again)?;
        self.bind(done);
        self.put(Instruction::with2(Code::Test_rm32_r32, low, low))?;
        self.jump(Code::Je_rel32_64, none)?;
        // The last of these entries.
        let found = |offset: i64| entry(Register::RDX, ENTRIES - 8 + offset);
        self.put(Instruction::with2(Code::Movsxd_r64_rm32, begin, found(0)))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, begin, index))?;
        self.put(Instruction::with2(Code::Movsxd_r64_rm32, description, found(4)))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, description, index))?;
        let length = MemoryOperand::with_base_displ(description, LENGTH);
        self.put(Instruction::with2(Code::Mov_r32_rm32, Register::R9D, length))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, end, begin))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COUNTER, end))?;
        self.jump(Code::Jae_rel32_64, none)?;
        // No base for addresses relative to text or data, and where the code begins.
        for (offset, value) in [(0, None), (8, None), (16, Some(begin))] {
            let place = MemoryOperand::with_base_displ(RESULT, offset);
            self.put(match value {
                None => Instruction::with2(Code::Mov_rm64_imm32, place, 0),
                Some(value) => Instruction::with2(Code::Mov_rm64_r64, place, value),
            })?;
        }
        Ok(())
    }
}
