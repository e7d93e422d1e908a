//! The identity of an object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of an object: its index in the translation table and a serial number that no other
/// object of the process has. `Copy`; a call through the id of a destroyed object panics and has no
/// other effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.serial)
    }
}

impl ObjectId {
    /// Returns the id as one number, for tables of other systems.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.index) | u64::from(self.serial) << 32
    }

    /// Converts a number of [`Self::to_bits`] back. A number that was never an id becomes an id
    /// that no object has.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        ObjectId { index: bits as u32, serial: (bits >> 32) as u32 }
    }
}
