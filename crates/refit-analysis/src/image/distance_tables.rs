//! Finds where tables of distances begin, by the instructions that jump through them.
//!
//! For a `switch`, compilers for position-independent code write
//!
//! ```text
//! lea    table(%rip), %rcx
//! movslq (%rcx,%rax,4), %rax
//! add    %rcx, %rax
//! ```
//!
//! mostly one behind the other. Where they lead, a table begins, and the one before it has ended.
//! They are looked for among all bytes of the code, since functions are not known yet: fourteen
//! bytes that fit each other so by chance would also have to lead into a table.

use super::Image;

/// Bytes of the first instruction, and of all.
const LOAD: usize = 7;
const LENGTH: usize = LOAD + 4 + 3;
/// Prefix of instructions with operands of 64 bits.
const WIDE: u8 = 0x48;

impl Image {
    /// Returns the addresses at which tables of distances begin, as far as jumps through them are
    /// of this form; ascending.
    pub(crate) fn distance_tables(&self) -> &[u64] {
        self.distance_tables.get_or_init(|| {
            let mut found: Vec<u64> = Vec::new();
            for code in &self.code {
                let Some(bytes) = self.bytes_from(code.addresses.start) else { continue };
                let length = (code.addresses.end - code.addresses.start) as usize;
                let bytes = &bytes[..bytes.len().min(length)];
                let behind_first = code.addresses.start + LOAD as u64;
                let all = (behind_first..).zip(bytes.windows(LENGTH));
                let loads = all.filter_map(|(behind, code)| {
                    Some(behind.wrapping_add_signed(loaded(code)?.into()))
                });
                found.extend(loads.filter(|&table| table % 4 == 0 && self.is_constant(table, 4)));
            }
            found.sort_unstable();
            found.dedup();
            found
        })
    }
}

/// Returns the distance of the table that these instructions read, from the end of the first one.
fn loaded(code: &[u8]) -> Option<i32> {
    let &[prefix, 0x8d, operands, a, b, c, d, wide, 0x63, read, place, first, second, both] = code
    else {
        return None;
    };
    // `lea distance(%rip), %base`.
    let relative = prefix & 0xfb == WIDE && operands & 0xc7 == 0x05;
    let base = operands >> 3 & 7 | (prefix & 4) << 1;
    // `movslq (%base,%index,4), %value`.
    let reads = wide & 0xf8 == WIDE && read & 0xc7 == 0x04 && place >> 6 == 2 && place & 7 != 5;
    let (same, value) = (place & 7 | (wide & 1) << 3 == base, read >> 3 & 7 | (wide & 4) << 1);
    // `add %base, %value`, in either form.
    let added = match (first, second) {
        (wide, 0x01) if both >> 6 == 3 => {
            Some((wide, both >> 3 & 7 | (wide & 4) << 1, both & 7 | (wide & 1) << 3))
        }
        (wide, 0x03) if both >> 6 == 3 => {
            Some((wide, both & 7 | (wide & 1) << 3, both >> 3 & 7 | (wide & 4) << 1))
        }
        _ => None,
    };
    let sums =
        added.is_some_and(|(wide, from, to)| wide & 0xfa == WIDE && (from, to) == (base, value));
    (relative && reads && same && sums).then(|| i32::from_le_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_told_by_the_registers_that_fit() {
        // lea 0x10(%rip),%rcx; movslq (%rcx,%rax,4),%rax; add %rcx,%rax
        let code = [0x48, 0x8d, 0x0d, 0x10, 0, 0, 0, 0x48, 0x63, 0x04, 0x81, 0x48, 0x01, 0xc8];
        assert_eq!(loaded(&code), Some(0x10));
        // The same with %r9, %r10 and %r11, and the other form of the sum.
        let high =
            [0x4c, 0x8d, 0x0d, 0xf0, 0xff, 0xff, 0xff, 0x4f, 0x63, 0x1c, 0x91, 0x4d, 0x03, 0xd9];
        assert_eq!(loaded(&high), Some(-0x10));
        for at in [2, 7, 9, 11, 13] {
            let mut other = code;
            other[at] ^= 0x08;
            assert_eq!(loaded(&other), None, "{at}");
        }
    }
}
