//! Files of `/proc`, each read in as few system calls as its length asks for.

use std::fs::File;
use std::io::{self, Read};

/// Such a file says that it is empty. Whoever believes it reads a few bytes first, then twice as many, and so on; the kernel gives a page at once.
const FIRST: usize = 16 << 10;

/// All of the file at `path`.
pub(crate) fn read(path: String) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FIRST);
    // Not from the file itself, which would be asked for its length.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
