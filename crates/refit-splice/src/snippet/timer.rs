//! Timers: time from entry to exit, for each thread.
//!
//! The thread that enters a function also leaves it, and leaves its calls in reverse order. So a
//! thread that leaves was seen to enter if it has more entries than exits. This makes timers
//! correct at any depth of recursion, and for calls that were in progress when the sites were
//! installed, without storing anything per call.
//!
//! A thread finds its cells by open addressing, as in [`search`](super::search). They are in a
//! cache line that no other thread writes to, so their updates need not be atomic. The exception is
//! a program whose threads are distinguished by their thread pointers: the threads of a forked
//! child have the same thread pointers, and share the cells.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::search::{COMPARED, Search};
use super::step::Clock;
use super::value::{Base, Value, Width};
use super::writer::{Label, Writer};
use crate::why::Why;

/// The cells of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) cell: u32,
    pub(super) threads: u32,
    /// Cells of a thread; as many for all other threads precede the first one.
    pub(super) line: u32,
    pub(super) key: Base,
}

impl Timer {
    /// Returns the offset of the first thread's cells from the first lane, in bytes.
    fn table(self) -> i64 {
        i64::from(self.cell + self.line) * 8
    }

    /// Returns the operand of a cell of the thread whose place is in a register: 1 is the time, 2
    /// counts entries, 3 exits.
    pub(super) fn cell(self, place: Register, number: i64) -> MemoryOperand {
        MemoryOperand::with_base_displ(place, self.table() + number * 8)
    }
}

impl Writer<'_> {
    /// Writes the code for a thread that enters.
    pub(super) fn enter(&mut self, timer: Timer, clock: Clock, over: Label) -> Result<(), Why> {
        let place = self.cells_of_thread(timer, true, over)?;
        self.time(clock)?;
        let take = Instruction::with2(Code::Sub_rm64_r64, timer.cell(place, 1), Register::RDX);
        self.put_own(take)?;
        self.put_own(Instruction::with1(Code::Inc_rm64, timer.cell(place, 2)))
    }

    /// Writes the code for a thread that leaves, if it has entered before.
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

    /// Writes an instruction on cells of this thread.
    pub(super) fn put_own(
        &mut self,
        one: Result<Instruction, iced_x86::IcedError>,
    ) -> Result<(), Why> {
        if self.setting.thread.is_some() { self.put(one) } else { self.put_locked(one) }
    }

    /// Finds the cells of this thread. If the thread has none, the code of an entry makes them, and
    /// the code of an exit jumps.
    pub(super) fn cells_of_thread(
        &mut self,
        timer: Timer,
        enters: bool,
        over: Label,
    ) -> Result<Register, Why> {
        // The register of the counter is free until the search begins.
        let (key, place, left) = (self.scratch(0), self.scratch(1), self.scratch(2));
        let search = Search {
            key,
            place,
            base: left,
            left,
            table: timer.table(),
            entries: timer.threads,
            bytes: timer.line * 8,
            makes: enters,
        };
        let found = self.label();
        let whole = Value { base: timer.key, width: Width::Whole };
        self.load(whole, key, over)?;
        self.spread(search)?;
        self.shared(left)?;
        // A thread that leaves and has no cells has not entered.
        self.search(search, found, over)?;
        if enters {
            self.shared(left)?;
            let lost = i64::from(timer.cell) * 8;
            self.increment(MemoryOperand::with_base_displ(left, lost))?;
        }
        self.jump(Code::Jmp_rel32_64, over)?;
        self.bind(found);
        Ok(place)
    }
}
