//! Where things are in a session: words, counted from its begin. `include/refit.h` says the same for C.
//!
//! ```text
//! header │ definitions │ cells, per processor │ ring heads, per processor │ slots, per processor
//! ```

/// First word: `rf-sessn`.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"rf-sessn");
/// The version that this code makes, and the only one that it maps.
pub const VERSION: u64 = 1;

/// Words of the header.
pub const HEADER: usize = 64;
/// Words of a definition.
pub const DEFINITION: usize = 64;
/// Words of one instrument's totals on one processor: how often, and the sum.
pub const CELL: usize = 2;
/// Words of a ring's head: a cache line pair that writers store to, and one that the drainer does.
pub const RING: usize = 32;
/// Words of a record.
pub const SLOT: usize = 4;

/// Indices of words in the header.
pub mod header {
    /// `rf-sessn`; stored last, so that nobody maps what is not ready.
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// 1: cycles, 2: `CLOCK_MONOTONIC_RAW`.
    pub const CLOCK: usize = 2;
    /// How many rings.
    pub const PROCESSORS: usize = 3;
    /// Slots of a ring, a power of two.
    pub const RECORDS: usize = 4;
    /// Places for definitions.
    pub const DEFINITIONS: usize = 5;
    /// How many definitions were made.
    pub const DEFINED: usize = 6;
    /// Bit 0: writers that find no place wait for a dump. Bit 1: the session has ended.
    pub const STATE: usize = 7;
    /// Process number of the recorder; 0: none.
    pub const RECORDER: usize = 8;
    /// When the recorder's process began, as `/proc` says.
    pub const RECORDER_BEGAN: usize = 9;
    /// Raised by 1 by each dump; who waits for its end waits for this word to change.
    pub const DUMPS: usize = 10;
    /// Raised by who wants a dump; the recorder waits for this word to change.
    pub const ASKED: usize = 11;
    /// First tick at which somebody waited for the dump that comes; 0: nobody has.
    pub const STOOD: usize = 12;
    /// Switches of all instruments together.
    pub const SYSTEM: usize = 13;
}

/// Indices of words in a ring's head.
pub mod ring {
    /// Records taken by writers; the top bit: closed.
    pub const RESERVED: usize = 0;
    /// Records that found no place.
    pub const LOST: usize = 1;
    /// How far writers may take.
    pub const LIMIT: usize = 16;
}

/// Indices of words in a definition, and how wide its parts are.
pub mod definition {
    /// 0: free, 1: being written, 2: ready.
    pub const STATE: usize = 0;
    /// Bits that suspend the instrument; it records while all are 0.
    pub const SWITCH: usize = 1;
    /// Low half: number of the role; high half: number of the instrument's kind.
    pub const ROLE: usize = 2;
    /// Id of the instrument that this one inherits from; 0: none.
    pub const PARENT: usize = 3;
    /// Its name, filled with zeros.
    pub const NAME: usize = 4;
    /// Words of the name.
    pub const NAME_WORDS: usize = 28;
    /// Its manager's name, filled with zeros.
    pub const MANAGER: usize = NAME + NAME_WORDS;
    /// Words of the manager's name.
    pub const MANAGER_WORDS: usize = 12;
    /// Its fields.
    pub const FIELDS: usize = MANAGER + MANAGER_WORDS;
    /// How many fields there can be: as many as a payload has half words.
    pub const FIELD_COUNT: usize = 4;
    /// Words of a field: the number of its kind in the first byte (0: no field), then its name.
    pub const FIELD_WORDS: usize = 5;
}

/// How large a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How many rings: one more than the highest number of a processor.
    pub processors: usize,
    /// Slots of a ring, a power of two.
    pub records: usize,
    /// Places for definitions, a power of two.
    pub definitions: usize,
}

impl Geometry {
    /// Memory that the rings of [`Geometry::of_host`] share.
    const SHARED: usize = 64 << 20;
    /// The largest ring of [`Geometry::of_host`], in bytes.
    const LARGEST: usize = 16 << 20;

    /// What suits this host: a ring per processor, all together at most 64 MiB, or more if that is less than 1024
    /// records each.
    pub fn of_host() -> Self {
        let processors = refit_sys::processor::count();
        let bytes = (Self::SHARED / processors).min(Self::LARGEST);
        let records = (bytes / crate::record::SIZE).max(1024);
        Self { processors, records: 1 << records.ilog2(), definitions: 1024 }
    }

    /// The same with rings of `bytes`, rounded down to a power of two of records, at least 64.
    #[must_use]
    pub fn with_ring_bytes(self, bytes: usize) -> Self {
        let records = (bytes / crate::record::SIZE).max(64);
        Self { records: 1 << records.ilog2(), ..self }
    }

    /// Whether a session can be like this; `None` for sizes that nobody means.
    fn sane(self) -> Option<Self> {
        let fits = (1..=1 << 16).contains(&self.processors)
            && (1..=1 << 30).contains(&self.records)
            && (1..=1 << 20).contains(&self.definitions)
            && self.records.is_power_of_two()
            && self.definitions.is_power_of_two();
        fits.then_some(self)
    }

    /// The same, if a session can be like this.
    ///
    /// # Errors
    /// Itself, for the message.
    pub(super) fn checked(self) -> Result<Self, Self> {
        self.sane().ok_or(self)
    }

    /// Where the definitions begin.
    pub(super) const fn definitions_at(&self) -> usize {
        HEADER
    }

    /// Where the cells begin.
    pub(super) const fn cells_at(&self) -> usize {
        self.definitions_at() + self.definitions * DEFINITION
    }

    /// Where the heads of the rings begin.
    pub const fn rings_at(&self) -> usize {
        let end = self.cells_at() + self.processors * self.definitions * CELL;
        end.next_multiple_of(RING)
    }

    /// Where the slots begin: at a page.
    pub const fn slots_at(&self) -> usize {
        (self.rings_at() + self.processors * RING).next_multiple_of(512)
    }

    /// How many words a session has.
    pub const fn words(&self) -> usize {
        self.slots_at() + self.processors * self.records * SLOT
    }
}
