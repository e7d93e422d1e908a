//! Writes single instructions.

use std::ops::Range;

use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use refit_analysis::live::Live;

use super::allocation::Allocation;
use super::registers::RED_ZONE;
use super::setting::{self, Setting};
use super::step::Clock;
use crate::listing::{FIRST_LABEL, Frame, Home, Listing, Sequence, Values};
use crate::relocate::made;
use crate::why::Why;

/// Writes the instructions of a snippet.
pub(super) struct Writer<'t> {
    pub(super) address: u64,
    pub(super) taken: Allocation,
    pub(super) setting: Setting,
    /// Distance of the stack pointer below the program's, in bytes.
    pub(super) depth: i64,
    /// The same when the locals had their room: below them is what is pushed later.
    pub(super) locals: i64,
    /// Homes of the program's values now.
    homes: [Home; 16],
    labels: u64,
    to: &'t mut Listing,
}

/// A target of jumps within a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(u64);

/// Returns the 64-bit general register with this number.
pub(super) fn wide(number: u8) -> Register {
    Register::RAX + u32::from(number)
}

impl<'t> Writer<'t> {
    pub(super) fn new(
        address: u64,
        taken: Allocation,
        setting: Setting,
        to: &'t mut Listing,
    ) -> Self {
        // No other snippet that is encoded together with this one has the same.
        let labels = FIRST_LABEL | (to.len() as u64) << 16;
        Self {
            address,
            taken,
            setting,
            depth: 0,
            locals: 0,
            homes: Values::UNMOVED.homes,
            labels,
            to,
        }
    }

    fn frame(&self) -> Frame {
        Frame::Of(self.address, Values { depth: self.depth, homes: self.homes })
    }

    /// Returns the position of the next instruction.
    pub(super) fn position(&self) -> usize {
        self.to.len()
    }

    /// Returns the number of restartable sequences so far.
    pub(super) fn sequences(&self) -> usize {
        self.to.sequences.len()
    }

    /// Says that the instructions at these positions are a restartable sequence, which is aborted
    /// to this code.
    pub(super) fn sequence(&mut self, range: Range<usize>, abort_code: Vec<Instruction>) {
        let frame = self.frame();
        self.to.sequences.push(Sequence { range, abort_code, frame, abort: 0 });
    }

    pub(super) fn put(&mut self, instruction: Result<Instruction, IcedError>) -> Result<(), Why> {
        self.write(made(self.address, instruction)?);
        Ok(())
    }

    fn write(&mut self, instruction: Instruction) {
        self.to.frame(self.frame());
        self.to.push(instruction);
    }

    /// Writes an instruction without operands.
    pub(super) fn plain(&mut self, code: Code) {
        self.write(Instruction::with(code));
    }

    /// Writes an instruction with a `lock` prefix.
    pub(super) fn put_locked(
        &mut self,
        instruction: Result<Instruction, IcedError>,
    ) -> Result<(), Why> {
        let locked = self.locked(instruction)?;
        self.write(locked);
        Ok(())
    }

    /// Returns an instruction with a `lock` prefix.
    pub(super) fn locked(
        &self,
        instruction: Result<Instruction, IcedError>,
    ) -> Result<Instruction, Why> {
        let mut locked = made(self.address, instruction)?;
        locked.set_has_lock_prefix(true);
        Ok(locked)
    }

    /// Returns an instruction that binds a label.
    pub(super) fn mark(label: Label) -> Instruction {
        // An instruction of no bytes, whose address is the label.
        let mut here = Instruction::with(Code::Zero_bytes);
        here.set_ip(label.0);
        here
    }

    /// Returns a label that is bound later.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Binds a label to the current position.
    pub(super) fn bind(&mut self, label: Label) {
        self.write(Self::mark(label));
    }

    /// Writes a jump, conditional or not.
    pub(super) fn jump(&mut self, code: Code, to: Label) -> Result<(), Why> {
        let branch = self.branch(code, to)?;
        self.write(branch);
        Ok(())
    }

    /// Returns a jump, conditional or not.
    pub(super) fn branch(&self, code: Code, to: Label) -> Result<Instruction, Why> {
        made(self.address, Instruction::with_branch(code, to.0))
    }

    /// Returns a register that steps may use.
    pub(super) fn scratch(&self, number: usize) -> Register {
        wide(self.taken.scratch[number])
    }

    pub(super) fn copy(&mut self, into: Register, from: Register) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Mov_r64_rm64, into, from))
    }

    /// Exchanges `rbx`, which may have the program's value, and a scratch register. `away` says
    /// whether the program's value is in that one afterwards.
    pub(super) fn exchange_rbx(&mut self, other: Register, away: bool) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Xchg_rm64_r64, Register::RBX, other))?;
        const RBX: usize = 3;
        if self.taken.homes[RBX] == Home::Same && !self.taken.scratch.contains(&(RBX as u8)) {
            let other = other.number() as u8;
            self.homes[RBX] = if away { Home::Register(other) } else { Home::Same };
        }
        Ok(())
    }

    /// Moves the stack pointer down (or up, for a negative number) without changing a flag.
    pub(super) fn deepen(&mut self, by: i64) -> Result<(), Why> {
        let to = MemoryOperand::with_base_displ(Register::RSP, -by);
        self.put(Instruction::with2(Code::Lea_r64_m, Register::RSP, to))?;
        self.depth += by;
        Ok(())
    }

    /// Moves the program's values to where they are while the snippet runs.
    pub(super) fn save(&mut self) -> Result<(), Why> {
        if self.taken.red_zone {
            self.deepen(RED_ZONE)?;
        }
        for (register, home) in self.homes_in_order() {
            match home {
                Home::Same => {}
                Home::Register(other) => self.copy(wide(other), wide(register))?,
                Home::Stack(_) => {
                    self.put(Instruction::with1(Code::Push_r64, wide(register)))?;
                    self.depth += 8;
                }
            }
        }
        self.homes = self.taken.homes;
        if self.taken.flags { self.save_flags() } else { Ok(()) }
    }

    /// Moves them back.
    pub(super) fn restore(&mut self) -> Result<(), Why> {
        if self.taken.flags {
            self.restore_flags()?;
        }
        for (register, home) in self.homes_in_order().into_iter().rev() {
            match home {
                Home::Register(other) if self.taken.kept.has(register) => {
                    self.copy(wide(register), wide(other))?;
                }
                Home::Register(_) | Home::Same => {}
                Home::Stack(_) => {
                    self.put(Instruction::with1(Code::Pop_r64, wide(register)))?;
                    self.depth -= 8;
                }
            }
            self.homes[usize::from(register)] = Home::Same;
        }
        if self.taken.red_zone { self.deepen(-RED_ZONE) } else { Ok(()) }
    }

    /// Pushes the flags that arithmetic changes. `popf` takes longer; and a debugger that steps
    /// over `pushf` would have its trap flag pushed, which `popf` would then set for good.
    fn save_flags(&mut self) -> Result<(), Why> {
        if self.setting.lahf {
            self.plain(Code::Lahf);
            self.put(Instruction::with1(Code::Seto_rm8, Register::AL))?;
            self.put(Instruction::with1(Code::Push_r64, Register::RAX))?;
        } else {
            self.plain(Code::Pushfq);
        }
        self.depth += 8;
        Ok(())
    }

    fn restore_flags(&mut self) -> Result<(), Why> {
        if self.setting.lahf {
            self.put(Instruction::with1(Code::Pop_r64, Register::RAX))?;
            self.depth -= 8;
            // The overflow flag was stored as 0 or 1.
            self.put(Instruction::with2(Code::Add_AL_imm8, Register::AL, 0x7f))?;
            self.plain(Code::Sahf);
        } else {
            self.plain(Code::Popfq);
            self.depth -= 8;
        }
        Ok(())
    }

    /// Returns registers and their homes; those on the stack in the order in which they are pushed.
    fn homes_in_order(&self) -> Vec<(u8, Home)> {
        let mut homes: Vec<_> = (0..).zip(self.taken.homes).collect();
        homes.sort_by_key(|(_, home)| if let Home::Stack(depth) = home { *depth } else { 0 });
        homes
    }

    /// Copies the program's value of a register.
    pub(super) fn program_value(&mut self, register: u8, into: Register) -> Result<(), Why> {
        let stack = |depth: i64| MemoryOperand::with_base_displ(Register::RSP, depth);
        match self.taken.homes[usize::from(register)] {
            _ if wide(register) == Register::RSP => {
                self.put(Instruction::with2(Code::Lea_r64_m, into, stack(self.depth)))
            }
            Home::Same => self.copy(into, wide(register)),
            Home::Register(other) => self.copy(into, wide(other)),
            Home::Stack(place) => self.put(Instruction::with2(
                Code::Mov_r64_rm64,
                into,
                stack(self.depth - i64::from(place)),
            )),
        }
    }

    /// Writes a system call; its arguments are in their registers.
    pub(super) fn call(&mut self, number: i64) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, number as i32))?;
        self.plain(Code::Syscall);
        Ok(())
    }

    /// Reads the time into `rdx`.
    pub(super) fn time(&mut self, clock: Clock) -> Result<(), Why> {
        if clock == Clock::Wall {
            self.plain(Code::Rdtsc);
            self.put(Instruction::with2(Code::Shl_rm64_imm8, Register::RDX, 32))?;
            return self.put(Instruction::with2(Code::Or_r64_rm64, Register::RDX, Register::RAX));
        }
        let time_at = |at: i64| MemoryOperand::with_base_displ(Register::RSP, at);
        self.deepen(16)?;
        let which = libc::CLOCK_THREAD_CPUTIME_ID;
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::EDI, which))?;
        self.copy(Register::RSI, Register::RSP)?;
        self.call(libc::SYS_clock_gettime)?;
        // Seconds, then nanoseconds.
        let seconds = time_at(0);
        let billion = 1_000_000_000;
        self.put(Instruction::with3(Code::Imul_r64_rm64_imm32, Register::RDX, seconds, billion))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, Register::RDX, time_at(8)))?;
        self.deepen(-16)
    }

    /// Converts the cycles in `rdx` to nanoseconds in `rax`. Changes `rdx` and `other`.
    pub(super) fn nanoseconds(&mut self, other: Register) -> Result<(), Why> {
        // Multiplies by the nanoseconds of 2^32 cycles, and takes the upper part.
        let (low, high) = (Register::RAX, Register::RDX);
        self.copy(low, high)?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, other, setting::scale().factor))?;
        self.put(Instruction::with1(Code::Mul_rm64, other))?;
        self.put(Instruction::with3(Code::Shrd_rm64_r64_imm8, low, high, 32))
    }

    pub(super) fn increment(&mut self, place: MemoryOperand) -> Result<(), Why> {
        self.put_locked(Instruction::with1(Code::Inc_rm64, place))
    }

    /// Writes garbage into everything that is dead.
    pub(super) fn poison(&mut self, live: Live, stack: i32) -> Result<(), Why> {
        // More words than snippets push.
        const WORDS: i64 = 16;
        let below = if live.red_zone { RED_ZONE } else { 0 };
        self.deepen(below)?;
        for _ in 0..WORDS {
            self.put(Instruction::with1(Code::Pushq_imm32, stack))?;
            self.depth += 8;
        }
        self.deepen(-below - 8 * WORDS)?;
        for number in 0..16 {
            if live.general >> number & 1 == 0 && wide(number) != Register::RSP {
                let garbage = 0x0bad_beef_dead_0000 + u64::from(number);
                self.put(Instruction::with2(Code::Mov_r64_imm64, wide(number), garbage))?;
            }
        }
        for number in 0..16 {
            if live.vectors >> number & 1 == 0 {
                // All bits set: not a number.
                let register = Register::XMM0 + number;
                self.put(Instruction::with2(Code::Pcmpeqd_xmm_xmmm128, register, register))?;
            }
        }
        if !self.taken.flags {
            // Sets carry; clears zero, sign and overflow.
            self.put(Instruction::with2(Code::Cmp_rm64_imm8, Register::RSP, -1))?;
        }
        Ok(())
    }
}
