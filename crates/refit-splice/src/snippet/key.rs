//! Keys, by which cells and kept values are distinguished.

use std::sync::Arc;

use super::item::Item;
use super::value::Value;

/// The value or the items by which cells are distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A value.
    Value(Value),
    /// Several items together, which are stored once, under a number
    /// ([`Installed::tuple`](crate::Installed::tuple)). That number is the key of the cells; 0 if
    /// there was no room.
    Tuple(Arc<[Item]>),
}

impl Key {
    /// Returns the values that it reads.
    pub(super) fn values(&self) -> Vec<Value> {
        match self {
            Self::Value(value) => vec![*value],
            Self::Tuple(items) => items.iter().filter_map(Item::value).collect(),
        }
    }

    /// Returns the items that it gathers.
    pub(super) fn items(&self) -> &[Item] {
        match self {
            Self::Value(_) => &[],
            Self::Tuple(items) => items,
        }
    }
}
