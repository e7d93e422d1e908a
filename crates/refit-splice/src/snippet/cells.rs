//! Finds the cells that a step counts into: those of this processor, or those of a key on this
//! processor.
//!
//! An entry of the table of keys ([`search`](super::search)) begins with the key plus one. A key
//! that finds no free entry within `PROBES` probes counts into the cells that all such keys share.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::count::CPU_ID;
use super::key::Key;
use super::search::Search;
use super::setting::Lane;
use super::step::Step;
use super::writer::{Label, Writer};
use crate::why::Why;

/// Address of the cells of a step: a register and a displacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellAddress {
    register: Register,
    offset: i64,
}

impl CellAddress {
    /// Returns the operand of the cell with this number.
    pub(super) fn place(self, number: u32) -> MemoryOperand {
        MemoryOperand::with_base_displ(self.register, self.offset + i64::from(number) * 8)
    }

    /// Returns the operand of the cell whose number is `first` plus the value of `index`.
    pub(super) fn indexed(self, first: u32, index: Register) -> MemoryOperand {
        let offset = self.offset + i64::from(first) * 8;
        MemoryOperand::with_base_index_scale_displ_size(self.register, index, 8, offset, 8)
    }
}

impl Writer<'_> {
    /// Finds the cells that a step counts into now. Jumps if its key cannot be read.
    pub(super) fn cells_of(&mut self, step: &Step, nowhere: Label) -> Result<CellAddress, Why> {
        let cells = self.setting.cells;
        let first = i64::from(step.action.first()) * 8;
        if let Some(key) = &step.key {
            let sought = self.scratch(1);
            match key {
                Key::Value(key) => self.load(*key, sought, nowhere)?,
                Key::Tuple(parts) => self.tuple(parts, sought, nowhere)?,
            }
            return self.entry_of(step, sought, first);
        }
        if cells.lane == Lane::One && self.taken.scratch.is_empty() {
            let offset = cells.first.cast_signed() + first;
            return Ok(CellAddress { register: Register::RIP, offset });
        }
        let lane = self.scratch(0);
        self.lane(lane)?;
        Ok(CellAddress { register: lane, offset: first })
    }

    /// Finds the entry of a key in this processor's table, and makes it if there is none.
    fn entry_of(&mut self, step: &Step, key: Register, first: i64) -> Result<CellAddress, Why> {
        let (lane, place, left) = (self.scratch(0), self.scratch(2), self.scratch(3));
        let each = step.action.cells();
        let table = first + i64::from(each) * 8;
        let bytes = (1 + each) * 8;
        let entries = step.keys();
        let search = Search { key, place, base: lane, left, table, entries, bytes, makes: true };
        let (found, others) = (self.label(), self.label());
        self.lane(lane)?;
        // An entry holds its key plus one.
        let plus_one = MemoryOperand::with_base_displ(key, 1);
        self.put(Instruction::with2(Code::Lea_r64_m, key, plus_one))?;
        self.put(Instruction::with2(Code::Test_rm64_r64, key, key))?;
        self.jump(Code::Je_rel32_64, others)?;
        self.spread(search)?;
        self.search(search, found, others)?;
        self.bind(others);
        // Adjusted so that the shared cells have the same offsets as those of an entry.
        let before = MemoryOperand::with_base_displ(lane, first - table - 8);
        self.put(Instruction::with2(Code::Lea_r64_m, place, before))?;
        self.bind(found);
        Ok(CellAddress { register: place, offset: table + 8 })
    }

    /// Sets a flag. Flags are in the first lane on every processor: all of them store the same
    /// value.
    pub(super) fn flag(&mut self, cell: u32) -> Result<(), Why> {
        let place = (self.setting.cells.first + u64::from(cell) * 8).cast_signed();
        let place = MemoryOperand::with_base_displ(Register::RIP, place);
        self.put(Instruction::with2(Code::Mov_rm8_imm8, place, 1_u32))
    }

    /// Finds the address of this processor's lane.
    fn lane(&mut self, into: Register) -> Result<(), Why> {
        let cells = self.setting.cells;
        let narrow = into.full_register32();
        let base = MemoryOperand::with_base_displ(Register::RIP, cells.base.cast_signed());
        if !self.processor(into)? {
            return self.put(Instruction::with2(Code::Mov_r64_rm64, into, base));
        }
        self.put(Instruction::with2(Code::And_rm32_imm32, narrow, (1_u32 << cells.lanes) - 1))?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, into, cells.stride))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, into, base))
    }

    /// Finds the address of the cells that all processors share: those of the first lane.
    pub(super) fn shared(&mut self, into: Register) -> Result<(), Why> {
        let base = self.setting.cells.base.cast_signed();
        let word = MemoryOperand::with_base_displ(Register::RIP, base);
        self.put(Instruction::with2(Code::Mov_r64_rm64, into, word))
    }

    /// Finds the number of this processor; returns whether there is a way to.
    pub(super) fn processor(&mut self, into: Register) -> Result<bool, Why> {
        match self.setting.cells.lane {
            // `cpu_id` is -1 in a thread that has not registered yet: any lane will do.
            Lane::Area(offset) => self.word_of_thread(into, offset + CPU_ID)?,
            Lane::Asked => self.put(Instruction::with1(Code::Rdpid_r64, into))?,
            Lane::One => return Ok(false),
        }
        Ok(true)
    }
}
