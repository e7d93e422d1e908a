//! What the file server tells of itself to whoever records.

use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::instrument::Event;

/// A request of the kernel: its number, and the thread that made it.
pub(crate) static REQUEST: Event = Event::new("system", "fuse::request")
    .role(Role::Request)
    .fields(&[("request", FieldKind::U64), ("process", FieldKind::U64)]);

const fn on_data(name: &'static str) -> Event {
    Event::new("system", name).fields(&[("node", FieldKind::U64), ("bytes", FieldKind::U64)])
}

/// Data of a file is read.
pub(crate) static READ: Event = on_data("FileCache::read");
/// Data of a file is written.
pub(crate) static WRITE: Event = on_data("FileCache::write");
/// Data of a file goes to the host.
pub(crate) static SYNC: Event = on_data("FileCache::sync");
