//! Tests of the write side: each record of an instrument is in the trace or is counted as lost,
//! whatever happens to the writer.

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

/// Serializes the tests of one process, which has one session at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A session to which the instruments of this process are attached until it is dropped.
struct Turn {
    session: &'static Session,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    /// Begins a session with rings of `ring_bytes` bytes.
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
