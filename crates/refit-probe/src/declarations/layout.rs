//! Places the members of structures as the System V ABI does (§3.1.2), with GCC's attributes.

use refit_analysis::types::Bits;

use super::declared::{Body, Declarations, Field, LARGEST, Type};
use super::tokens::Token;

/// The attributes of a structure or a member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    pub(super) packed: bool,
    /// The least alignment.
    pub(super) aligned: u64,
}

impl Attributes {
    /// Adds other attributes of the same.
    pub(super) fn add(&mut self, other: Self) {
        self.packed |= other.packed;
        self.aligned = self.aligned.max(other.aligned);
    }
}

/// A member without its place.
#[derive(Clone, Debug)]
pub(super) struct Member<'t> {
    pub(super) name: Option<Token<'t>>,
    pub(super) of: Type,
    /// The bits of a bit field.
    pub(super) width: Option<u8>,
    pub(super) attributes: Attributes,
}

/// The places that are taken by the members so far.
struct Layout {
    union: bool,
    /// First bit behind the last member.
    end: u64,
    /// Bits of the largest member of a union.
    most: u64,
    align: u64,
}

impl Layout {
    /// Returns the first bit of a member that has `bits` and begins at a multiple of `step`.
    fn take(&mut self, bits: u64, step: u64) -> Option<u64> {
        let begin = if self.union { 0 } else { self.end.checked_next_multiple_of(step)? };
        self.end = begin.checked_add(bits)?;
        self.most = self.most.max(self.end);
        Some(begin)
    }

    /// Returns the first bit of a bit field, which is within one unit of its type.
    fn take_bits(&mut self, width: u64, unit: u64, packed: bool) -> Option<u64> {
        let crosses = self.end / unit != (self.end + width.max(1) - 1) / unit;
        let step = if width == 0 || crosses && !packed { unit } else { 1 };
        self.take(width, step)
    }
}

/// Returns the members with their places; `None` if the structure is too large.
pub(super) fn place(
    members: &[Member<'_>],
    union: bool,
    attributes: Attributes,
    known: &Declarations,
) -> Option<Body> {
    let mut layout = Layout { union, end: 0, most: 0, align: attributes.aligned.max(1) };
    let mut fields = Vec::with_capacity(members.len());
    for member in members {
        let size = known.size(&member.of)?;
        let packed = attributes.packed || member.attributes.packed;
        let natural = if packed { 1 } else { known.align(&member.of) };
        let align = natural.max(member.attributes.aligned);
        let name = member.name.map(|name| name.text.to_owned());
        let (offset, bits, of) = match member.width {
            None => {
                let first = layout.take(size.checked_mul(8)?, align.checked_mul(8)?)?;
                (first / 8, None, member.of.clone())
            }
            Some(width) => {
                let first = layout.take_bits(width.into(), size.checked_mul(8)?, packed)?;
                read(first, width, &member.of)
            }
        };
        // A bit field without name is padding only.
        if name.is_some() || member.width.is_none() {
            layout.align = layout.align.max(align);
            fields.push(Field { name, offset, bits, of });
        }
    }
    let size = layout.most.div_ceil(8).checked_next_multiple_of(layout.align)?;
    let body = Body { size, align: layout.align, fields };
    (size <= LARGEST).then_some(body)
}

/// Returns what is read for a bit field: the unit of its type, or if it is in two units, the bytes
/// that it is in.
fn read(first: u64, width: u8, of: &Type) -> (u64, Option<Bits>, Type) {
    let Type::Number { bytes, signed } = *of else { return (first / 8, None, of.clone()) };
    let unit = u64::from(bytes) * 8;
    let (begin, bytes) = if first % unit + u64::from(width) <= unit {
        (first / unit * unit, bytes)
    } else {
        let bits = first % 8 + u64::from(width);
        // More than 64 bits are refused when the member is read.
        (first / 8 * 8, bits.div_ceil(8).next_power_of_two().min(8) as u8)
    };
    // Less than 64.
    let bits = Bits { first: (first - begin) as u8, count: width };
    (begin / 8, Some(bits), Type::Number { bytes, signed })
}
