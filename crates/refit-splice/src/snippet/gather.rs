//! Gathers several items on the stack, for messages and for keys of several items.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::item::{CUT, Item, NAME_WORDS, UNREADABLE};
use super::writer::{Label, Writer};
use crate::why::Why;

/// In every byte, the lowest and the highest bit.
const LOWEST: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = LOWEST << 7;
/// Bytes of a page, less one.
const IN_PAGE: i32 = refit_sys::memory::PAGE_SIZE_U64 as i32 - 1;

fn on_stack(offset: i64) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RSP, offset)
}

impl Writer<'_> {
    /// Makes room for `words` words on the stack, and gathers items there from word `first` on.
    /// Jumps if a value cannot be read; the stack is as before then. Changes the first scratch
    /// register.
    pub(super) fn gather(
        &mut self,
        items: &[Item],
        first: usize,
        words: usize,
        nowhere: Label,
    ) -> Result<(), Why> {
        let bytes = words as i64 * 8;
        let (unreadable, done) = (self.label(), self.label());
        self.deepen(bytes)?;
        let mut at = first as i64 * 8;
        for item in items {
            match *item {
                Item::Value(value) => {
                    let word = self.scratch(0);
                    self.load(value, word, unreadable)?;
                    self.put(Instruction::with2(Code::Mov_rm64_r64, on_stack(at), word))?;
                }
                Item::Text { pointer, words } => {
                    let place = self.scratch(0);
                    self.load(pointer, place, unreadable)?;
                    self.text(place, at, i64::from(words) * 8)?;
                }
                Item::ThreadName => {
                    self.put(Instruction::with2(
                        Code::Mov_r32_imm32,
                        Register::EDI,
                        libc::PR_GET_NAME,
                    ))?;
                    self.put(Instruction::with2(Code::Lea_r64_m, Register::RSI, on_stack(at)))?;
                    self.call(libc::SYS_prctl)?;
                    let ended = self.label();
                    self.end_text(at, NAME_WORDS as i64 * 8, ended)?;
                    self.bind(ended);
                }
            }
            at += item.words() as i64 * 8;
        }
        if items.iter().any(Item::fails) {
            self.jump(Code::Jmp_rel32_64, done)?;
            self.bind(unreadable);
            self.deepen(-bytes)?;
            self.jump(Code::Jmp_rel32_64, nowhere)?;
            self.depth += bytes;
            self.bind(done);
        }
        Ok(())
    }

    /// Reads the text at the address in `place` to the room of `bytes` bytes at `at`.
    fn text(&mut self, place: Register, at: i64, bytes: i64) -> Result<(), Why> {
        let (again, readable, done) = (self.label(), self.label(), self.label());
        let (word, left) = (Register::RDI, Register::ECX);
        self.put(Instruction::with2(Code::Lea_r64_m, word, on_stack(at)))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, (bytes / 8) as i32))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_rm64_imm32, MemoryOperand::with_base(word), 0))?;
        self.put(Instruction::with2(Code::Add_rm64_imm8, word, 8))?;
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Jne_rel32_64, again)?;
        self.copy_text(place, at, bytes)?;
        let last = on_stack(at + bytes - 1);
        self.put(Instruction::with2(Code::Test_rm64_r64, Register::RAX, Register::RAX))?;
        self.jump(Code::Jg_rel32_64, readable)?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, on_stack(at), place))?;
        self.put(Instruction::with2(Code::Mov_rm8_imm8, last, u32::from(UNREADABLE)))?;
        self.jump(Code::Jmp_rel32_64, done)?;
        self.bind(readable);
        self.end_text(at, bytes, done)?;
        self.put(Instruction::with2(Code::Mov_rm8_imm8, last, u32::from(CUT)))?;
        self.bind(done);
        Ok(())
    }

    /// Copies as many of `bytes` bytes as can be read; `rax` is their number, or negative. The
    /// kernel copies (`process_vm_readv`), so an invalid pointer does no harm. A call copies each
    /// of its ranges as a whole or not at all, so the end of the page separates two of them.
    fn copy_text(&mut self, place: Register, at: i64, bytes: i64) -> Result<(), Why> {
        const WORDS: i64 = 6;
        let (room, rest) = (Register::RAX, Register::RCX);
        let (fits, words) = (self.label(), |word: i64| on_stack(word * 8));
        self.deepen(WORDS * 8)?;
        let target = on_stack(at + WORDS * 8);
        self.put(Instruction::with2(Code::Lea_r64_m, room, target))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, words(0), room))?;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, words(1), bytes as i32))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, words(2), place))?;
        // The bytes to the end of the page, but no more than there is room for.
        let narrow = room.full_register32();
        self.put(Instruction::with2(Code::Mov_r32_rm32, narrow, place.full_register32()))?;
        self.put(Instruction::with2(Code::Or_rm32_imm32, narrow, !IN_PAGE))?;
        self.put(Instruction::with1(Code::Neg_rm32, narrow))?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm32, narrow, bytes as i32))?;
        self.jump(Code::Jbe_rel32_64, fits)?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, narrow, bytes as i32))?;
        self.bind(fits);
        self.put(Instruction::with2(Code::Mov_rm64_r64, words(3), room))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, rest.full_register32(), bytes as i32))?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, rest, room))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, words(5), rest))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, room, place))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, words(4), room))?;
        // The id of any thread identifies its process here.
        self.thread(Register::RDI)?;
        self.copy(Register::RSI, Register::RSP)?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::EDX, 1))?;
        self.put(Instruction::with2(Code::Lea_r64_m, Register::R10, words(2)))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::R8D, 2))?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::R9D, Register::R9D))?;
        self.call(libc::SYS_process_vm_readv)?;
        self.deepen(-WORDS * 8)
    }

    /// Clears everything after the first 0 byte of a text, so that equal texts are equal words, and
    /// jumps; falls through if there is no 0 byte.
    fn end_text(&mut self, at: i64, bytes: i64, done: Label) -> Result<(), Why> {
        let (again, found, clear) = (self.label(), self.label(), self.label());
        let (word, left) = (Register::RDI, Register::ECX);
        let (zero, other) = (Register::RDX, Register::RSI);
        let content = MemoryOperand::with_base(word);
        self.put(Instruction::with2(Code::Mov_r64_imm64, Register::R8, LOWEST))?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, Register::R9, HIGHEST))?;
        self.put(Instruction::with2(Code::Lea_r64_m, word, on_stack(at)))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, (bytes / 8) as i32))?;
        self.bind(again);
        // Subtracting one from each byte sets the highest bit of the first byte that is 0; bits
        // above it can be set too.
        self.put(Instruction::with2(Code::Mov_r64_rm64, other, content))?;
        self.copy(zero, other)?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, zero, Register::R8))?;
        self.put(Instruction::with1(Code::Not_rm64, other))?;
        self.put(Instruction::with2(Code::And_r64_rm64, zero, other))?;
        self.put(Instruction::with2(Code::And_r64_rm64, zero, Register::R9))?;
        self.jump(Code::Jne_rel32_64, found)?;
        self.put(Instruction::with2(Code::Add_rm64_imm8, word, 8))?;
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Jne_rel32_64, again)?;
        let none = self.label();
        self.jump(Code::Jmp_rel32_64, none)?;
        self.bind(found);
        // Keeps what is below that bit.
        self.copy(other, zero)?;
        self.put(Instruction::with1(Code::Neg_rm64, other))?;
        self.put(Instruction::with2(Code::And_r64_rm64, other, zero))?;
        self.put(Instruction::with1(Code::Dec_rm64, other))?;
        self.put(Instruction::with2(Code::And_rm64_r64, content, other))?;
        self.bind(clear);
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Je_rel32_64, done)?;
        self.put(Instruction::with2(Code::Add_rm64_imm8, word, 8))?;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, content, 0))?;
        self.jump(Code::Jmp_rel32_64, clear)?;
        self.bind(none);
        Ok(())
    }
}
