//! Timers: time from entry to exit, of each thread apart.
//!
//! A function is entered and left by one thread, the last entered first. So the entries and exits of a thread tell by themselves whether
//! who leaves was seen when it entered: if there were more entries than exits. That makes timers right at any depth of recursion and
//! for calls that went on when they were put in, with nothing kept per call.
//!
//! A thread finds its cells by open addressing, as in [`cells`](super::cells); they lie in a cache line that no other thread
//! writes to, so nothing has to be atomic but where threads are told by their thread pointers: a forked child has the same ones,
//! and shares the cells.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::Why;
use super::actions::{Clock, PROBES, TIMER};
use super::values::{Base, Value, Width};
use super::writer::{Label, Writer};

/// The cells of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) cell: u32,
    pub(super) threads: u32,
    pub(super) key: Base,
}

const LINE: i32 = TIMER as i32 * 8;
/// `lock cmpxchg` compares with it.
const COMPARED: Register = Register::RAX;

impl Timer {
    /// Bytes from the first lane on to the first thread's cells.
    fn table(self) -> i64 {
        i64::from(self.cell + TIMER) * 8
    }

    /// A cell of the thread whose place is in a register: 1 is the time, 2 counts entries, 3 exits.
    fn cell(self, place: Register, number: i64) -> MemoryOperand {
        MemoryOperand::with_base_displ(place, self.table() + number * 8)
    }
}

impl Writer<'_> {
    /// The thread enters.
    pub(super) fn enter(&mut self, timer: Timer, clock: Clock, over: Label) -> Result<(), Why> {
        let place = self.cells_of_thread(timer, true, over)?;
        self.time(clock)?;
        let take = Instruction::with2(Code::Sub_rm64_r64, timer.cell(place, 1), Register::RDX);
        self.put_own(take)?;
        self.put_own(Instruction::with1(Code::Inc_rm64, timer.cell(place, 2)))
    }

    /// It leaves, and has entered before.
    pub(super) fn leave(&mut self, timer: Timer, clock: Clock, over: Label) -> Result<(), Why> {
        self.time(clock)?;
        let place = self.cells_of_thread(timer, false, over)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, timer.cell(place, 2)))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, timer.cell(place, 3)))?;
        self.jump(Code::Jle_rel32_64, over)?;
        let add = Instruction::with2(Code::Add_rm64_r64, timer.cell(place, 1), Register::RDX);
        self.put_own(add)?;
        self.put_own(Instruction::with1(Code::Inc_rm64, timer.cell(place, 3)))
    }

    /// An instruction on cells of this thread.
    fn put_own(&mut self, one: Result<Instruction, iced_x86::IcedError>) -> Result<(), Why> {
        if self.setting.thread.is_some() { self.put(one) } else { self.put_locked(one) }
    }

    /// Where the cells of this thread are; made if it has none and `enters`, else it jumps.
    fn cells_of_thread(
        &mut self,
        timer: Timer,
        enters: bool,
        over: Label,
    ) -> Result<Register, Why> {
        let (key, place, left) = (self.scratch(0), self.scratch(1), self.scratch(2));
        let left = left.full_register32();
        let (again, next, found) = (self.label(), self.label(), self.label());
        let whole = Value { base: timer.key, width: Width::Whole };
        self.load(whole, key, over)?;
        // Numbers of threads and addresses alike: the lowest bits of the one, higher ones of the other.
        self.put(Instruction::with3(Code::Imul_r64_rm64_imm32, place, key, 0x5bd1_e995))?;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, place, 20))?;
        let mask = timer.threads as i32 - 1;
        self.put(Instruction::with2(Code::And_rm32_imm32, place.full_register32(), mask))?;
        let shift = LINE.trailing_zeros();
        self.put(Instruction::with2(Code::Shl_rm64_imm8, place, shift))?;
        // The register of the counter is free until it counts.
        let shared = self.scratch(2);
        self.shared(shared)?;
        self.put(Instruction::with2(Code::Add_r64_rm64, place, shared))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, PROBES))?;
        self.bind(again);
        let word = timer.cell(place, 0);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, word))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, key))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.put(Instruction::with2(Code::Test_rm64_r64, COMPARED, COMPARED))?;
        // Who leaves and has no cells has not entered.
        self.jump(Code::Jne_rel32_64, next)?;
        if enters {
            self.put_locked(Instruction::with2(Code::Cmpxchg_rm64_r64, word, key))?;
            self.jump(Code::Je_rel32_64, found)?;
        } else {
            self.jump(Code::Jmp_rel32_64, over)?;
        }
        self.bind(next);
        self.put(Instruction::with2(Code::Add_rm64_imm32, place, LINE))?;
        self.put(Instruction::with1(Code::Dec_rm32, left))?;
        self.jump(Code::Jne_rel32_64, again)?;
        if enters {
            self.shared(shared)?;
            let lost = i64::from(timer.cell) * 8;
            self.increment(MemoryOperand::with_base_displ(shared, lost))?;
        }
        self.jump(Code::Jmp_rel32_64, over)?;
        self.bind(found);
        Ok(place)
    }
}
