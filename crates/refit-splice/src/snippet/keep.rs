//! Keeps values by key in maps that all processors share ([`kept`](crate::kept)).
//!
//! # Several threads, and signal handlers
//!
//! An entry of a map, its key and its value, changes as a whole, by `lock cmpxchg16b`, so every
//! change is one step that either happens or finds out that another thread was first. A key is
//! searched in [`PROBES`](kept::PROBES) entries, from its *home* on, which its hash selects, up to
//! the first free one. A key that is set never becomes 0 again.
//!
//! A key is set in two ways. *First*, in the first free entry. *Second*, if none of the entries is
//! free, in place of another key that has no value; the thread then holds the lock of the key's
//! home, and has searched the key once more under it. The exchange fails if the other key has got a
//! value, or was replaced, in the meantime.
//!
//! *A key is in one entry at most.* Two threads that set it in the first way find the same free
//! entry: an entry before that which is no longer free was never free again, and an exchange of it
//! fails. A thread that sets it in the second way has found no free entry, so none can be set in
//! the first way any more, and one that was set before is found. Two threads that set it in the
//! second way have the same lock.
//!
//! *A search that does not find a key is right*: between reading an entry too early and another too
//! late, the key had no value, since it lost its entry only by that.
//!
//! *A value belongs to the key under which it was looked up.* The two words of an entry are read by
//! the same instruction, which stores what it has read.
//!
//! A thread that finds the lock taken tries some times, and then gives up, and counts the value as
//! lost: a signal handler that has interrupted the holder would wait in vain. All other retries
//! follow the success of another thread. `kept_model` tries all orders of some threads' steps.
//!
//! The instruction is atomic on every x86-64 processor that has run Linux since 2006; the first
//! ones lacked it.

use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use super::formula::Kept;
use super::key::Key;
use super::search::{COMPARED, Search};
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

/// The registers and labels for storing.
#[derive(Clone, Copy, Debug)]
struct Store {
    map: u16,
    place: Place,
    /// Holds the value.
    stored: Register,
    /// Holds an entry whose key has no value.
    unused: Register,
    restart: Label,
    lost: Label,
    over: Label,
}

/// Number of times that a thread tries to take a lock.
const TRIES: i32 = 100;

/// Returns the instruction that sets the zero flag if a register is 0.
fn is_0(register: Register) -> Result<Instruction, IcedError> {
    Instruction::with2(Code::Test_rm64_r64, register, register)
}

impl Writer<'_> {
    /// Leaves the value under a key in `rdx`; 0 if there is none. Jumps if the key cannot be read.
    /// Changes the first four scratch registers.
    pub(super) fn look_up(&mut self, kept: &Kept, nowhere: Label) -> Result<(), Why> {
        let place = self.key_of(kept, nowhere)?;
        let [again, found, absent, done] = [0; 4].map(|_| self.label());
        self.put(is_0(place.key))?;
        self.jump(Code::Je_rel32_64, absent)?;
        self.first_entry(kept.map, place)?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.put(is_0(COMPARED))?;
        self.jump(Code::Je_rel32_64, absent)?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.next_entry(place, again)?;
        self.jump(Code::Jmp_rel32_64, absent)?;
        self.bind(found);
        // Exchanges the entry for itself, and reads both words by that.
        self.put(Instruction::with2(Code::Mov_r64_rm64, EXPECTED, place.value_word()))?;
        self.copy(VALUE, EXPECTED)?;
        self.exchange(place)?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, done)?;
        self.bind(absent);
        self.clear(EXPECTED)?;
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
        let [restart, lost, over] = [0; 3].map(|_| self.label());
        let store = Store { map: kept.map, place, stored, unused, restart, lost, over };
        self.put(is_0(place.key))?;
        self.jump(Code::Je_rel32_64, lost)?;
        self.store(store, adds)?;
        self.take_over(store)?;
        self.bind(lost);
        let map = self.map(kept.map)?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, place.left, map))?;
        self.increment(MemoryOperand::with_base(place.left))?;
        self.bind(over);
        Ok(())
    }

    /// Stores a value if the key, or a free entry, is found; falls through if neither is.
    fn store(&mut self, store: Store, adds: bool) -> Result<(), Why> {
        let Store { map, place, stored, restart, over, .. } = store;
        let [again, next, found, update] = [0; 4].map(|_| self.label());
        self.bind(restart);
        self.first_entry(map, place)?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.put(is_0(COMPARED))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.put(is_0(stored))?;
        self.jump(Code::Je_rel32_64, over)?;
        self.clear(EXPECTED)?;
        self.copy(VALUE, stored)?;
        self.exchange(place)?;
        self.jump(Code::Je_rel32_64, over)?;
        self.jump(Code::Jmp_rel32_64, restart)?;
        self.bind(found);
        self.put(Instruction::with2(Code::Mov_r64_rm64, EXPECTED, place.value_word()))?;
        self.bind(update);
        self.copy(VALUE, stored)?;
        if adds {
            self.put(Instruction::with2(Code::Add_r64_rm64, VALUE, EXPECTED))?;
        }
        self.exchange(place)?;
        self.jump(Code::Je_rel32_64, over)?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, update)?;
        self.jump(Code::Jmp_rel32_64, restart)?;
        self.bind(next);
        self.next_entry(place, again)
    }

    /// Stores a value in place of a key that has none, and jumps to `over`. Falls through if there
    /// is no such key, or the lock is taken.
    fn take_over(&mut self, store: Store) -> Result<(), Why> {
        let Store { place, stored, lost, over, .. } = store;
        let [locked, again] = [0; 2].map(|_| self.label());
        self.put(is_0(stored))?;
        self.jump(Code::Je_rel32_64, over)?;
        let lock = self.lock_of(store)?;
        let tries = place.left.full_register32();
        self.put(Instruction::with2(Code::Mov_r32_imm32, tries, TRIES))?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, 1))?;
        self.put(Instruction::with2(Code::Xchg_rm8_r8, lock, Register::AL))?;
        self.put(Instruction::with2(Code::Test_rm8_r8, Register::AL, Register::AL))?;
        self.jump(Code::Je_rel32_64, locked)?;
        self.plain(Code::Pause);
        self.put(Instruction::with1(Code::Dec_rm32, tries))?;
        self.jump(Code::Jne_rel32_64, again)?;
        self.jump(Code::Jmp_rel32_64, lost)?;
        self.bind(locked);
        self.replace(store)?;
        self.unlock(store)
    }

    /// Replaces a key that has no value, under the lock; falls through if there is none.
    fn replace(&mut self, store: Store) -> Result<(), Why> {
        let Store { map, place, stored, unused, restart, over, .. } = store;
        let [first, again, next, there, full] = [0; 5].map(|_| self.label());
        self.bind(first);
        self.first_entry(map, place)?;
        self.clear(unused)?;
        self.bind(again);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, COMPARED, place.key))?;
        self.jump(Code::Je_rel32_64, there)?;
        self.put(is_0(unused))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, place.value_word(), 0))?;
        self.jump(Code::Jne_rel32_64, next)?;
        self.copy(unused, place.entry)?;
        self.bind(next);
        self.next_entry(place, again)?;
        // Only now is it known that no entry has the key.
        self.put(is_0(unused))?;
        self.jump(Code::Je_rel32_64, full)?;
        self.copy(place.entry, unused)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, COMPARED, place.key_word()))?;
        self.clear(EXPECTED)?;
        self.copy(VALUE, stored)?;
        self.exchange(place)?;
        self.jump(Code::Jne_rel32_64, first)?;
        self.unlock(store)?;
        self.jump(Code::Jmp_rel32_64, over)?;
        self.bind(there);
        self.unlock(store)?;
        self.jump(Code::Jmp_rel32_64, restart)?;
        self.bind(full);
        Ok(())
    }

    /// Finds the lock of the key's home. Changes the registers of the entry and of the unused one.
    fn lock_of(&mut self, store: Store) -> Result<MemoryOperand, Why> {
        let Store { map, place, unused: lock, .. } = store;
        let first = self.map(map)? + u64::from(kept::LOCKS);
        self.home(place)?;
        let shift = kept::ENTRY.trailing_zeros();
        self.put(Instruction::with2(Code::Shr_rm64_imm8, place.entry, shift))?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, lock, first))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, lock, place.entry))?;
        Ok(MemoryOperand::with_base(lock))
    }

    fn unlock(&mut self, store: Store) -> Result<(), Why> {
        let lock = self.lock_of(store)?;
        self.put(Instruction::with2(Code::Mov_rm8_imm8, lock, 0))
    }

    fn clear(&mut self, register: Register) -> Result<(), Why> {
        let narrow = register.full_register32();
        self.put(Instruction::with2(Code::Xor_r32_rm32, narrow, narrow))
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

    /// Finds the home of a key: the offset of the first entry that is searched.
    fn home(&mut self, place: Place) -> Result<(), Why> {
        let Place { key, entry, left } = place;
        let (entries, bytes) = (kept::ENTRIES, kept::ENTRY);
        let search =
            Search { key, place: entry, base: left, left, table: 0, entries, bytes, makes: false };
        self.spread(search)
    }

    /// Finds the first entry that is searched.
    fn first_entry(&mut self, map: u16, place: Place) -> Result<(), Why> {
        let first = self.map(map)? + u64::from(kept::HEADER);
        let left = place.left;
        self.home(place)?;
        self.put(Instruction::with2(Code::Mov_r64_imm64, left, first))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, place.entry, left))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, left.full_register32(), kept::PROBES))
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
        let exchange =
            |entry| Instruction::with1(Code::Cmpxchg16b_m128, MemoryOperand::with_base(entry));
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
