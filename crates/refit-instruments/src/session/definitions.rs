//! The table of what instruments there are, in the memory of a session: found by name, so that a thousand processes of
//! one program share one entry.
//!
//! An entry is free, being written, or ready; it never goes back. Who finds none of its name claims the first free one
//! behind the hash of it by a compare-exchange, writes it and makes it ready (Release). Two processes can get the same
//! name into two entries only if one of them stops while it writes: readers show both.
//!
//! An instrument records while its switch is 0. Each bit is a reason why it does not, and each reason has one owner, so
//! that resuming one thing never resumes what another has suspended.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Session;
use super::layout::definition as at;
use super::layout::header;
use crate::definition::{Definition, Field, FieldKind, Role};

/// How often to look at an entry that another process is writing.
const PATIENCE: usize = 1000;
/// How deep instruments inherit from each other; deeper is damage.
const DEPTH: usize = 8;

/// States of an entry.
const FREE: u64 = 0;
const WRITING: u64 = 1;
const READY: u64 = 2;

/// Why an instrument does not record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Switch {
    /// It was suspended itself.
    Own = 1,
    /// Its manager was.
    Manager = 2,
    /// All instruments were.
    System = 4,
    /// The instrument that it inherits from does not record.
    Parent = 8,
}

/// What an entry of the table is.
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

/// What the table says of an instrument.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// Its name; at most 224 bytes count.
    pub name: &'a str,
    /// Its manager; at most 96 bytes count.
    pub manager: &'a str,
    /// What it is.
    pub kind: Kind,
    /// What readers make of it.
    pub role: Role,
    /// Names (39 bytes) and kinds of its fields; four count.
    pub fields: &'a [(&'a str, FieldKind)],
    /// Id of the instrument that it inherits from; 0: none.
    pub parent: u32,
}

/// Numbers of roles and fields in the table, in the order of their declaration, from 1 on.
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
    /// Finds or makes the entry of an instrument; its id, or `None` if the table is full.
    pub fn define(&self, described: &Described) -> Option<u32> {
        let area = self.area;
        let count = area.geometry().definitions;
        let first = hash(described) as usize;
        for index in (0..count).map(|i| (first + i) & (count - 1)) {
            let entry = area.definition(index);
            // Pairs with the Release below, of who made it.
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

    /// How many entries there are.
    pub fn defined(&self) -> u64 {
        self.area.header(header::DEFINED).load(Ordering::Acquire)
    }

    /// Everything that can occur in records: all entries but managers.
    pub fn definitions(&self) -> Vec<Definition> {
        self.entries().filter(|(_, kind, _)| *kind != Kind::Manager).map(|(_, _, d)| d).collect()
    }

    /// All entries that are ready: index, kind, and what they say.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, Kind, Definition)> {
        (0..self.area.geometry().definitions).filter_map(|index| {
            let entry = self.area.definition(index);
            (entry[at::STATE].load(Ordering::Acquire) == READY)
                .then(|| read(entry, index as u32 + 1))
                .map(|(kind, definition)| (index, kind, definition))
        })
    }

    /// The manager of this name: made if there is none.
    pub(crate) fn manager(&self, name: &str) -> Option<u32> {
        self.define(&manager_entry(name))
    }

    /// Whether a manager's instruments are suspended.
    pub(crate) fn manager_suspended(&self, name: &str) -> bool {
        self.manager(name).is_some_and(|id| self.switch(id).load(Ordering::Acquire) != 0)
    }

    /// Suspends all instruments of a manager, also those to come, or resumes them.
    pub(crate) fn switch_manager(&self, name: &str, suspended: bool) {
        let Some(id) = self.manager(name) else { return };
        set(self.switch(id), Switch::Own, suspended);
        // Pairs with the fence in `inherit_switches`: either it sees the manager's switch or we its entry.
        fence(Ordering::SeqCst);
        for (index, _, definition) in self.entries().filter(|(_, kind, _)| *kind != Kind::Manager) {
            if definition.manager == name {
                self.switch_one(index as u32 + 1, Switch::Manager, suspended);
            }
        }
    }

    /// Suspends all instruments, also those to come, or resumes them.
    pub(crate) fn switch_system(&self, suspended: bool) {
        set(self.area.header(header::SYSTEM), Switch::System, suspended);
        // Pairs with the fence in `inherit_switches`.
        fence(Ordering::SeqCst);
        for (index, ..) in self.entries().filter(|(_, kind, _)| *kind != Kind::Manager) {
            self.switch_one(index as u32 + 1, Switch::System, suspended);
        }
    }

    /// Whether all instruments are suspended together.
    pub(crate) fn system_suspended(&self) -> bool {
        self.area.header(header::SYSTEM).load(Ordering::Acquire) != 0
    }

    /// Suspends an instrument, for one reason, or takes the reason away; what inherits from it follows.
    pub(crate) fn switch_one(&self, id: u32, why: Switch, suspended: bool) {
        self.switch_down(id, why, suspended, DEPTH);
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

    /// A new entry begins as what it belongs to is.
    fn inherit_switches(&self, id: u32, described: &Described) {
        // Pairs with the fences of who switches: either that sees the entry, or we its switch.
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

    /// The switch of an entry; `id` came from [`Session::define`], others fall onto the last entry.
    pub(crate) fn switch(&self, id: u32) -> &'static AtomicU64 {
        let last = self.area.geometry().definitions - 1;
        &self.area.definition((id as usize).saturating_sub(1).min(last))[at::SWITCH]
    }

    /// The entry of an instrument, if there is one.
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

/// Whether an entry is ready, after some patience with who writes it.
fn ready(entry: &[AtomicU64]) -> bool {
    (0..PATIENCE).any(|_| {
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

/// Whether the entry has the same name, manager and kind.
fn is(entry: &[AtomicU64], described: &Described) -> bool {
    entry[at::ROLE].load(Ordering::Relaxed) >> 32 == described.kind as u64
        && same(&entry[at::NAME..][..at::NAME_WORDS], described.name)
        && same(&entry[at::MANAGER..][..at::MANAGER_WORDS], described.manager)
}

/// The bytes of a text as words: `first` (if it is not 0) before it, zeros after it, cut to what fits.
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

/// A text up to its first zero; with `numbered` the first byte is not part of it.
fn text_of(place: &[AtomicU64], numbered: bool) -> (u8, String) {
    let bytes: Vec<u8> =
        place.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let text = &bytes[usize::from(numbered)..];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    (bytes[0], String::from_utf8_lossy(&text[..end]).into_owned())
}

/// FNV-1a over manager and name (Fowler, Noll, Vo), in 32 bits.
fn hash(described: &Described) -> u32 {
    let bytes = described.manager.bytes().chain(described.name.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
