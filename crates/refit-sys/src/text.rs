//! Files of `/proc`, each read in as few system calls as its length requires.

use std::fs::File;
use std::io::{self, Read};

/// The initial capacity. Such a file reports a length of zero, on which the standard library begins
/// with a few bytes and doubles them; the kernel delivers a page at once.
const INITIAL_CAPACITY: usize = 16 << 10;

/// Returns the contents of the file at `path`.
pub(crate) fn read(path: String) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
    // Not through `File` itself, which would query the length.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
