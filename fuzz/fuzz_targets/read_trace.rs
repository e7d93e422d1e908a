//! Anything as a file that claims to be a trace: as it is, and as the content of blocks with the right checksum, which
//! is what lets the fuzzer look behind checksums.

#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use refit_instruments::block::{MAGIC, VERSION, encode};

#[path = "../../crates/refit-instruments/tests/read/exhaust.rs"]
mod exhaust;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut file = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
    let mut rest = bytes;
    // A byte for the kind, two for the length.
    while let [kind, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        file.extend(encode(u16::from(*kind), &after[..length]));
        rest = &after[length..];
    }
    read(&file);
});

fn read(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    exhaust::exhaust(file.path());
}
