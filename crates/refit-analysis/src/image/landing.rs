//! Language-specific data of a function: calls with a landing pad, where exceptions resume.
//!
//! The layout is that of GCC's `.gcc_except_table`, which Clang and Rust share (Itanium C++ ABI,
//! "Exception Handling", and `unwind-pe.h`): a header, a table of call sites, then tables of
//! actions and types, which do not matter to control flow.

use super::Image;

/// The calls in a range of code, and where an exception thrown by them resumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// The range of code.
    pub addresses: std::ops::Range<u64>,
    /// The landing pad; `None` if exceptions pass through.
    pub pad: Option<u64>,
    /// Offset of its first action in the table of actions, plus one; 0 if it has none.
    pub action: u64,
}

/// The tables of language-specific data.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) sites: Vec<CallSite>,
    /// Address of the table of actions.
    pub(super) actions_at: u64,
    /// Encoding of the table of types, and the address at which it ends.
    pub(super) types: Option<(u8, u64)>,
}

/// Marks the encoding of an address of a word that holds the address.
pub(super) const INDIRECT: u8 = 0x80;

/// The encodings of values that occur (`DW_EH_PE_*`).
mod encoding {
    pub(super) const OMITTED: u8 = 0xff;
    pub(super) const FORMAT: u8 = 0x0f;
    pub(super) const RELATIVE: u8 = 0x10;
    pub(super) const BASE: u8 = 0x70;
}

/// Reads the call sites of the part of a function that begins at `start` and has `most` bytes; its
/// language-specific data is at `address`. `None` if the data is not understood.
pub fn call_sites(image: &Image, address: u64, start: u64, most: u64) -> Option<Vec<CallSite>> {
    tables(image, address, start, most).map(|tables| tables.sites)
}

/// Finds the tables, and reads that of call sites.
pub(super) fn tables(image: &Image, address: u64, start: u64, most: u64) -> Option<Tables> {
    let mut reader = Reader { bytes: image.bytes_from(address)?, address };
    let base = match reader.byte()? {
        encoding::OMITTED => start,
        how => reader.encoded(how)?,
    };
    let types = match reader.byte()? {
        encoding::OMITTED => None,
        how => {
            let distance = reader.unsigned()?;
            Some((how, reader.address.wrapping_add(distance)))
        }
    };
    let how = reader.byte()?;
    let length = usize::try_from(reader.unsigned()?).ok()?;
    let table = reader.bytes.get(..length)?;
    let actions_at = reader.address.wrapping_add(length as u64);
    let mut reader = Reader { bytes: table, address: reader.address };
    let mut sites = Vec::new();
    while !reader.bytes.is_empty() {
        // Each call site has at least one byte of code of its own. Tables may share bytes: without
        // this bound, reading could go on for ever.
        if sites.len() as u64 == most {
            return None;
        }
        let (from, size) = (reader.encoded(how)?, reader.encoded(how)?);
        let (pad, action) = (reader.encoded(how)?, reader.unsigned()?);
        let from = start.checked_add(from)?;
        let pad = if pad == 0 { None } else { Some(base.checked_add(pad)?) };
        sites.push(CallSite { addresses: from..from.checked_add(size)?, pad, action });
    }
    Some(Tables { sites, actions_at, types })
}

/// Reads numbers one after the other.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) address: u64,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        self.address = self.address.wrapping_add(N as u64);
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Reads an unsigned LEB128 number.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a signed LEB128 number.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let mut value = 0_i64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64_u32.saturating_sub(shift + 7);
                return Some(value << unused >> unused);
            }
        }
        None
    }

    pub(super) fn encoded(&mut self, how: u8) -> Option<u64> {
        let place = self.address;
        let value = match how & encoding::FORMAT {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.take()?),
            0x01 => self.unsigned()?,
            0x02 => u64::from(u16::from_le_bytes(self.take()?)),
            0x03 => u64::from(u32::from_le_bytes(self.take()?)),
            0x0a => i64::from(i16::from_le_bytes(self.take()?)) as u64,
            0x0b => i64::from(i32::from_le_bytes(self.take()?)) as u64,
            _ => return None,
        };
        match how & encoding::BASE {
            0 => Some(value),
            encoding::RELATIVE => Some(place.wrapping_add(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        let mut reader = Reader { bytes: &[0xe5, 0x8e, 0x26, 0xfe, 0xff, 0xff, 0xff], address: 64 };
        assert_eq!(reader.unsigned(), Some(624_485));
        assert_eq!(reader.encoded(0x1b), Some(65), "relative to its own place, 67");
        assert_eq!(reader.byte(), None);
        let mut reader = Reader { bytes: &[0x7f, 0x3f, 0x80, 0x7f, 0xc0, 0x00], address: 0 };
        let read: Vec<_> = std::iter::from_fn(|| reader.signed()).collect();
        assert_eq!(read, [-1, 63, -128, 64]);
    }

    #[test]
    fn a_number_without_an_end_is_refused() {
        let mut reader = Reader { bytes: &[0x80; 32], address: 0 };
        assert_eq!(reader.unsigned(), None);
    }
}
