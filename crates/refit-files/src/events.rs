//! The trace events of the file server.

use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::Event;

/// A request of the kernel, with its number and the thread that made it.
pub(crate) static REQUEST: Event = Event::new("system", "fuse::request")
    .role(Role::Request)
    .fields(&[("request", FieldKind::U64), ("process", FieldKind::U64)]);

const fn on_data(name: &'static str) -> Event {
    Event::new("system", name).fields(&[("node", FieldKind::U64), ("bytes", FieldKind::U64)])
}

/// A read of a file's data.
pub(crate) static READ: Event = on_data("FileCache::read");
/// A write of a file's data.
pub(crate) static WRITE: Event = on_data("FileCache::write");
/// A write-back of a file's data to the host.
pub(crate) static SYNC: Event = on_data("FileCache::sync");
