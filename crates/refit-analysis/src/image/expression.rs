//! DWARF expressions of frame descriptions, rewritten for code that runs elsewhere.

use gimli::{Encoding, EndianSlice, Expression, Format, LittleEndian, Operation};

/// Rewrites an expression whose registers have other homes. For a register and an offset,
/// `place` returns operations that push the sum, or `None` if the register is where it was.
///
/// Returns `None` if the expression cannot be rewritten: it jumps, or holds an address of its file.
pub fn rewrite(expression: &[u8], place: impl Fn(u16, i64) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };
    let whole = Expression(EndianSlice::new(expression, LittleEndian));
    let mut operations = whole.operations(encoding);
    let (mut rewritten, mut from) = (Vec::with_capacity(expression.len()), 0);
    while let Some(operation) = operations.next().ok()? {
        let to = operations.offset_from(&whole);
        let replaced = match operation {
            Operation::RegisterOffset { register, offset, .. } => place(register.0, offset),
            Operation::Bra { .. }
            | Operation::Skip { .. }
            | Operation::Address { .. }
            | Operation::Register { .. } => return None,
            _ => None,
        };
        match replaced {
            Some(replaced) => rewritten.extend(replaced),
            None => rewritten.extend_from_slice(expression.get(from..to)?),
        }
        from = to;
    }
    Some(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_replaced_and_the_rest_stays() {
        // rsp + 8 + (((rip & 15) >= 11) << 3): the rule of stubs in a procedure linkage table.
        let stub = [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        let none = rewrite(&stub, |_, _| None).expect("rewritten");
        assert_eq!(none, stub);
        let deeper = rewrite(&stub, |register, offset| {
            (register == 7).then(|| vec![0x77, (offset + 16) as u8])
        });
        assert_eq!(deeper.expect("rewritten")[..3], [0x77, 24, 0x80]);
        // A jump forward.
        assert_eq!(rewrite(&[0x2f, 0x01, 0x00, 0x30, 0x31], |_, _| None), None);
        assert_eq!(rewrite(&[0x77], |_, _| None), None, "it ends within an operation");
    }
}
