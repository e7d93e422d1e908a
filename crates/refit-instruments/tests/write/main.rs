//! The write side: what instruments record is in the trace, or is counted as lost; whatever happens to who writes.

mod c;
mod crash;
mod disk;
mod dump;
mod helper;
mod several;
mod stream;
mod switches;
mod threads;
mod trace;

use std::sync::{Mutex, MutexGuard, PoisonError};

use refit_instruments::instrument;
use refit_instruments::session::{Geometry, Session};

/// A process has one session at a time; tests of one process take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A session that the instruments of this process are attached to, until it is dropped.
struct Turn {
    session: &'static Session,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// Rings of so many bytes.
    fn begin(ring_bytes: usize) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let geometry = Geometry::of_host().with_ring_bytes(ring_bytes);
        let session = Session::create(geometry).expect("there is memory for a session");
        instrument::attach(session);
        Self { session, _turn: turn }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        instrument::detach();
    }
}
