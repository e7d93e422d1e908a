//! A buffer for each thread, which gathers several pages for one read or write of the host's file.

use std::cell::Cell;

use crate::fcm::PAGE_SIZE;

/// The number of pages transferred to or from the host in one call: 128 KiB.
pub(crate) const BATCH: usize = 32;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with a buffer of `pages` pages whose contents are arbitrary.
///
/// The buffer is not available in the meantime: a nested call allocates a new one, which is only
/// slower.
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
