//! The size of a page.

/// Bytes of a page.
pub(crate) const PAGE_SIZE: u64 = 4096;
