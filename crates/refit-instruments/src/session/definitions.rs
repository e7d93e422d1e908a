//! The table of instruments in the memory of a session. Entries are found by name, so that a
//! thousand processes of one program share one entry.
//!
//! An entry is free, being written, or ready, in this order. A process that finds no entry of its
//! name claims the first free entry after the hash of the name by a compare-exchange, writes it and
//! makes it ready (Release). Two processes can write the same name into two entries only if one of
//! them stops while it writes; readers then show both.
//!
//! An instrument records while its switch is 0. Each bit is a reason for suspension, and each
//! reason has one owner, so that resuming for one reason never cancels another.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Session;
use super::layout::definition as at;
use super::layout::header;
use crate::definition::{Definition, Field, FieldKind, Role};

/// The number of times to check an entry that another process is writing.
const READY_ATTEMPTS: usize = 1000;
/// The maximum depth of inheritance between instruments; a greater depth means damage.
const MAX_DEPTH: usize = 8;

/// The states of an entry.
const FREE: u64 = 0;
const WRITING: u64 = 1;
const READY: u64 = 2;

/// Why an instrument does not record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Switch {
    /// The instrument was suspended individually.
    Own = 1,
    /// Its manager was suspended.
    Manager = 2,
    /// All instruments were suspended.
    System = 4,
    /// The instrument that it inherits from does not record.
    Parent = 8,
}

/// The kind of an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// An event.
    Event = 1,
    /// A counter.
    Counter = 2,
    /// A timer.
    Timer = 3,
    /// An instrument manager.
    Manager = 4,
}

/// The description of an instrument in the table.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// Its name, of which at most 224 bytes are stored.
    pub name: &'a str,
    /// Its manager, of which at most 96 bytes are stored.
    pub manager: &'a str,
    /// Its kind.
    pub kind: Kind,
    /// Its role in analyses.
    pub role: Role,
    /// The names (at most 39 bytes) and kinds of its fields, of which four are stored.
    pub fields: &'a [(&'a str, FieldKind)],
    /// The ID of the instrument that it inherits from; 0 for none.
    pub parent: u32,
}

/// The roles and the kinds of fields in the order of their numbers in the table, which begin at 1.
const ROLES: [Role; 8] = [
    Role::Plain,
    Role::Request,
    Role::Change,
    Role::Wait,
    Role::Hold,
    Role::SwitchIn,
    Role::SwitchOut,
    Role::Dump,
];
const FIELDS: [FieldKind; 7] = [
    FieldKind::U64,
    FieldKind::I64,
    FieldKind::F64,
    FieldKind::Address,
    FieldKind::Ticks,
    FieldKind::U32,
    FieldKind::I32,
];

impl Session {
    /// Finds or creates the entry of an instrument. Returns its ID, or `None` if the table is full.
    pub fn define(&self, described: &Described) -> Option<u32> {
        let area = self.area;
        let count = area.geometry().definitions;
        let first = hash(described) as usize;
        for index in (0..count).map(|i| (first + i) & (count - 1)) {
            let entry = area.definition(index);
            // Pairs with the Release below, by the creator of the entry.
            let claimed = entry[at::STATE].compare_exchange(
                FREE,
                WRITING,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if claimed.is_ok() {
                write(entry, described);
                entry[at::STATE].store(READY, Ordering::Release);
                area.header(header::DEFINED).fetch_add(1, Ordering::AcqRel);
                self.inherit_switches(index as u32 + 1, described);
                return Some(index as u32 + 1);
            }
            if ready(entry) && is(entry, described) {
                return Some(index as u32 + 1);
            }
        }
        None
    }

    /// Returns the number of entries.
    pub fn defined(&self) -> u64 {
        self.area.header(header::DEFINED).load(Ordering::Acquire)
    }

    /// Returns the definitions of all entries that can occur in records, which are all but
    /// managers.
    pub fn definitions(&self) -> Vec<Definition> {
        self.entries().filter(|(_, kind, _)| *kind != Kind::Manager).map(|(_, _, d)| d).collect()
    }

    /// Returns all entries that are ready, with their index, kind and definition.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, Kind, Definition)> {
        (0..self.area.geometry().definitions).filter_map(|index| {
            let entry = self.area.definition(index);
            (entry[at::STATE].load(Ordering::Acquire) == READY)
                .then(|| read(entry, index as u32 + 1))
                .map(|(kind, definition)| (index, kind, definition))
        })
    }

    /// Returns the ID of the manager of this name, and creates it if there is none.
    pub(crate) fn manager(&self, name: &str) -> Option<u32> {
        self.define(&manager_entry(name))
    }

    /// Returns whether a manager's instruments are suspended.
    pub(crate) fn manager_suspended(&self, name: &str) -> bool {
        self.manager(name).is_some_and(|id| self.switch(id).load(Ordering::Acquire) != 0)
    }

    /// Suspends or resumes all instruments of a manager, including future ones.
    pub(crate) fn switch_manager(&self, name: &str, suspended: bool) {
        let Some(id) = self.manager(name) else { return };
        set(self.switch(id), Switch::Own, suspended);
        // Pairs with the fence in `inherit_switches`: either that sees the manager's switch, or
        // this sees its entry.
        fence(Ordering::SeqCst);
        for (index, _, definition) in self.entries().filter(|(_, kind, _)| *kind != Kind::Manager) {
            if definition.manager == name {
                self.switch_one(index as u32 + 1, Switch::Manager, suspended);
            }
        }
    }

    /// Suspends or resumes all instruments, including future ones.
    pub(crate) fn switch_system(&self, suspended: bool) {
        set(self.area.header(header::SYSTEM), Switch::System, suspended);
        // Pairs with the fence in `inherit_switches`.
        fence(Ordering::SeqCst);
        for (index, ..) in self.entries().filter(|(_, kind, _)| *kind != Kind::Manager) {
            self.switch_one(index as u32 + 1, Switch::System, suspended);
        }
    }

    /// Returns whether all instruments are suspended together.
    pub(crate) fn system_suspended(&self) -> bool {
        self.area.header(header::SYSTEM).load(Ordering::Acquire) != 0
    }

    /// Adds or removes a reason for the suspension of an instrument and of those that inherit from
    /// it.
    pub(crate) fn switch_one(&self, id: u32, why: Switch, suspended: bool) {
        self.switch_down(id, why, suspended, MAX_DEPTH);
    }

    fn switch_down(&self, id: u32, why: Switch, suspended: bool, depth: usize) {
        set(self.switch(id), why, suspended);
        if depth == 0 {
            return;
        }
        // Pairs with the fence in `inherit_switches`.
        fence(Ordering::SeqCst);
        let suspended = self.switch(id).load(Ordering::Acquire) != 0;
        for index in 0..self.area.geometry().definitions {
            let entry = self.area.definition(index);
            if entry[at::STATE].load(Ordering::Acquire) == READY
                && entry[at::PARENT].load(Ordering::Relaxed) == u64::from(id)
            {
                self.switch_down(index as u32 + 1, Switch::Parent, suspended, depth - 1);
            }
        }
    }

    /// Sets the switches of a new entry to those of its manager, of the system and of its parent.
    fn inherit_switches(&self, id: u32, described: &Described) {
        // Pairs with the fences of the switching functions: either those see the entry, or this
        // sees their switch.
        fence(Ordering::SeqCst);
        if described.kind == Kind::Manager {
            return;
        }
        let manager = self.find(&manager_entry(described.manager));
        let on = |word: &AtomicU64| word.load(Ordering::Acquire) != 0;
        if manager.is_some_and(|id| on(self.switch(id))) {
            set(self.switch(id), Switch::Manager, true);
        }
        if self.system_suspended() {
            set(self.switch(id), Switch::System, true);
        }
        if described.parent != 0 && on(self.switch(described.parent)) {
            set(self.switch(id), Switch::Parent, true);
        }
    }

    /// Returns the switch of an entry. `id` must come from [`Session::define`]; other values refer
    /// to the last entry.
    pub(crate) fn switch(&self, id: u32) -> &'static AtomicU64 {
        let last = self.area.geometry().definitions - 1;
        &self.area.definition((id as usize).saturating_sub(1).min(last))[at::SWITCH]
    }

    /// Returns the entry of an instrument, if there is one.
    pub(crate) fn find(&self, described: &Described) -> Option<u32> {
        let count = self.area.geometry().definitions;
        let first = hash(described) as usize;
        (0..count)
            .map(|i| (first + i) & (count - 1))
            .take_while(|index| {
                self.area.definition(*index)[at::STATE].load(Ordering::Acquire) != FREE
            })
            .find(|index| {
                let entry = self.area.definition(*index);
                entry[at::STATE].load(Ordering::Acquire) == READY && is(entry, described)
            })
            .map(|index| index as u32 + 1)
    }
}

fn manager_entry(name: &str) -> Described<'_> {
    let manager = "system";
    Described { name, manager, kind: Kind::Manager, role: Role::Plain, fields: &[], parent: 0 }
}

fn set(word: &AtomicU64, why: Switch, suspended: bool) {
    if suspended {
        word.fetch_or(why as u64, Ordering::AcqRel);
    } else {
        word.fetch_and(!(why as u64), Ordering::AcqRel);
    }
}

/// Returns whether an entry is ready, after waiting for a while for its writer.
fn ready(entry: &[AtomicU64]) -> bool {
    (0..READY_ATTEMPTS).any(|_| {
        let ready = entry[at::STATE].load(Ordering::Acquire) == READY;
        if !ready {
            refit_sys::thread::give_way();
        }
        ready
    })
}

fn write(entry: &[AtomicU64], described: &Described) {
    let role = ROLES.iter().position(|role| *role == described.role).unwrap_or(0) as u64;
    entry[at::ROLE].store((described.kind as u64) << 32 | role, Ordering::Relaxed);
    entry[at::PARENT].store(described.parent.into(), Ordering::Relaxed);
    text_in(&entry[at::NAME..][..at::NAME_WORDS], 0, described.name);
    text_in(&entry[at::MANAGER..][..at::MANAGER_WORDS], 0, described.manager);
    let places = entry[at::FIELDS..].chunks(at::FIELD_WORDS).take(at::FIELD_COUNT);
    for (place, (name, kind)) in places.zip(described.fields) {
        let kind = FIELDS.iter().position(|k| k == kind).unwrap_or(0) as u8 + 1;
        text_in(place, kind, name);
    }
}

fn read(entry: &[AtomicU64], id: u32) -> (Kind, Definition) {
    let role = entry[at::ROLE].load(Ordering::Relaxed);
    let kind = match role >> 32 {
        2 => Kind::Counter,
        3 => Kind::Timer,
        4 => Kind::Manager,
        _ => Kind::Event,
    };
    let places = entry[at::FIELDS..].chunks(at::FIELD_WORDS).take(at::FIELD_COUNT);
    let fields = places.map_while(|place| {
        let (number, name) = text_of(place, true);
        let kind = *FIELDS.get(usize::from(number.checked_sub(1)?))?;
        Some(Field { name, kind })
    });
    let definition = Definition {
        id,
        name: text_of(&entry[at::NAME..][..at::NAME_WORDS], false).1,
        manager: text_of(&entry[at::MANAGER..][..at::MANAGER_WORDS], false).1,
        role: ROLES.get(role as u32 as usize).copied().unwrap_or_default(),
        fields: fields.collect(),
    };
    (kind, definition)
}

/// Returns whether the entry has the same name, manager and kind.
fn is(entry: &[AtomicU64], described: &Described) -> bool {
    entry[at::ROLE].load(Ordering::Relaxed) >> 32 == described.kind as u64
        && same(&entry[at::NAME..][..at::NAME_WORDS], described.name)
        && same(&entry[at::MANAGER..][..at::MANAGER_WORDS], described.manager)
}

/// Returns the bytes of a text as words: preceded by `first` (unless it is 0), padded with zeros,
/// and truncated to fit.
fn words_of(text: &str, first: u8, count: usize) -> impl Iterator<Item = u64> {
    let room = count * 8 - usize::from(first != 0);
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let front = (first != 0).then_some(first);
    let mut bytes = front.into_iter().chain(text.as_bytes()[..end].iter().copied());
    (0..count).map(move |_| u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))))
}

fn text_in(place: &[AtomicU64], first: u8, text: &str) {
    for (word, value) in place.iter().zip(words_of(text, first, place.len())) {
        word.store(value, Ordering::Relaxed);
    }
}

fn same(place: &[AtomicU64], text: &str) -> bool {
    place
        .iter()
        .zip(words_of(text, 0, place.len()))
        .all(|(word, value)| word.load(Ordering::Relaxed) == value)
}

/// Returns a text up to its first zero byte. With `numbered` the first byte is returned separately.
fn text_of(place: &[AtomicU64], numbered: bool) -> (u8, String) {
    let bytes: Vec<u8> =
        place.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let text = &bytes[usize::from(numbered)..];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    (bytes[0], String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Returns FNV-1a (Fowler, Noll, Vo) of the manager and the name, in 32 bits.
fn hash(described: &Described) -> u32 {
    let bytes = described.manager.bytes().chain(described.name.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
