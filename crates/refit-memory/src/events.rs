//! The events that this crate records.

use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::Event;

/// Reads missing pages from the host: the first page, and their number.
pub(crate) static FAULT: Event = Event::new("system", "FileCache::fault")
    .fields(&[("page", FieldKind::U64), ("pages", FieldKind::U64)]);

/// Writes dirty pages to the host: the first page, and their number.
pub(crate) static WRITE_BACK: Event = Event::new("system", "FileCache::write back")
    .fields(&[("page", FieldKind::U64), ("pages", FieldKind::U64)]);

/// Reclaims frames from caches: the number wanted.
pub(crate) static EVICT: Event =
    Event::new("system", "PhysicalMemory::evict").fields(&[("wanted", FieldKind::U64)]);

/// Waits for the lock of a file cache, or of a partition of one.
pub(crate) static LOCK: Event = Event::new("system", "FileCache::lock wait")
    .role(Role::Wait)
    .fields(&[("lock", FieldKind::Address)]);

/// Resolves a fault of a program: its address.
pub(crate) static PROGRAM_FAULT: Event =
    Event::new("system", "Program::fault").fields(&[("address", FieldKind::Address)]);

/// Evicts pages of a program: the maximum number.
pub(crate) static PROGRAM_EVICT: Event =
    Event::new("system", "Program::evict").fields(&[("wanted", FieldKind::U64)]);
