//! Whether the calling thread is one that receives messages.

use std::cell::Cell;

thread_local! {
    static RECEIVING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is a receiving thread, which must not wait for a peer.
pub(crate) fn is_receiving() -> bool {
    RECEIVING.get()
}

/// Makes this a receiving thread until it ends.
pub(crate) fn begin() {
    RECEIVING.set(true);
}
