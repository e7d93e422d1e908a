//! Fuzzing of probe specifications, and of patch areas as a repair finds them.

use std::io;

use refit_probe::script::{self, Outside, Script};
use refit_splice::remains::{self, Remains};

/// Parses the bytes as a script of probes.
pub(crate) fn probe(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<Script>() {
        Ok(script) => {
            for action in script.probes.iter().flat_map(|probe| &probe.actions) {
                let _ = (action.what.to_string(), action.what.is_timed());
            }
            for action in script.outside() {
                if let Outside::Message(message) = action {
                    let _ = script::render(message);
                }
            }
        }
        Err(error) => assert!(error.to_string().contains("write e.g. "), "{error}"),
    }
}

/// The address at which the area is mapped.
const BASE: u64 = 0x7000_0000;

/// Reads the bytes as the memory of a program's patch area: as they are, and behind a valid head.
pub(crate) fn patch_area(bytes: &[u8]) {
    area(bytes);
    let mut memory = remains::first_page(BASE, (bytes.len() / 64).min(2048) as u64);
    memory.extend(bytes);
    area(&memory);
}

fn area(memory: &[u8]) {
    let read = |address: u64, into: &mut [u8]| {
        let at = usize::try_from(address.wrapping_sub(BASE)).map_err(io::Error::other)?;
        let there = at.checked_add(into.len()).and_then(|end| memory.get(at..end));
        into.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    if let Some(remains) = Remains::parse(&(BASE..BASE + (1 << 30)), (1, 2), read) {
        let _ = (remains.sites(), format!("{remains:?}"));
    }
}
