//! Fuzzing of traces.

use refit_instruments::block::{MAGIC, VERSION, encode};

use crate::file;

#[path = "../../crates/refit-instruments/tests/read/exhaust.rs"]
mod exhaust;

/// Reads the bytes as a trace: as they are, and as the contents of blocks with the right checksum,
/// because a fuzzer cannot get past checksums by itself.
pub(crate) fn read(bytes: &[u8]) {
    exhaust(bytes);
    let mut file = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
    let mut rest = bytes;
    // Each block takes a byte for its kind and two for its length.
    while let [kind, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        file.extend(encode(u16::from(*kind), &after[..length]));
        rest = &after[length..];
    }
    exhaust(&file);
}

fn exhaust(bytes: &[u8]) {
    let (_file, path) = file::holding(bytes);
    exhaust::exhaust(&path);
}
