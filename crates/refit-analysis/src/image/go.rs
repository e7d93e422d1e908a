//! Go's function table (`.gopclntab`), which stripped programs keep: entries and names of
//! functions, and how far the stack pointer is below the caller's, instruction by instruction.
//!
//! Source: `src/runtime/symtab.go` and `src/debug/gosym/pclntab.go` of Go 1.18 to 1.26. Older
//! programs use another layout; their functions are found by the other sources.

use std::ops::Range;

use object::LittleEndian as LE;

use super::elf::Elf;
use super::names::Names;

/// Magic numbers of Go 1.18 and of Go 1.20 and later.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Bits of a function's flags: it is the outermost one of a stack, or it sets the stack pointer.
const OUTERMOST: u8 = 1;
const SETS_STACK_POINTER: u8 = 2;
/// The largest distance of the stack pointer from the caller's that is believed, in bytes.
const MOST: i64 = 1 << 30;

/// Go's functions in a file.
#[derive(Debug, Default)]
pub(super) struct Go {
    /// Entries and names, by ascending entry.
    pub(super) functions: Vec<(u64, Box<str>)>,
    /// The bytes of the table in the file.
    table: Range<usize>,
    /// Address of `.text`.
    text: Option<u64>,
}

/// Where the return address is in a function, from an instruction on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// This number of bytes above the stack pointer.
    Above(i64),
    /// Nowhere: the function is the outermost one of a stack.
    Nowhere,
}

/// A function's code, and where the return address is from each of some addresses on.
pub(super) type Returns = (Range<u64>, Vec<(u64, Return)>);

impl Go {
    /// Reads the table of a file, if it has one.
    pub(super) fn read(elf: &Elf<'_>) -> Self {
        let names = [".gopclntab", ".data.rel.ro.gopclntab"];
        let Some((_, bytes)) = names.iter().find_map(|name| elf.section(name)) else {
            return Self::default();
        };
        let begin = bytes.as_ptr().addr().saturating_sub(elf.data.as_ptr().addr());
        let text = elf.section(".text").map(|(section, _)| section.sh_addr.get(LE));
        let functions = Table::read(bytes, text).map_or_else(Vec::new, |table| table.functions());
        Self { functions, table: begin..begin + bytes.len(), text }
    }

    /// Returns where the return addresses of functions are, as far as it is known. `data` is the
    /// file.
    pub(super) fn returns(&self, data: &[u8]) -> Vec<Returns> {
        let bytes = data.get(self.table.clone()).unwrap_or_default();
        Table::read(bytes, self.text).map_or_else(Vec::new, |table| table.returns())
    }
}

/// The function table, with the offsets of its parts.
struct Table<'d> {
    bytes: &'d [u8],
    /// Address from which entries count.
    start: u64,
    /// Number of functions.
    count: usize,
    names: usize,
    /// The lists of values by address.
    values: usize,
    functions: usize,
    /// Offset of a function's flags from its description.
    flags: usize,
}

impl<'d> Table<'d> {
    fn read(bytes: &'d [u8], text: Option<u64>) -> Option<Self> {
        let magic = u32::from_le_bytes(*bytes.first_chunk()?);
        if !MAGIC.contains(&magic) || bytes.get(7) != Some(&8) {
            return None;
        }
        let long = |index: usize| {
            let at = 8 + 8 * index;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let offset = |index: usize| usize::try_from(long(index)?).ok();
        // Position-independent programs have 0 here until they are relocated.
        let start = match long(2)? {
            0 => text?,
            start => start,
        };
        // From Go 1.20 on, the line of the beginning precedes them.
        let flags = if magic == MAGIC[0] { 37 } else { 41 };
        let count = offset(0)?.min(bytes.len() / 8);
        let (names, values, functions) = (offset(3)?, offset(6)?, offset(7)?);
        Some(Self { bytes, start, count, names, values, functions, flags })
    }

    fn word(&self, at: usize) -> Option<u32> {
        let word = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    }

    /// Returns the entry of a function; that of the one after the last is the end of the code.
    fn entry(&self, index: usize) -> Option<u64> {
        let at = self.functions.checked_add(8 * index)?;
        Some(self.start.wrapping_add(u64::from(self.word(at)?)))
    }

    /// Returns the offset of a function's description.
    fn description(&self, index: usize) -> Option<usize> {
        let at = self.functions.checked_add(8 * index + 4)?;
        self.functions.checked_add(self.word(at)? as usize)
    }

    fn functions(&self) -> Vec<(u64, Box<str>)> {
        let mut found: Vec<(u64, Box<str>)> = Vec::with_capacity(self.count);
        let mut all = Names::within(self.bytes.len());
        for index in 0..self.count {
            let (Some(entry), Some(about)) = (self.entry(index), self.description(index)) else {
                break;
            };
            let name = all.read(|| {
                let name = self.word(about.checked_add(4)?)?;
                let name = self.names.checked_add(name as usize)?;
                self.bytes.get(name..)?.split(|b| *b == 0).next()
            });
            let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
            found.push((entry, name.into()));
        }
        found.sort();
        found.dedup_by_key(|f| f.0);
        found
    }

    fn returns(&self) -> Vec<Returns> {
        // Many functions may name the same list; the output of linkers stays below this.
        let mut left = 2 * self.bytes.len();
        let each = (0..self.count).map_while(|index| {
            let code = self.entry(index)?..self.entry(index + 1)?;
            let returns = self.returns_of(code.clone(), self.description(index)?, &mut left);
            Some((code, returns.unwrap_or_default()))
        });
        each.filter(|(code, returns)| !code.is_empty() && !returns.is_empty()).collect()
    }

    /// Returns where a function's return address is; `None` if that is not known.
    fn returns_of(
        &self,
        code: Range<u64>,
        about: usize,
        left: &mut usize,
    ) -> Option<Vec<(u64, Return)>> {
        let flags = *self.bytes.get(about.checked_add(self.flags)?)?;
        if flags & OUTERMOST != 0 {
            return Some(vec![(code.start, Return::Nowhere)]);
        }
        if flags & SETS_STACK_POINTER != 0 {
            return None;
        }
        let list = self.values.checked_add(self.word(about.checked_add(16)?)? as usize)?;
        let mut list = self.bytes.get(list..)?.iter();
        let (mut at, mut above) = (code.start, -1_i64);
        let mut returns = Vec::new();
        while at < code.end {
            *left = left.checked_sub(1)?;
            let change = varint(&mut list)?;
            if change == 0 && !returns.is_empty() {
                break;
            }
            // The lowest bit says whether the others are inverted.
            above += i64::from((change >> 1).cast_signed() ^ -((change & 1).cast_signed()));
            if !(0..MOST).contains(&above) {
                return None;
            }
            returns.push((at, Return::Above(above)));
            at = at.checked_add(varint(&mut list)?.into())?;
        }
        Some(returns)
    }
}

/// Reads a number of 7 bits in each byte, the lowest first; the last byte is less than 128.
fn varint<'b>(bytes: &mut impl Iterator<Item = &'b u8>) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..u32::BITS).step_by(7) {
        let byte = *bytes.next()?;
        number |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
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
        let found = Table::read(&written(), None).expect("a table").functions();
        let expected = [(0x1000, "main.main".into()), (0x1040, "main.helper".into())];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_table_that_ends_early_is_read_as_far_as_it_goes() {
        let table = written();
        for length in 0..table.len() {
            let Some(table) = Table::read(&table[..length], Some(0)) else { continue };
            assert!(table.functions().len() <= 2);
            assert!(table.returns().len() <= 2);
        }
        for (at, byte) in (8..table.len()).flat_map(|at| [0, 0x7f, 0xff].map(|byte| (at, byte))) {
            let mut table = table.clone();
            table[at] = byte;
            let Some(table) = Table::read(&table, Some(0)) else { continue };
            assert!(table.functions().len() <= table.count);
            assert!(table.returns().len() <= table.count);
        }
        assert!(Table::read(&[0xff; 128], Some(0)).is_none());
    }

    #[test]
    fn the_stack_pointer_is_followed_through_a_function() {
        // One function of 0x40 bytes, whose description is at 96 + 16.
        let mut table = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        for long in [1u64, 0, 0x1000, 72, 0, 0, 72, 96] {
            table.extend(long.to_le_bytes());
        }
        // 0, 24 after 4 bytes, 0 again in the last byte.
        let at = table.len();
        table.extend([2, 4, 48, 0x3b, 47, 1, 0]);
        table.resize(96, 0);
        for word in [0u32, 16, 0x40, 0] {
            table.extend(word.to_le_bytes());
        }
        let about = table.len();
        table.resize(about + 44, 0);
        let returns = |table: &[u8]| {
            let all = Table::read(table, None).expect("a table").returns();
            all.into_iter().flat_map(|(_, returns)| returns).collect::<Vec<_>>()
        };
        let above = |at, bytes| (at, Return::Above(bytes));
        assert_eq!(returns(&table), [above(0x1000, 0), above(0x1004, 24), above(0x103f, 0)]);
        table[about + 41] = OUTERMOST;
        assert_eq!(returns(&table), [(0x1000, Return::Nowhere)]);
        table[about + 41] = SETS_STACK_POINTER;
        assert_eq!(returns(&table), []);
        // A stack pointer above the caller's is none.
        table[about + 41] = 0;
        table[at] = 1;
        assert_eq!(returns(&table), []);
    }
}
