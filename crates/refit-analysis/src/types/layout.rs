//! The shapes and sizes of types, and where the members of structures are.

use gimli::{
    AttributeValue, DW_AT_bit_offset, DW_AT_bit_size, DW_AT_byte_size, DW_AT_count,
    DW_AT_data_bit_offset, DW_AT_data_member_location, DW_AT_declaration, DW_AT_encoding,
    DW_AT_lower_bound, DW_AT_signature, DW_AT_upper_bound, DwTag, Operation,
};

use super::debug::{Node, Value};
use super::{Bits, Kind, Member, Shape, TypeId, Types};

/// The most names of a type, and the most structures without name within each other.
const DEEPEST: usize = 64;

impl Kind {
    pub(super) fn of(tag: DwTag) -> Option<Self> {
        match tag {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => Some(Self::Structure),
            gimli::DW_TAG_union_type => Some(Self::Union),
            gimli::DW_TAG_enumeration_type => Some(Self::Enumeration),
            _ => None,
        }
    }
}

impl Types {
    /// Returns the entry of a type behind its names and qualifiers (`typedef`, `const`).
    pub(super) fn plain(&self, of: TypeId) -> Option<Node> {
        let mut node = self.debug.node(of.at)?;
        for _ in 0..DEEPEST {
            match node.entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => {
                    node = self.debug.node(self.debug.type_of(&node)?)?;
                }
                _ => return Some(node),
            }
        }
        None
    }

    /// Returns the entry of a structure, of which only a declaration may be where it is named.
    fn structure(&self, of: TypeId) -> Option<Node> {
        let node = self.plain(of)?;
        let kind = Kind::of(node.entry.tag()).filter(|kind| *kind != Kind::Enumeration)?;
        if !node.entry.has_attr(DW_AT_declaration) {
            return Some(node);
        }
        if let Some(signature) = node.entry.attr_value(DW_AT_signature)
            && let Some(whole) = self.debug.target(&node, &signature)
        {
            return self.debug.node(whole);
        }
        let name = self.debug.own_name(&node)?;
        self.debug.node(self.named(Some(kind), &name)?.at)
    }

    /// Returns the word and the name of a structure, union or enumeration that no other type and no
    /// function contains; `None` if it is none.
    pub fn tag(&self, of: TypeId) -> Option<(Kind, String)> {
        let node = self.plain(of)?;
        let kind = Kind::of(node.entry.tag())?;
        let name = self.debug.own_name(&node)?;
        let around = self.debug.children(&node.root()?);
        around.iter().any(|child| child.at == node.at).then_some((kind, name))
    }

    /// Returns the shape of a type.
    pub fn shape(&self, of: TypeId) -> Shape {
        let Some(node) = self.plain(of) else { return Shape::Other("of no type (void)") };
        match node.entry.tag() {
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => self.number(&node),
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                Shape::Pointer(self.debug.type_of(&node).map(TypeId::from))
            }
            gimli::DW_TAG_array_type => {
                let array = self.array(&node, of);
                array.map_or(Shape::Other("an array of unknown type"), |(of, stride)| {
                    Shape::Array { of, stride }
                })
            }
            tag if Kind::of(tag).is_some() => Shape::Structure,
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => Shape::Other("a function"),
            _ => Shape::Other("of an unknown type"),
        }
    }

    /// Returns the shape of a basic type or an enumeration.
    fn number(&self, node: &Node) -> Shape {
        let bytes = self.debug.number(node, DW_AT_byte_size).unwrap_or(4);
        let encoding = match node.entry.attr_value(DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => Some(encoding),
            // An enumeration may say which type it has in C++.
            _ => {
                let under = self.debug.type_of(node).and_then(|at| self.plain(at.into()));
                under.and_then(|under| match under.entry.attr_value(DW_AT_encoding) {
                    Some(AttributeValue::Encoding(encoding)) => Some(encoding),
                    _ => None,
                })
            }
        };
        let signed = match encoding {
            Some(gimli::DW_ATE_signed | gimli::DW_ATE_signed_char) => true,
            Some(
                gimli::DW_ATE_unsigned
                | gimli::DW_ATE_unsigned_char
                | gimli::DW_ATE_boolean
                | gimli::DW_ATE_address
                | gimli::DW_ATE_UTF,
            )
            | None => false,
            Some(gimli::DW_ATE_float) => return Shape::Other("a floating-point number"),
            Some(_) => return Shape::Other("no integer"),
        };
        match u8::try_from(bytes) {
            Ok(bytes @ (1 | 2 | 4 | 8)) => Shape::Number { bytes, signed },
            _ => Shape::Other("a number of more than 8 bytes"),
        }
    }

    /// Returns the type of the elements of an array, and the distance between them.
    fn array(&self, node: &Node, of: TypeId) -> Option<(TypeId, u64)> {
        let lengths = self.lengths(node);
        let next = usize::from(of.dimension) + 1;
        let element: TypeId = self.debug.type_of(node)?.into();
        let mut stride = self.size(element)?;
        for length in lengths.get(next..).unwrap_or_default() {
            stride = stride.checked_mul((*length)?)?;
        }
        let row = TypeId { at: node.at, dimension: u8::try_from(next).ok()? };
        Some((if next < lengths.len() { row } else { element }, stride))
    }

    /// Returns the number of elements of each dimension of an array, as far as they are known.
    fn lengths(&self, node: &Node) -> Vec<Option<u64>> {
        let dimensions = self.debug.children(node).into_iter();
        let dimensions =
            dimensions.filter(|child| child.entry.tag() == gimli::DW_TAG_subrange_type);
        let length = |child: Node| {
            let number = |name| child.entry.attr_value(name).and_then(|value| value.udata_value());
            let bound = || {
                let last = number(DW_AT_upper_bound)?;
                last.checked_sub(number(DW_AT_lower_bound).unwrap_or(0))?.checked_add(1)
            };
            number(DW_AT_count).or_else(bound)
        };
        dimensions.map(length).collect()
    }

    /// Returns the size of a type in bytes.
    pub fn size(&self, of: TypeId) -> Option<u64> {
        let mut node = self.plain(of)?;
        let mut times = 1_u64;
        for _ in 0..DEEPEST {
            let tag = node.entry.tag();
            if let Some(bytes) = node.entry.attr_value(DW_AT_byte_size) {
                return bytes.udata_value()?.checked_mul(times);
            }
            match tag {
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => return times.checked_mul(8),
                gimli::DW_TAG_array_type => {
                    let own = node.at == of.at;
                    let skip = if own { usize::from(of.dimension) } else { 0 };
                    for length in self.lengths(&node).into_iter().skip(skip) {
                        times = times.checked_mul(length?)?;
                    }
                    node = self.plain(self.debug.type_of(&node)?.into())?;
                }
                _ if Kind::of(tag).is_some() => {
                    let whole = self.structure(node.at.into())?;
                    return self.debug.number(&whole, DW_AT_byte_size)?.checked_mul(times);
                }
                _ => return None,
            }
        }
        None
    }

    /// Finds a member of a structure by its name, also in what it derives from and in structures
    /// without name that are within it.
    pub fn member(&self, of: TypeId, name: &str) -> Option<Member> {
        self.member_of(&self.structure(of)?, name, DEEPEST)
    }

    fn member_of(&self, structure: &Node, name: &str, deepest: usize) -> Option<Member> {
        let deepest = deepest.checked_sub(1)?;
        for child in self.debug.children(structure) {
            let named = match child.entry.tag() {
                gimli::DW_TAG_member => self.debug.own_name(&child),
                gimli::DW_TAG_inheritance => None,
                _ => continue,
            };
            let offset = match child.entry.attr_value(DW_AT_data_member_location) {
                Some(value) => constant(&child, &value),
                // Members of unions begin where these begin; static ones are elsewhere.
                None => Some(0).filter(|_| !child.entry.has_attr(DW_AT_declaration)),
            };
            let (Some(offset), Some(of)) = (offset, self.debug.type_of(&child)) else { continue };
            if named.as_deref() == Some(name) {
                return self.found(&child, offset, of.into());
            }
            if named.is_none()
                && let Some(inner) = self.structure(of.into())
                && let Some(member) = self.member_of(&inner, name, deepest)
            {
                return Some(Member { offset: offset.checked_add(member.offset)?, ..member });
            }
        }
        None
    }

    /// Returns a member, of which the bits may have to be taken from its unit.
    fn found(&self, node: &Node, offset: u64, of: TypeId) -> Option<Member> {
        let number = |name| node.entry.attr_value(name).and_then(|value| value.udata_value());
        let Some(count) = number(DW_AT_bit_size) else {
            return Some(Member { offset, bits: None, of });
        };
        let unit = self.size(of)?.checked_mul(8).filter(|bits| *bits > 0)?;
        let (offset, first) = match (number(DW_AT_data_bit_offset), number(DW_AT_bit_offset)) {
            (Some(first), _) => ((first / unit).checked_mul(unit / 8)?, first % unit),
            // Before DWARF 4, bits are counted from the highest one.
            (None, Some(before)) => (offset, unit.checked_sub(before)?.checked_sub(count)?),
            (None, None) => (offset, 0),
        };
        let bits = Bits { first: u8::try_from(first).ok()?, count: u8::try_from(count).ok()? };
        let fits = count > 0 && first + count <= unit && unit <= 64;
        fits.then_some(Member { offset, bits: Some(bits), of })
    }

    /// Returns the offsets and types of all members of a structure; `None` if one is not known.
    pub(super) fn parts(&self, of: TypeId) -> Option<Vec<(u64, TypeId)>> {
        let children = self.debug.children(&self.structure(of)?).into_iter();
        let fields = children.filter(|child| {
            let tag = child.entry.tag();
            matches!(tag, gimli::DW_TAG_member | gimli::DW_TAG_inheritance)
                && !child.entry.has_attr(DW_AT_declaration)
        });
        let part = |child: Node| {
            let of = self.debug.type_of(&child)?.into();
            let offset = match child.entry.attr_value(DW_AT_data_member_location) {
                Some(value) => constant(&child, &value)?,
                None => 0,
            };
            Some((self.found(&child, offset, of)?.offset, of))
        };
        fields.map(part).collect()
    }

    /// Returns the names of the members of a structure.
    pub fn members(&self, of: TypeId) -> Vec<String> {
        let Some(structure) = self.structure(of) else { return Vec::new() };
        let children = self.debug.children(&structure).into_iter();
        let members = children.filter(|child| child.entry.tag() == gimli::DW_TAG_member);
        members.filter_map(|child| self.debug.own_name(&child)).collect()
    }
}

/// Returns the offset of a member: a number, or an expression that adds one.
fn constant(node: &Node, value: &Value) -> Option<u64> {
    if let Some(expression) = value.exprloc_value() {
        let mut operations = expression.operations(node.unit.encoding());
        return match (operations.next(), operations.next()) {
            (Ok(Some(Operation::PlusConstant { value })), Ok(None)) => Some(value),
            _ => None,
        };
    }
    value.udata_value()
}
