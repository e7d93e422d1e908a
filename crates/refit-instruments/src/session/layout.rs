//! The layout of a session in words from its beginning. `include/refit.h` contains the same for C.
//!
//! ```text
//! header │ definitions │ cells, per processor │ ring heads, per processor │ slots, per processor
//! ```

/// The first word: `rf-sessn`.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"rf-sessn");
/// The version that this code creates, and the only one that it maps.
pub const VERSION: u64 = 1;

/// The number of words of the header.
pub const HEADER: usize = 64;
/// The number of words of a definition.
pub const DEFINITION: usize = 64;
/// The number of words of one instrument's totals on one processor, which are the count and the
/// sum.
pub const CELL: usize = 2;
/// The number of words of a ring's head: a pair of cache lines that writers store to, and one that
/// the drainer stores to.
pub const RING: usize = 32;
/// The number of words of a record.
pub const SLOT: usize = 4;

/// The indices of words in the header.
pub mod header {
    /// `rf-sessn`; stored last, so that no process maps an incomplete session.
    pub const MAGIC: usize = 0;
    /// The value [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// The clock; 1: cycles, 2: `CLOCK_MONOTONIC_RAW`.
    pub const CLOCK: usize = 2;
    /// The number of rings.
    pub const PROCESSORS: usize = 3;
    /// The number of slots of a ring, a power of two.
    pub const RECORDS: usize = 4;
    /// The capacity of the table of definitions.
    pub const DEFINITIONS: usize = 5;
    /// The number of definitions.
    pub const DEFINED: usize = 6;
    /// Bit 0: writers that find no slot wait for a dump. Bit 1: the session has ended.
    pub const STATE: usize = 7;
    /// The bit of [`STATE`] that makes writers that find no slot wait for a dump.
    pub const WAITS: u64 = 1;
    /// The bit of [`STATE`] that marks the session as ended.
    pub const ENDED: u64 = 2;
    /// The process ID of the recorder; 0 for none.
    pub const RECORDER: usize = 8;
    /// The start time of the recorder's process from `/proc`.
    pub const RECORDER_BEGAN: usize = 9;
    /// Increased by each dump. Threads that wait for the end of a dump wait for this word to
    /// change.
    pub const DUMPS: usize = 10;
    /// Increased to request a dump. The recorder waits for this word to change.
    pub const ASKED: usize = 11;
    /// The first tick at which a thread waited for the coming dump; 0 if none has.
    pub const STOOD: usize = 12;
    /// The switches of all instruments together.
    pub const SYSTEM: usize = 13;
}

/// The indices of words in a ring's head.
pub mod ring {
    /// The number of records that writers have reserved; the top bit means closed.
    pub const RESERVED: usize = 0;
    /// The number of records for which there was no slot.
    pub const LOST: usize = 1;
    /// The number of records that writers may reserve.
    pub const LIMIT: usize = 16;
}

/// The indices of words in a definition, and the widths of its parts.
pub mod definition {
    /// The state; 0: free, 1: being written, 2: ready.
    pub const STATE: usize = 0;
    /// The bits that suspend the instrument, which records while all are 0.
    pub const SWITCH: usize = 1;
    /// Low half: the number of the role; high half: the number of the instrument's kind.
    pub const ROLE: usize = 2;
    /// The ID of the instrument that this one inherits from; 0 for none.
    pub const PARENT: usize = 3;
    /// Its name, padded with zeros.
    pub const NAME: usize = 4;
    /// The number of words of the name.
    pub const NAME_WORDS: usize = 28;
    /// Its manager's name, padded with zeros.
    pub const MANAGER: usize = NAME + NAME_WORDS;
    /// The number of words of the manager's name.
    pub const MANAGER_WORDS: usize = 12;
    /// Its fields.
    pub const FIELDS: usize = MANAGER + MANAGER_WORDS;
    /// The maximum number of fields, which is the number of half words of a payload.
    pub const FIELD_COUNT: usize = 4;
    /// The number of words of a field: the number of its kind in the first byte (0: no field), then
    /// its name.
    pub const FIELD_WORDS: usize = 5;
}

/// The size of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of rings, which is one more than the highest number of a processor.
    pub processors: usize,
    /// The number of slots of a ring, a power of two.
    pub records: usize,
    /// The capacity of the table of definitions, a power of two.
    pub definitions: usize,
}

impl Geometry {
    /// The memory that the rings of [`Geometry::of_host`] share, in bytes.
    const SHARED: usize = 64 << 20;
    /// The maximum size of a ring of [`Geometry::of_host`], in bytes.
    const LARGEST: usize = 16 << 20;

    /// Returns the default for this host: a ring per processor, together at most 64 MiB, or more if
    /// that is less than 1024 records each.
    pub fn of_host() -> Self {
        let processors = refit_sys::processor::count();
        let bytes = (Self::SHARED / processors).min(Self::LARGEST);
        let records = (bytes / crate::record::SIZE).max(1024);
        Self { processors, records: 1 << records.ilog2(), definitions: 1024 }
    }

    /// Returns the same geometry with rings of `bytes`, rounded down to a power of two of records,
    /// at least 64.
    #[must_use]
    pub fn with_ring_bytes(self, bytes: usize) -> Self {
        let records = (bytes / crate::record::SIZE).max(64);
        Self { records: 1 << records.ilog2(), ..self }
    }

    /// Returns the geometry if it is valid; `None` for unreasonable sizes.
    fn sane(self) -> Option<Self> {
        let fits = (1..=1 << 16).contains(&self.processors)
            && (1..=1 << 30).contains(&self.records)
            && (1..=1 << 20).contains(&self.definitions)
            && self.records.is_power_of_two()
            && self.definitions.is_power_of_two();
        fits.then_some(self)
    }

    /// Returns the geometry if it is valid.
    ///
    /// # Errors
    ///
    /// Returns the geometry itself, for the message.
    pub(super) fn checked(self) -> Result<Self, Self> {
        self.sane().ok_or(self)
    }

    /// Returns the index of the first definition.
    pub(super) const fn definitions_at(&self) -> usize {
        HEADER
    }

    /// Returns the index of the first cell.
    pub(super) const fn cells_at(&self) -> usize {
        self.definitions_at() + self.definitions * DEFINITION
    }

    /// Returns the index of the first head of a ring.
    pub const fn rings_at(&self) -> usize {
        let end = self.cells_at() + self.processors * self.definitions * CELL;
        end.next_multiple_of(RING)
    }

    /// Returns the index of the first slot, which is aligned to a page.
    pub const fn slots_at(&self) -> usize {
        (self.rings_at() + self.processors * RING).next_multiple_of(512)
    }

    /// Returns the number of words of a session.
    pub const fn words(&self) -> usize {
        self.slots_at() + self.processors * self.records * SLOT
    }
}
