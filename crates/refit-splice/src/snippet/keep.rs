//! Keeps values by key in maps that all processors share ([`kept`](crate::kept)).
//!
//! # Several threads, and signal handlers
//!
//! An entry of a map, its key and its value, changes as a whole, by `lock cmpxchg16b`, so every
//! change is one step that either happens or finds out that another thread was first. A key is
//! searched in [`PROBES`](kept::PROBES) entries, from the one that its hash selects on, up to the
//! first free one.
//!
//! *A key that has a value is found.* A key that was set never becomes 0 again, so a search does not
//! end before an entry that was behind a free one. A key without a value may be replaced by another
//! one, if there is no free entry among those that are searched: its entry is then the other key's.
//! The exchange fails if the entry has got a value, or another key, in the meantime; then
//! everything begins anew. An exchange fails only because another thread's succeeded.
//!
//! *A key has two values only if two threads stored it at the same time*, each in another entry
//! whose key had no value, while a third thread deleted that of one of them. Then the first one in
//! the order of the search is its value, and a deletion deletes both.
//!
//! *A value belongs to the key under which it was looked up.* The two words of an entry are read by
//! the same instruction, which stores what it has read.
//!
//! The instruction is atomic on every x86-64 processor that has run Linux since 2006; the first
//! ones lacked it.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::formula::Kept;
use super::search::{COMPARED, Search};
use super::step::Key;
use super::value::Value;
use super::writer::{Label, Writer};
use crate::kept;
use crate::why::Why;

/// The registers of an exchange: the expected key is in [`COMPARED`], the expected value in
/// `EXPECTED`, the new value in `VALUE`. The new key has to be in `rbx`.
const EXPECTED: Register = Register::RDX;
const VALUE: Register = Register::RCX;

/// The registers of a search in a map.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Holds the key, as an entry has it.
    key: Register,
    /// Receives the address of the entry.
    entry: Register,
    /// Holds the address of the map until the search begins, then counts the remaining probes.
    left: Register,
}

impl Place {
    fn key_word(self) -> MemoryOperand {
        MemoryOperand::with_base(self.entry)
    }

    fn value_word(self) -> MemoryOperand {
        MemoryOperand::with_base_displ(self.entry, 8)
    }
}

impl Writer<'_> {
    /// Leaves the value under a key in `rdx`; 0 if there is none. Jumps if the key cannot be read.
    /// Changes the first four scratch registers.
    pub(super) fn look_up(&mut self, kept: &Kept, nowhere: Label) -> Result<(), Why> {
        let place = self.key_of(kept, nowhere)?;
        let [again, next, absent, done] = [0; 4].map(|_| self.label());
        self.put(Instruction::with2(Code::Test_rm64_r64, place.key, place.key))?;
        self.jump(Code::Je_rel32_64, absent)?;
        self.first_entry(kept.map, place)?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.put(Instruction::with2(Code::Test_rm64_r64, COMPARED, COMPARED))?;
        self.jump(Code::Je_rel32_64, absent)?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Jne_rel32_64, next)?;
        // Exchanges the entry for itself, and reads both words by that.
        self.put(Instruction::with2(Code::Mov_r64_rm64, EXPECTED, place.value_word()))?;
        self.copy(VALUE, EXPECTED)?;
        self.exchange(place)?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.put(Instruction::with2(Code::Test_rm64_r64, EXPECTED, EXPECTED))?;
        self.jump(Code::Jne_rel32_64, done)?;
        self.bind(next);
        self.next_entry(place, again)?;
        self.bind(absent);
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX))?;
        self.bind(done);
        Ok(())
    }

    /// Stores a value under a key, or with `adds`, adds it to what is there. 0 is no value. Jumps
    /// if the key or the value cannot be read.
    pub(super) fn keep(
        &mut self,
        kept: &Kept,
        value: Value,
        adds: bool,
        nowhere: Label,
    ) -> Result<(), Why> {
        let place = self.key_of(kept, nowhere)?;
        let (unused, stored) = (self.scratch(0), self.scratch(4));
        self.load(value, stored, nowhere)?;
        let [lost, over] = [0; 2].map(|_| self.label());
        self.put(Instruction::with2(Code::Test_rm64_r64, place.key, place.key))?;
        self.jump(Code::Je_rel32_64, lost)?;
        self.store(kept.map, place, [unused, stored], adds, lost, over)?;
        self.bind(lost);
        let map = self.map(kept.map)?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, place.left, map))?;
        self.increment(MemoryOperand::with_base(place.left))?;
        self.bind(over);
        Ok(())
    }

    /// Searches, exchanges, and jumps to `over`, or to `lost` if there is no room. `unused` holds
    /// the first entry whose key has no value, or 0.
    fn store(
        &mut self,
        map: u16,
        place: Place,
        [unused, stored]: [Register; 2],
        adds: bool,
        lost: Label,
        over: Label,
    ) -> Result<(), Why> {
        let [restart, again, next, free, new, found] = [0; 6].map(|_| self.label());
        let is_0 = |one| Instruction::with2(Code::Test_rm64_r64, one, one);
        let none = Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX);
        self.bind(restart);
        self.first_entry(map, place)?;
        let narrow = unused.full_register32();
        self.put(Instruction::with2(Code::Xor_r32_rm32, narrow, narrow))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.put(is_0(COMPARED))?;
        self.jump(Code::Je_rel32_64, free)?;
        self.put(is_0(unused))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, place.value_word(), 0))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.copy(unused, place.entry)?;
        self.bind(next);
        self.next_entry(place, again)?;
        // No entry is free, so one whose key has no value is taken over.
        self.put(is_0(stored))?;
        self.jump(Code::Je_rel32_64, over)?;
        self.put(is_0(unused))?;
        self.jump(Code::Je_rel32_64, lost)?;
        self.copy(place.entry, unused)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.jump(Code::Jmp_rel32_64, new)?;
        self.bind(free);
        self.put(is_0(stored))?;
        self.jump(Code::Je_rel32_64, over)?;
        self.bind(new);
        self.put(none)?;
        self.copy(VALUE, stored)?;
        self.exchange(place)?;
        self.jump(Code::Je_rel32_64, over)?;
        self.jump(Code::Jmp_rel32_64, restart)?;
        self.bind(found);
        self.put(Instruction::with2(Code::Mov_r64_rm64, EXPECTED, place.value_word()))?;
        let update = self.label();
        self.bind(update);
        self.copy(VALUE, stored)?;
        if adds {
            self.put(Instruction::with2(Code::Add_r64_rm64, VALUE, EXPECTED))?;
        }
        let failed = self.label();
        self.exchange(place)?;
        self.jump(Code::Jne_rel32_64, failed)?;
        if !adds {
            // A deleted key may have another value behind it.
            self.put(is_0(stored))?;
            self.jump(Code::Je_rel32_64, next)?;
        }
        self.jump(Code::Jmp_rel32_64, over)?;
        self.bind(failed);
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, update)?;
        self.jump(Code::Jmp_rel32_64, restart)
    }

    /// Finds a key as entries have it, in the second scratch register: 0 if no entry can have it.
    /// Changes the first four.
    fn key_of(&mut self, kept: &Kept, nowhere: Label) -> Result<Place, Why> {
        let [key, entry, left] = [1, 2, 3].map(|number| self.scratch(number));
        match &kept.key {
            None => {
                self.put(Instruction::with2(Code::Mov_r32_imm32, key.full_register32(), 1))?;
            }
            Some(Key::Value(value)) => {
                self.load(*value, key, nowhere)?;
                let plus_one = MemoryOperand::with_base_displ(key, 1);
                self.put(Instruction::with2(Code::Lea_r64_m, key, plus_one))?;
            }
            Some(Key::Tuple(items)) => self.tuple(items, key, nowhere)?,
        }
        Ok(Place { key, entry, left })
    }

    /// Returns the address of a map.
    fn map(&self, map: u16) -> Result<u64, Why> {
        let first = self.setting.kept.ok_or_else(|| Why::Generate {
            address: self.address,
            reason: "the plan has no room for values that are kept".to_owned(),
        })?;
        Ok(first + u64::from(map) * kept::MAP)
    }

    /// Finds where the search for a key begins.
    fn first_entry(&mut self, map: u16, place: Place) -> Result<(), Why> {
        let Place { key, entry, left } = place;
        let first = self.map(map)? + u64::from(kept::HEADER);
        let (entries, bytes) = (kept::ENTRIES, kept::ENTRY);
        let search =
            Search { key, place: entry, base: left, left, table: 0, entries, bytes, makes: false };
        self.spread(search)?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, left, first))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, entry, left))?;
        let left = left.full_register32();
        self.put(Instruction::with2(Code::Mov_r32_imm32, left, kept::PROBES))
    }

    /// Goes on with the next entry; falls through after the last one.
    fn next_entry(&mut self, place: Place, again: Label) -> Result<(), Why> {
        let bytes = kept::ENTRY as i32;
        self.put(Instruction::with2(Code::Add_rm64_imm8, place.entry, bytes))?;
        self.put(Instruction::with1(Code::Dec_rm32, place.left.full_register32()))?;
        self.jump(Code::Jne_rel32_64, again)
    }

    /// Replaces an entry, with the same key, if it is as expected; otherwise reads it.
    fn exchange(&mut self, place: Place) -> Result<(), Why> {
        let exchange = |entry| {
            Instruction::with1(Code::Cmpxchg16b_m128, MemoryOperand::with_base(entry))
        };
        if place.key == Register::RBX {
            return self.put_locked(exchange(place.entry));
        }
        // Neither exchange changes a flag.
        self.exchange_rbx(place.key, true)?;
        let entry = if place.entry == Register::RBX { place.key } else { place.entry };
        self.put_locked(exchange(entry))?;
        self.exchange_rbx(place.key, false)
    }
}
