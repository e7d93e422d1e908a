//! Go's function table (`.gopclntab`), which stripped programs keep.
//!
//! Source: `src/runtime/symtab.go` and `src/debug/gosym/pclntab.go` of Go 1.18 to 1.26. Older
//! programs use another layout; their functions are found by the other sources.

use super::elf::Elf;
use super::names::Names;

/// Magic numbers of Go 1.18 and of Go 1.20 and later.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// Returns the bytes of the table, if the file has one.
pub(super) fn table<'data>(elf: &Elf<'data>) -> Option<&'data [u8]> {
    let names = [".gopclntab", ".data.rel.ro.gopclntab"];
    names.iter().find_map(|name| elf.section(name)).map(|(_, bytes)| bytes)
}

/// Returns entries and names of functions, by ascending entry. `text` is the address of `.text`.
pub(super) fn functions(table: &[u8], text: Option<u64>) -> Vec<(u64, Box<str>)> {
    read(table, text).unwrap_or_default()
}

fn read(table: &[u8], text: Option<u64>) -> Option<Vec<(u64, Box<str>)>> {
    let word = |at: usize| Some(u32::from_le_bytes(table.get(at..at + 4)?.try_into().ok()?));
    let long = |index: usize| {
        let at = 8 + 8 * index;
        Some(u64::from_le_bytes(table.get(at..at + 8)?.try_into().ok()?))
    };
    let offset = |index: usize| usize::try_from(long(index)?).ok();
    if !MAGIC.contains(&word(0)?) || table.get(7) != Some(&8) {
        return None;
    }
    let count = offset(0)?.min(table.len() / 8);
    // Position-independent programs have 0 here until they are relocated.
    let start = match long(2)? {
        0 => text?,
        start => start,
    };
    let (names, functions) = (offset(3)?, offset(7)?);
    let mut found: Vec<(u64, Box<str>)> = Vec::with_capacity(count);
    let mut all = Names::within(table.len());
    for i in 0..count {
        let at = functions.checked_add(8 * i)?;
        let (Some(entry), Some(about)) = (word(at), word(at + 4)) else { break };
        let name = all.read(|| {
            let name = word(functions.checked_add(about as usize + 4)?)?;
            table.get(names.checked_add(name as usize)?..)?.split(|b| *b == 0).next()
        });
        let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        found.push((start.wrapping_add(u64::from(entry)), name.into()));
    }
    found.sort();
    found.dedup_by_key(|f| f.0);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table of two functions, at 0x1000 and 0x1040.
    fn written() -> Vec<u8> {
        let mut table = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        // Functions, files, start of code; offsets of names, units, files, places, functions.
        for long in [2u64, 0, 0x1000, 72, 0, 0, 0, 96] {
            table.extend(long.to_le_bytes());
        }
        table.extend(b"main.main\0main.helper\0..");
        table.resize(96, 0);
        for word in [0u32, 24, 0x40, 32, 0x80, 0, 0, 0, 0x40, 10] {
            table.extend(word.to_le_bytes());
        }
        table
    }

    #[test]
    fn entries_and_names_are_read() {
        let found = functions(&written(), None);
        let expected = [(0x1000, "main.main".into()), (0x1040, "main.helper".into())];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_table_that_ends_early_is_read_as_far_as_it_goes() {
        let table = written();
        for length in 0..table.len() {
            let found = functions(&table[..length], Some(0));
            assert!(found.len() <= 2);
        }
        assert!(functions(&[0xff; 128], Some(0)).is_empty());
    }
}
