//! Formulas: numbers that snippets compute from values, kept values and texts.

use std::sync::Arc;

use super::item::Item;
use super::key::Key;
use super::registers::{FETCHING, Needs, Set};
use super::value::{Base, Relation, Value, Width};

/// A number that a snippet computes: signed, of 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    /// A number that does not change.
    Number(i64),
    /// A value.
    Value(Value),
    /// A value that is kept; 0 if none is.
    Kept(Kept),
    /// Whether the text of an item has these words: 1 or 0.
    Same {
        /// The item.
        item: Item,
        /// As many words as the item has.
        words: Arc<[u64]>,
    },
    /// The number of this width at an address. The kernel copies it: a formula that reads what
    /// cannot be read fails, and does no harm.
    Read(Box<Self>, Width),
    /// The result of an operator on one number.
    Unary(Unary, Box<Self>),
    /// The result of an operator on two numbers.
    Binary(Operator, Box<[Self; 2]>),
    /// The second number if the first is not 0, else the third. Only one of the two is computed.
    Choice(Box<[Self; 3]>),
}

/// Where a value is kept: a map, and the key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of the map, from 0 on.
    pub map: u16,
    /// The key; `None` in a map of one value.
    pub key: Option<Key>,
}

/// An operator on a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-`
    Negate,
    /// `~`
    Invert,
    /// `!`
    Not,
}

/// An operator on two numbers, which wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `&`
    And,
    /// `<<`, of which the lower 6 bits of the right number count
    Left,
    /// `>>`, the same, without sign: addresses stay addresses
    Right,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; the result of a division by 0 is 0
    Divide,
    /// `%`; the same
    Remainder,
    /// A relation: 1 if it holds, else 0.
    Compare(Relation),
    /// `&&`: 1 if neither is 0. The right number is computed only if the left one is not 0.
    Both,
    /// `||`: 1 if not both are 0. The right number is computed only if the left one is 0.
    Either,
}

impl Operator {
    /// Returns the result.
    pub fn apply(self, one: u64, other: u64) -> u64 {
        let (left, right) = (one.cast_signed(), other.cast_signed());
        let result = match self {
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::And => left & right,
            Self::Left => left.wrapping_shl(right as u32),
            Self::Right => return one.wrapping_shr(right as u32),
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide if right == 0 => 0,
            Self::Divide => left.wrapping_div(right),
            Self::Remainder if right == 0 => 0,
            Self::Remainder => left.wrapping_rem(right),
            Self::Compare(relation) => relation.holds(left, right).into(),
            Self::Both => (left != 0 && right != 0).into(),
            Self::Either => (left != 0 || right != 0).into(),
        };
        result.cast_unsigned()
    }
}

impl Formula {
    /// Returns all its parts, itself first.
    fn parts(&self) -> Vec<&Self> {
        let mut parts = vec![self];
        let mut next = 0;
        while let Some(&part) = parts.get(next) {
            next += 1;
            match part {
                Self::Read(inner, _) | Self::Unary(_, inner) => parts.push(inner),
                Self::Binary(_, both) => parts.extend(both.iter()),
                Self::Choice(all) => parts.extend(all.iter()),
                Self::Number(_) | Self::Value(_) | Self::Kept(_) | Self::Same { .. } => {}
            }
        }
        parts
    }

    /// Returns the values that it reads, without those of keys and items.
    pub(super) fn values(&self) -> Vec<Value> {
        let value = |part: &Self| match part {
            Self::Value(value) => Some(*value),
            _ => None,
        };
        self.parts().into_iter().filter_map(value).collect()
    }

    /// Returns the places of kept values that it reads.
    pub(super) fn kept<'f>(&'f self) -> Vec<&'f Kept> {
        let kept = |part: &'f Self| match part {
            Self::Kept(kept) => Some(kept),
            _ => None,
        };
        self.parts().into_iter().filter_map(kept).collect()
    }

    /// Returns the items that it compares.
    pub(super) fn compared<'f>(&'f self) -> Vec<&'f Item> {
        let item = |part: &'f Self| match part {
            Self::Same { item, .. } => Some(item),
            _ => None,
        };
        self.parts().into_iter().filter_map(item).collect()
    }

    /// Returns the number of words of stack on which it is computed.
    pub fn words(&self) -> usize {
        match self {
            Self::Number(_) | Self::Value(_) | Self::Kept(_) | Self::Same { .. } => 1,
            Self::Read(inner, _) | Self::Unary(_, inner) => inner.words(),
            Self::Binary(Operator::Both | Operator::Either, both) => {
                both.iter().map(Self::words).max().unwrap_or(1)
            }
            Self::Binary(_, both) => both[0].words().max(1 + both[1].words()),
            Self::Choice(all) => all.iter().map(Self::words).max().unwrap_or(1),
        }
    }

    /// Whether it reads memory at an address that it computes.
    fn fetches(&self) -> bool {
        self.parts().iter().any(|part| matches!(part, Self::Read(..)))
    }

    /// Whether computing it can fail.
    pub(super) fn fails(&self) -> bool {
        let keys = self.kept().into_iter().filter_map(|kept| kept.key.as_ref());
        self.fetches()
            || self.values().iter().any(|value| value.fails())
            || self.compared().iter().any(|item| item.fails())
            || keys.map(Key::values).any(|values| values.iter().any(|value| value.fails()))
    }

    /// Returns the registers and the stack that it needs, without those of values and items.
    pub(super) fn needs(&self) -> Needs {
        let mut needs =
            Needs { scratch: 1, fixed: Set::of(&[0, 1, 2]), reads: Set::NONE, stack: true };
        if !self.kept().is_empty() {
            needs.take(Kept::NEEDS);
        }
        if self.fetches() {
            needs.take(FETCHING);
        }
        needs
    }

    /// Returns an upper bound of the bytes of its code, without those of values, keys and items.
    pub(super) fn most_bytes(&self) -> u64 {
        let own = |part: &Self| match part {
            Self::Number(_) | Self::Value(_) | Self::Unary(..) => 40,
            Self::Kept(_) | Self::Read(..) => 224,
            Self::Same { words, .. } => 64 + 24 * words.len() as u64,
            Self::Binary(..) | Self::Choice(_) => 80,
        };
        48 + self.parts().into_iter().map(own).sum::<u64>()
    }
}

impl Kept {
    /// The registers that storing and looking up take.
    pub(super) const NEEDS: Needs =
        Needs { scratch: 5, fixed: Set(0b111), reads: Set::NONE, stack: false };
}

impl Value {
    /// Whether finding it can fail.
    pub(super) fn fails(self) -> bool {
        matches!(self.base, Base::Memory { .. } | Base::Local(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_wrap_around_and_nothing_faults() {
        let least = i64::MIN.cast_unsigned();
        let minus = (-7_i64).cast_unsigned();
        for (one, operator, other, result) in [
            (7, Operator::Divide, 2, 3),
            (minus, Operator::Divide, 2, (-3_i64).cast_unsigned()),
            (minus, Operator::Remainder, 4, (-3_i64).cast_unsigned()),
            (7, Operator::Divide, 0, 0),
            (7, Operator::Remainder, 0, 0),
            (least, Operator::Divide, u64::MAX, least),
            (least, Operator::Remainder, u64::MAX, 0),
            (u64::MAX, Operator::Add, 2, 1),
            (least, Operator::Multiply, 2, 0),
            (1, Operator::Left, 65, 2),
            (u64::MAX, Operator::Right, 60, 15),
            (6, Operator::Xor, 3, 5),
            (minus, Operator::Compare(Relation::Less), 1, 1),
            (minus, Operator::Both, 0, 0),
            (0, Operator::Either, minus, 1),
        ] {
            assert_eq!(operator.apply(one, other), result, "{one} {operator:?} {other}");
        }
    }

    #[test]
    fn right_numbers_take_room_above_left_ones() {
        let number = || Formula::Number(1);
        let add = |left, right| Formula::Binary(Operator::Add, Box::new([left, right]));
        let left = add(add(number(), number()), number());
        assert_eq!(left.words(), 2);
        let right = add(number(), add(number(), number()));
        assert_eq!(right.words(), 3);
        let both = Formula::Binary(Operator::Both, Box::new([left.clone(), right.clone()]));
        assert_eq!((both.words(), both.parts().len()), (3, 11));
        let choice = Formula::Choice(Box::new([number(), left, right]));
        assert_eq!(Formula::Unary(Unary::Not, Box::new(choice)).words(), 3);
    }
}
