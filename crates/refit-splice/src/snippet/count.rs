//! Counts without a locked instruction, by a restartable sequence (rseq(2)).
//!
//! ```text
//!            rseq_cs of the thread = descriptor of the sequence
//!   begin:   lane = number of the processor; go to aborted if it has no lane
//!            cell of the lane += 1
//!   end:     rseq_cs of the thread = 0
//!            …
//!   aborted: cell of the last lane += 1, locked; go to end
//! ```
//!
//! # Why no count is lost
//!
//! *Each thread that comes here adds one.* The addition is the last instruction of the sequence. If
//! the kernel preempts the thread before it, moves it to another processor, or has it handle a
//! signal, the thread goes on at `aborted`. Behind the addition, it is no longer in the sequence.
//! The sequence is not tried again: a thread that a debugger steps through it would never leave it.
//!
//! *No two additions to a cell are made at once.* Those to the last lane are locked. To a cell of
//! another lane, only threads on the processor of that lane add: they have read its number in the
//! sequence, and have not left the processor since. The additions of one processor follow each
//! other, since an instruction is interrupted before or after what it does. This holds for the
//! threads of all processes that share the cells (`fork`). No other step writes to the cell of a
//! step without a key ([`Action::Count`]).
//!
//! *A thread that has no number adds to the last lane*: the number is negative where the thread has
//! not registered with the kernel, and at least the number of lanes on a processor without one.
//! `CAVEATS.md` says which threads have a number that is not theirs.
//!
//! `count_model` tries all orders of the steps.
//!
//! # Why the kernel finds the descriptor
//!
//! It reads the descriptor that `rseq_cs` names when it resumes the thread, and kills a program
//! where it finds none. `rseq_cs` names one only while the thread is in this snippet: behind the
//! sequence the snippet resets it, and the kernel does when it aborts the sequence or starts a
//! signal handler. An area stays mapped while a thread is in its code, or a handler returns there.
//!
//! [`Action::Count`]: super::Action::Count

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use refit_sys::trace::{RSEQ_ANNOUNCED, RSEQ_DESCRIPTOR};

use super::setting::Sequences;
use super::writer::Writer;
use crate::why::Why;

/// Offset of `cpu_id`, the number of its processor, in a thread's area.
pub(super) const CPU_ID: i32 = 4;

impl Writer<'_> {
    /// Adds one to a cell of this processor.
    pub(super) fn count(&mut self, sequences: Sequences, cell: u32) -> Result<(), Why> {
        let cells = self.setting.cells;
        let Sequences { area, signature, descriptors } = sequences;
        let (aborted, end) = (self.label(), self.label());
        let lane = self.scratch(0);
        let offset = i64::from(cell) * 8;
        let at =
            |address: u64| MemoryOperand::with_base_displ(Register::RIP, address.cast_signed());

        let descriptor = descriptors + (self.sequences() * RSEQ_DESCRIPTOR) as u64;
        let announced = Self::of_thread(area + RSEQ_ANNOUNCED as i32);
        self.put(Instruction::with2(Code::Lea_r64_m, lane, at(descriptor)))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, announced, lane))?;

        let begin = self.position();
        let narrow = lane.full_register32();
        self.word_of_thread(lane, area + CPU_ID)?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm8, narrow, 1_i32 << cells.lanes))?;
        self.jump(Code::Jae_rel32_64, aborted)?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, lane, cells.stride))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, lane, at(cells.base)))?;
        let own = MemoryOperand::with_base_displ(lane, offset);
        self.put(Instruction::with1(Code::Inc_rm64, own))?;

        let last = cells.first + (1 << (cells.lanes + cells.stride)) + offset.cast_unsigned();
        let abort_code = vec![
            Instruction::with_declare_dword_1(signature),
            Self::mark(aborted),
            self.locked(Instruction::with1(Code::Inc_rm64, at(last)))?,
            self.branch(Code::Jmp_rel32_64, end)?,
        ];
        self.sequence(begin..self.position(), abort_code);
        self.bind(end);
        self.put(Instruction::with2(Code::Mov_rm64_imm32, announced, 0))
    }
}
