//! The layout of an image: its parts, in words, in this order.

/// Size of the header.
pub(crate) const HEADER: usize = 1024;
/// Size of the description.
pub(crate) const DESCRIPTION: usize = 8192;
/// Number of slots: requests that can be executed at the same time, and those of servers that have
/// ended.
pub(crate) const SLOTS: usize = 2048;
/// Size of a slot.
pub(crate) const SLOT_WORDS: usize = 1024;
/// The place of the first slot.
pub(crate) const FIRST_SLOT: usize = HEADER + DESCRIPTION;
/// The place of the first record.
pub(crate) const FIRST_RECORD: usize = FIRST_SLOT + SLOTS * SLOT_WORDS;
/// Size of a record.
pub(crate) const RECORD_WORDS: usize = 22;
