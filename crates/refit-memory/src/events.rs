//! What this crate tells of itself to whoever records.

use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::Event;

/// Reads pages that were missed from the host: the first page, and how many.
pub(crate) static FAULT: Event = Event::new("system", "FileCache::fault")
    .fields(&[("page", FieldKind::U64), ("pages", FieldKind::U64)]);

/// Writes dirty pages to the host: the first page, and how many.
pub(crate) static WRITE_BACK: Event = Event::new("system", "FileCache::write back")
    .fields(&[("page", FieldKind::U64), ("pages", FieldKind::U64)]);

/// Takes frames away from caches: how many were wanted.
pub(crate) static EVICT: Event =
    Event::new("system", "PhysicalMemory::evict").fields(&[("wanted", FieldKind::U64)]);

/// Waits for the lock of a file cache, or of a partition of one.
pub(crate) static LOCK: Event = Event::new("system", "FileCache::lock wait")
    .role(Role::Wait)
    .fields(&[("lock", FieldKind::Address)]);

/// Resolves a fault of a program: where.
pub(crate) static PROGRAM_FAULT: Event =
    Event::new("system", "Program::fault").fields(&[("address", FieldKind::Address)]);

/// Takes pages out of a program: how many at most.
pub(crate) static PROGRAM_EVICT: Event =
    Event::new("system", "Program::evict").fields(&[("wanted", FieldKind::U64)]);
