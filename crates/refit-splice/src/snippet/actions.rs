//! Writes the code of a step.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::key::Key;
use super::search::COMPARED;
use super::step::{Action, DURATIONS, Fold, Step, TIMER};
use super::timer::Timer;
use super::value::Base;
use super::writer::Writer;
use crate::why::Why;

impl Writer<'_> {
    /// Writes a whole step.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), Why> {
        let over = self.label();
        if let Action::Assign { local, first: true, .. } = step.action {
            self.begin_local(local)?;
        }
        self.condition(&step.when, over)?;
        // The value by which the threads of a timer are distinguished.
        let timed = match &step.key {
            Some(Key::Value(key)) => key.base,
            _ => Base::Context,
        };
        match step.action {
            // Written once the registers are the program's again.
            Action::Poison { .. } | Action::FindFrame | Action::FindObject => {}
            Action::Flag { cell } => self.flag(cell)?,
            Action::Count { cell } => match self.setting.sequences {
                Some(sequences) if step.is_plain_count() => self.count(sequences, cell)?,
                _ => {
                    let cells = self.cells_of(step, over)?;
                    self.increment(cells.place(0))?;
                }
            },
            Action::Histogram { value, .. } => {
                let size = self.scratch(4.min(self.taken.scratch.len() - 1));
                self.size_of(value, size, over)?;
                let cells = self.cells_of(step, over)?;
                self.increment(cells.indexed(64, size))?;
            }
            Action::Buckets { value, count, .. } => {
                let bucket = self.scratch(4.min(self.taken.scratch.len() - 1));
                self.load(value, bucket, over)?;
                self.put(Instruction::with2(Code::Cmp_rm64_imm32, bucket, count as i32))?;
                self.jump(Code::Jae_rel32_64, over)?;
                let cells = self.cells_of(step, over)?;
                self.increment(cells.indexed(0, bucket))?;
            }
            Action::Fold { value, fold, .. } => {
                let folded = self.scratch(4.min(self.taken.scratch.len() - 1));
                self.load(value, folded, over)?;
                let cells = self.cells_of(step, over)?;
                self.fold(fold, folded, cells.place(1))?;
                self.increment(cells.place(0))?;
            }
            Action::Time { cell, threads, enters, clock } => {
                let timer = Timer { cell, threads, line: TIMER, key: timed };
                if enters {
                    self.enter(timer, clock, over)?
                } else {
                    self.leave(timer, clock, over)?
                }
            }
            Action::Durations { cell, threads, enters, clock } => {
                let timer = Timer { cell, threads, line: DURATIONS, key: timed };
                if enters { self.begin(timer, clock, over)? } else { self.end(timer, clock, over)? }
            }
            Action::Event { what, payload } => self.event(what, payload, over)?,
            Action::Print { what, ref items } => self.print(what, items, over)?,
            Action::Assign { local, ref formula, .. } => self.assign(local, formula, over)?,
            Action::Keep { ref kept, value, adds } => self.keep(kept, value, adds, over)?,
        }
        self.bind(over);
        Ok(())
    }

    /// Folds a value into a cell. Changes the register that holds the value.
    fn fold(&mut self, fold: Fold, value: Register, cell: MemoryOperand) -> Result<(), Why> {
        if fold == Fold::Sum {
            return self.put_locked(Instruction::with2(Code::Add_rm64_r64, cell, value));
        }
        // Adding half of all numbers turns the order of signed numbers into that of numbers without
        // sign, in which 0 is the first.
        self.put(Instruction::with2(Code::Btc_rm64_imm8, value, 63))?;
        if fold == Fold::Least {
            self.put(Instruction::with1(Code::Not_rm64, value))?;
        }
        let (again, done) = (self.label(), self.label());
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, cell))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, value))?;
        self.jump(Code::Jae_rel32_64, done)?;
        // If another thread was first, the register now holds what it has stored.
        self.put_locked(Instruction::with2(Code::Cmpxchg_rm64_r64, cell, value))?;
        self.jump(Code::Jne_rel32_64, again)?;
        self.bind(done);
        Ok(())
    }
}
