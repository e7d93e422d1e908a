//! Writes the code of a step.

use super::step::{Action, DURATIONS, Step, TIMER};
use super::timer::Timer;
use super::value::Base;
use super::writer::Writer;
use crate::why::Why;

impl Writer<'_> {
    /// Writes a whole step.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), Why> {
        let over = self.label();
        self.condition(&step.when, over)?;
        match step.action {
            // Written once the registers are the program's again.
            Action::Poison { .. } => {}
            Action::Flag { cell } => self.flag(cell)?,
            Action::Count { .. } => {
                let cells = self.cells_of(step, over)?;
                self.increment(cells.place(0))?;
            }
            Action::Histogram { value, .. } => {
                let size = self.scratch(4.min(self.taken.scratch.len() - 1));
                self.size_of(value, size, over)?;
                let cells = self.cells_of(step, over)?;
                self.increment(cells.indexed(64, size))?;
            }
            Action::Time { cell, threads, enters, clock } => {
                let key = step.key.map_or(Base::Context, |key| key.base);
                let timer = Timer { cell, threads, line: TIMER, key };
                if enters {
                    self.enter(timer, clock, over)?
                } else {
                    self.leave(timer, clock, over)?
                }
            }
            Action::Durations { cell, threads, enters, clock } => {
                let key = step.key.map_or(Base::Context, |key| key.base);
                let timer = Timer { cell, threads, line: DURATIONS, key };
                if enters { self.begin(timer, clock, over)? } else { self.end(timer, clock, over)? }
            }
            Action::Event { what, payload } => self.event(what, payload, over)?,
        }
        self.bind(over);
        Ok(())
    }
}
