//! Numbers and addresses as frame descriptions encode them.

/// Encodings of addresses (`DW_EH_PE_*`).
pub(super) mod encoding {
    pub(in super::super) const ABSOLUTE: u8 = 0x00;
    pub(in super::super) const UNSIGNED_LEB: u8 = 0x01;
    pub(in super::super) const UNSIGNED_4: u8 = 0x03;
    /// 32 bits, relative to the place of the encoded address.
    pub(in super::super) const RELATIVE: u8 = 0x1b;
    /// 32 bits, relative to the beginning of the index.
    pub(in super::super) const RELATIVE_TO_INDEX: u8 = 0x3b;
    pub(in super::super) const INDIRECT: u8 = 0x80;
    pub(in super::super) const OMITTED: u8 = 0xff;
}

/// Appends an unsigned LEB128 number.
pub(super) fn unsigned(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a signed LEB128 number.
pub(super) fn signed(to: &mut Vec<u8>, mut value: i64) {
    while !(-0x40..0x40).contains(&value) {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8 & 0x7f);
}

/// Appends zeros up to a multiple of eight bytes.
pub(super) fn align(to: &mut Vec<u8>) {
    to.resize(to.len().next_multiple_of(8), 0);
}

/// Appends a distance of 32 bits; `None` if it does not fit.
pub(super) fn distance(to: &mut Vec<u8>, from: u64, address: u64) -> Option<()> {
    let distance = i32::try_from(address.wrapping_sub(from).cast_signed()).ok()?;
    to.extend_from_slice(&distance.to_le_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_dwarf_has_them() {
        let bytes = |write: fn(&mut Vec<u8>)| {
            let mut to = Vec::new();
            write(&mut to);
            to
        };
        assert_eq!(bytes(|to| unsigned(to, 624_485)), [0xe5, 0x8e, 0x26]);
        assert_eq!(bytes(|to| signed(to, -123_456)), [0xc0, 0xbb, 0x78]);
        assert_eq!(bytes(|to| signed(to, 64)), [0xc0, 0x00]);
        assert_eq!(bytes(|to| signed(to, -64)), [0x40]);
    }
}
