//! Writes the code that finds values and evaluates conditions.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::setting;
use super::step::Clock;
use super::value::{Base, Test, Value, Width};
use super::writer::{Label, Writer, wide};
use crate::listing::Home;
use crate::why::Why;

impl Writer<'_> {
    /// Falls through if all tests of one of `any` hold, or if there are none; otherwise jumps.
    pub(super) fn condition(&mut self, any: &[Vec<Test>], otherwise: Label) -> Result<(), Why> {
        let holds = self.label();
        for (index, all) in any.iter().enumerate() {
            let last = index + 1 == any.len();
            let next = if last { otherwise } else { self.label() };
            for test in all {
                self.test(test, next)?;
            }
            if !last {
                self.jump(Code::Jmp_rel32_64, holds)?;
                self.bind(next);
            }
        }
        if any.len() > 1 {
            self.bind(holds);
        }
        Ok(())
    }

    fn test(&mut self, test: &Test, otherwise: Label) -> Result<(), Why> {
        let value = self.scratch(0);
        self.load(test.value, value, otherwise)?;
        match i32::try_from(test.than) {
            Ok(than) => self.put(Instruction::with2(Code::Cmp_rm64_imm32, value, than))?,
            Err(_) => {
                let than = self.scratch(1);
                self.put(Instruction::with2(Code::Mov_r64_imm64, than, test.than))?;
                self.put(Instruction::with2(Code::Cmp_r64_rm64, value, than))?;
            }
        }
        self.jump(test.relation.otherwise(), otherwise)
    }

    /// Loads a value into a register; jumps if it cannot be read.
    pub(super) fn load(&mut self, value: Value, into: Register, nowhere: Label) -> Result<(), Why> {
        match value.base {
            Base::Register(register) => self.program_value(register, into)?,
            Base::Thread => self.thread(into)?,
            Base::Context if self.setting.thread.is_none() && self.setting.pointers => {
                self.put(Instruction::with1(Code::Rdfsbase_r64, into))?;
            }
            Base::Context => self.thread(into)?,
            // Go's linker places it there (runtime·tlsg).
            Base::Goroutine => {
                self.put(Instruction::with2(Code::Mov_r64_rm64, into, Self::of_thread(-8)))?;
            }
            Base::Process => {
                self.call(libc::SYS_getpid)?;
                self.copy(into, Register::RAX)?;
            }
            Base::Processor => self.processor_number(into)?,
            Base::Local(local) => self.load_local(local, into, nowhere)?,
            Base::Time => {
                self.time(Clock::Wall)?;
                self.nanoseconds(into)?;
                let began = setting::scale().offset;
                self.put(Instruction::with2(Code::Mov_r64_imm64, into, began))?;
                self.put(Instruction::with2(Code::Add_r64_rm64, into, Register::RAX))?;
            }
            Base::Stack(depth) => match self.setting.walk {
                Some(walk) => self.stack(walk, depth, into)?,
                None => {
                    let reason = "the plan has no table for walking stacks".to_owned();
                    return Err(Why::Generate { address: self.address, reason });
                }
            },
            Base::Memory { register, offset } => {
                self.program_value(register, into)?;
                if offset != 0 {
                    let place = MemoryOperand::with_base_displ(into, offset.into());
                    self.put(Instruction::with2(Code::Lea_r64_m, into, place))?;
                }
                return self.fetch(into, value.width, nowhere);
            }
        }
        self.extend(into, value.width)
    }

    /// Finds the id of this thread.
    pub(super) fn thread(&mut self, into: Register) -> Result<(), Why> {
        match self.setting.thread {
            Some(offset) => self.word_of_thread(into, offset),
            None => {
                self.call(libc::SYS_gettid)?;
                self.copy(into, Register::RAX)
            }
        }
    }

    /// Finds the number of this processor, if need be by asking the kernel.
    fn processor_number(&mut self, into: Register) -> Result<(), Why> {
        if self.processor(into)? {
            // `rdpid` returns the number of the node above these bits.
            let narrow = into.full_register32();
            return self.put(Instruction::with2(Code::And_rm32_imm32, narrow, 0xfff));
        }
        self.deepen(8)?;
        self.copy(Register::RDI, Register::RSP)?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::ESI, Register::ESI))?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX))?;
        self.call(libc::SYS_getcpu)?;
        let stored = MemoryOperand::with_base(Register::RSP);
        self.put(Instruction::with2(Code::Mov_r32_rm32, into.full_register32(), stored))?;
        self.deepen(-8)
    }

    /// Loads 32 bits at an offset from the thread pointer.
    pub(super) fn word_of_thread(&mut self, into: Register, offset: i32) -> Result<(), Why> {
        let place = Self::of_thread(offset);
        self.put(Instruction::with2(Code::Mov_r32_rm32, into.full_register32(), place))
    }

    /// Returns the operand at an offset from the thread pointer.
    pub(super) fn of_thread(offset: i32) -> MemoryOperand {
        let none = Register::None;
        MemoryOperand::new(none, none, 1, offset.into(), 8, false, Register::FS)
    }

    /// Replaces an address by the number stored there; jumps if it is not mapped. Uses
    /// `process_vm_readv` on the process itself, which fails where a load would kill the program.
    pub(super) fn fetch(
        &mut self,
        place: Register,
        width: Width,
        nowhere: Label,
    ) -> Result<(), Why> {
        let bytes = width.bytes();
        // Words on the stack: the value; its address and length; the address and length of the
        // source.
        let at = |word: i64| MemoryOperand::with_base_displ(Register::RSP, word * 8);
        self.deepen(40)?;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, at(0), 0))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(1), Register::RSP))?;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, at(2), bytes))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(3), place))?;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, at(4), bytes))?;
        // The id of any thread identifies its process here.
        self.thread(Register::RDI)?;
        self.put(Instruction::with2(Code::Lea_r64_m, Register::RSI, at(1)))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::EDX, 1))?;
        self.put(Instruction::with2(Code::Lea_r64_m, Register::R10, at(3)))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::R8D, 1))?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::R9D, Register::R9D))?;
        self.call(libc::SYS_process_vm_readv)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, place, at(0)))?;
        self.deepen(-40)?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, Register::RAX, bytes))?;
        self.jump(Code::Jne_rel32_64, nowhere)?;
        self.extend(place, width)
    }

    fn extend(&mut self, value: Register, width: Width) -> Result<(), Why> {
        let number = value.number() as u32;
        let narrow = match number {
            0..4 => Register::AL + number,
            _ => Register::SPL + (number - 4),
        };
        let (half, short) = (value.full_register32(), Register::AX + number);
        let extended = match width {
            Width::Whole => return Ok(()),
            Width::U32 => Instruction::with2(Code::Mov_r32_rm32, half, half),
            Width::U16 => Instruction::with2(Code::Movzx_r32_rm16, half, short),
            Width::U8 => Instruction::with2(Code::Movzx_r32_rm8, half, narrow),
            Width::I32 => Instruction::with2(Code::Movsxd_r64_rm32, value, half),
            Width::I16 => Instruction::with2(Code::Movsx_r64_rm16, value, short),
            Width::I8 => Instruction::with2(Code::Movsx_r64_rm8, value, narrow),
        };
        self.put(extended)
    }

    /// Computes the size of a value as its number of bits less 64, negated: 64 for 0, 63 for 1, …
    pub(super) fn size_of(
        &mut self,
        value: Value,
        into: Register,
        nowhere: Label,
    ) -> Result<(), Why> {
        match (value.base, value.width) {
            // Usually the register still holds the program's value.
            (Base::Register(register), Width::Whole)
                if self.taken.homes[usize::from(register)] == Home::Same
                    && wide(register) != Register::RSP =>
            {
                self.put(Instruction::with2(Code::Lzcnt_r64_rm64, into, wide(register)))?;
            }
            _ => {
                self.load(value, into, nowhere)?;
                self.put(Instruction::with2(Code::Lzcnt_r64_rm64, into, into))?;
            }
        }
        self.put(Instruction::with1(Code::Neg_rm64, into))
    }
}
