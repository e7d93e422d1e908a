//! The destination of outgoing bytes, for any kind of connection.

use std::io;

/// The destination of bytes.
pub(crate) trait Sink: Send {
    /// Writes some of these bytes, and returns their number. If there is no room, it waits, or
    /// fails with `WouldBlock`.
    fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize>;
}
