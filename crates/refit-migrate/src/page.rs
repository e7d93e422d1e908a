//! The size of a page.

/// Bytes of a page, for addresses.
pub(crate) use refit_sys::memory::PAGE_SIZE_U64 as PAGE_SIZE;
