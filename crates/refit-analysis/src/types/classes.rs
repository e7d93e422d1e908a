//! The classes of the System V ABI (§3.2.3): which values are passed in general registers, and how
//! many of these they take.

use super::{Kind, Shape, TypeId, Types};

/// The deepest structures within each other that are passed in registers.
const DEEPEST: usize = 16;
/// The most members that such a structure has, with those of its members.
const MOST_MEMBERS: usize = 64;

/// Where values of a type are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// In this many general registers: 1 or 2, or none if all of it is in vector registers.
    Registers(u8),
    /// On the stack, where it takes this many bytes.
    Memory(u64),
    /// In a general register: the address of a copy.
    Address,
}

impl Types {
    /// Returns the class of a type; `None` if it is not known.
    pub(super) fn class(&self, of: TypeId) -> Option<Class> {
        let node = self.plain(of)?;
        let by_reference = matches!(
            node.entry.attr_value(gimli::DW_AT_calling_convention),
            Some(gimli::AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference))
        );
        if by_reference {
            return Some(Class::Address);
        }
        let size = self.size(of)?;
        let rounded = size.checked_next_multiple_of(8)?;
        let mut words = Words::default();
        if size > 16 || !self.classify(of, 0, &mut words, DEEPEST)? {
            return Some(Class::Memory(rounded));
        }
        Some(Class::Registers(words.general.into_iter().map(u8::from).sum()))
    }

    /// Marks the words that hold integers; `false` if it is passed in memory.
    fn classify(&self, of: TypeId, offset: u64, words: &mut Words, deepest: usize) -> Option<bool> {
        let deepest = deepest.checked_sub(1)?;
        words.members += 1;
        if words.members > MOST_MEMBERS {
            return None;
        }
        let size = self.size(of)?;
        match self.shape(of) {
            Shape::Number { .. } | Shape::Pointer(_) => {
                *words.general.get_mut(usize::try_from(offset / 8).ok()?)? = true;
                Some(offset.is_multiple_of(size.max(1)))
            }
            Shape::Array { of, stride } => {
                let count = size.checked_div(stride).unwrap_or(0);
                let mut all = true;
                for index in 0..count {
                    all &= self.classify(of, offset + index * stride, words, deepest)?;
                }
                Some(all)
            }
            Shape::Structure => {
                let mut all = true;
                for (inner, of) in self.parts(of)? {
                    all &= self.classify(of, offset.checked_add(inner)?, words, deepest)?;
                }
                Some(all)
            }
            // `__int128` is two integers, `long double` is passed in memory.
            Shape::Other(_) => self.other(of, size, words),
        }
    }

    fn other(&self, of: TypeId, size: u64, words: &mut Words) -> Option<bool> {
        match self.plain(of)?.entry.attr_value(gimli::DW_AT_encoding)? {
            gimli::AttributeValue::Encoding(gimli::DW_ATE_float) => Some(size <= 8),
            gimli::AttributeValue::Encoding(gimli::DW_ATE_signed | gimli::DW_ATE_unsigned) => {
                words.general = [true; 2];
                Some(true)
            }
            _ => None,
        }
    }

    /// Whether a type is a number or a pointer, which every language passes alike.
    pub(super) fn is_scalar(&self, of: TypeId) -> bool {
        matches!(self.shape(of), Shape::Number { .. } | Shape::Pointer(_))
    }

    /// Whether a type is a structure or a union.
    pub(super) fn is_structure(&self, of: TypeId) -> bool {
        let kind = self.plain(of).and_then(|node| Kind::of(node.entry.tag()));
        kind.is_some_and(|kind| kind != Kind::Enumeration)
    }
}

/// The two words of a value of at most 16 bytes.
#[derive(Default)]
struct Words {
    /// Which of them hold integers.
    general: [bool; 2],
    /// The members that were seen.
    members: usize,
}
