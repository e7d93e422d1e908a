//! Measures the durations of single calls: stores the time of each entry until the call returns.
//!
//! A thread leaves its calls in the reverse order in which it has entered them. So the number of
//! its entries less the number of its exits is its depth, and the time of an entry is stored by
//! depth. Threads that were inside before the site was installed are recognised as in
//! [`timer`](super::timer). A call that ends by an exception or `longjmp` leaves its entry
//! occupied: later calls are stored one level deeper, and are still timed correctly. A call nested
//! deeper than `DEPTH` is not timed, but counted.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::search::COMPARED;
use super::step::{Clock, DEPTH};
use super::timer::Timer;
use super::writer::{Label, Writer};
use crate::why::Why;

/// Indices of the cells of a thread ([`DURATIONS`](super::step::DURATIONS)).
const DEEP: i64 = 1;
const ENTRIES: i64 = 2;
const EXITS: i64 = 3;
const SUM: i64 = 4;
const BEGINNINGS: i64 = 5;
const SIZES: i64 = BEGINNINGS + DEPTH as i64;

impl Timer {
    /// Returns the operand of the cell that `index` selects, after `first`.
    fn among(self, place: Register, first: i64, index: Register) -> MemoryOperand {
        let offset = self.cell(place, first).displacement;
        MemoryOperand::with_base_index_scale_displ_size(place, index, 8, offset, 8)
    }
}

impl Writer<'_> {
    /// Writes the code for a thread that enters.
    pub(super) fn begin(&mut self, timer: Timer, clock: Clock, over: Label) -> Result<(), Why> {
        let place = self.cells_of_thread(timer, true, over)?;
        let deep = self.label();
        self.time(clock)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, timer.cell(place, ENTRIES)))?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, COMPARED, timer.cell(place, EXITS)))?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm32, COMPARED, DEPTH as i32))?;
        self.jump(Code::Jae_rel32_64, deep)?;
        let beginning = timer.among(place, BEGINNINGS, COMPARED);
        self.put(Instruction::with2(Code::Mov_rm64_r64, beginning, Register::RDX))?;
        self.bind(deep);
        self.put_own(Instruction::with1(Code::Inc_rm64, timer.cell(place, ENTRIES)))
    }

    /// Writes the code for a thread that leaves, if it has entered before.
    pub(super) fn end(&mut self, timer: Timer, clock: Clock, over: Label) -> Result<(), Why> {
        self.time(clock)?;
        let place = self.cells_of_thread(timer, false, over)?;
        let (deep, forward) = (self.label(), self.label());
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, timer.cell(place, ENTRIES)))?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, COMPARED, timer.cell(place, EXITS)))?;
        self.jump(Code::Jle_rel32_64, over)?;
        self.put_own(Instruction::with1(Code::Inc_rm64, timer.cell(place, EXITS)))?;
        self.put(Instruction::with1(Code::Dec_rm64, COMPARED))?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm32, COMPARED, DEPTH as i32))?;
        self.jump(Code::Jae_rel32_64, deep)?;
        let beginning = timer.among(place, BEGINNINGS, COMPARED);
        self.put(Instruction::with2(Code::Sub_r64_rm64, Register::RDX, beginning))?;
        // The counters of two processors may differ by some cycles.
        self.jump(Code::Jae_rel32_64, forward)?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX))?;
        self.bind(forward);
        let other = self.scratch(2);
        if clock == Clock::Thread {
            self.copy(Register::RAX, Register::RDX)?;
        } else {
            self.nanoseconds(other)?;
        }
        self.put_own(Instruction::with2(
            Code::Add_rm64_r64,
            timer.cell(place, SUM),
            Register::RAX,
        ))?;
        // 64 less the number of leading zeros. The mask keeps the index within the cells, whatever
        // values they held.
        self.put(Instruction::with2(Code::Lzcnt_r64_rm64, other, Register::RAX))?;
        self.put(Instruction::with1(Code::Neg_rm64, other))?;
        self.put(Instruction::with2(Code::And_rm64_imm8, other, 63))?;
        let size = timer.among(place, SIZES, other);
        self.put_own(Instruction::with1(Code::Inc_rm64, size))?;
        self.jump(Code::Jmp_rel32_64, over)?;
        self.bind(deep);
        self.put_own(Instruction::with1(Code::Inc_rm64, timer.cell(place, DEEP)))
    }
}
