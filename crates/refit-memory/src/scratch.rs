//! A buffer for each thread, in which several pages meet for one read or write of the host's file.

use std::cell::Cell;

use crate::fcm::PAGE_SIZE;

/// Pages that go to or come from the host in one call: 128 KiB.
pub(crate) const BATCH: usize = 32;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with a buffer of `pages` pages whose contents are arbitrary.
///
/// The buffer is taken out of its place meanwhile: a nested call gets a new one and is merely slower.
pub(crate) fn with_buffer<R>(pages: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buffer = BUFFER.take();
    let len = pages * PAGE_SIZE;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let result = f(&mut buffer[..len]);
    BUFFER.set(buffer);
    result
}
