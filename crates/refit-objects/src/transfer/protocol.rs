//! Protocols: the forms in which state can be packed, each identified by name and type, and the
//! protocols that a root knows, in order of preference.
//!
//! # What a protocol is
//!
//! A *name* and the *type* of the state that is transferred. Two implementations that were built
//! separately agree on a protocol if both are the same; names are compared as text, types by
//! [`ProtocolInfo::fingerprint`]. Within a process every protocol of an interface has a number
//! below 64, so that the set of protocols that a root knows is one word (K42: Soules 2003, §4.3.2):
//!
//! | number | protocols | assigned by |
//! |---|---|---|
//! | 0 | the canonical protocol: the interface's `State` | fixed |
//! | 1 to 31 | those that the interface declares (`protocols(…)`) | order of declaration |
//! | 32 to 63 | those of implementations alone | `Typed::named`, in order of arrival |
//!
//! An interface declares protocols in its attribute: `#[interface(…, protocols(stripes =
//! reference(Stripes)))]`. Implementations agree on further ones among themselves. A number
//! therefore means nothing outside of the process, and code that is loaded later cannot take a
//! number that is in use.
//!
//! # What preference is
//!
//! In K42 the number itself is the preference, so all roots have the same order. Here each root has
//! its own order, because a protocol that is cheap for one implementation may be expensive for
//! another.

use std::any::type_name;
use std::fmt;

use refit_change::Way;

use crate::fnv::{FNV, fnv1a};

/// The number of a protocol within its interface and this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub(crate) u8);

impl Protocol {
    /// The protocol that all implementations of an interface know: its `State`.
    pub const CANONICAL: Protocol = Protocol(0);

    /// The first number of those that an interface does not declare.
    pub(crate) const FIRST_NAMED: u8 = 32;

    /// Returns the bit of this protocol in a set.
    pub fn bit(self) -> u64 {
        1 << self.0
    }
}

/// The description of a protocol, without its type.
#[derive(Clone, Copy)]
pub struct ProtocolInfo {
    /// The name of the protocol.
    pub name: &'static str,
    /// The way in which it transfers state.
    pub way: Way,
    type_name: fn() -> &'static str,
    size: usize,
    align: usize,
}

impl ProtocolInfo {
    /// Describes a protocol that transfers a `T`.
    pub const fn of<T>(name: &'static str, way: Way) -> Self {
        let (size, align) = (size_of::<T>(), align_of::<T>());
        ProtocolInfo { name, way, type_name: type_name::<T>, size, align }
    }

    /// Returns the type that is transferred, as people write it.
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// Returns a fingerprint of the type. It is equal for the same type in two builds, and with
    /// high probability different for types with another path, size or alignment. It does not
    /// reflect a field that has changed its meaning: such a protocol needs another name.
    pub fn fingerprint(&self) -> u64 {
        let name = fnv1a(self.type_name().as_bytes(), FNV);
        [self.size, self.align]
            .into_iter()
            .fold(name, |hash, n| fnv1a(&(n as u64).to_le_bytes(), hash))
    }
}

impl fmt::Debug for ProtocolInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?} of {})", self.name, self.way, self.type_name())
    }
}

/// The protocols in which a root can export or import: a set of 64 bits, and an order of
/// preference. It always contains the canonical protocol, last unless given another place;
/// [`Protocols::only`] is for implementations without it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    bits: u64,
    order: [u8; 64],
    len: u8,
}

impl Protocols {
    const NONE: Protocols = Protocols { bits: 0, order: [0; 64], len: 0 };

    /// Returns the canonical protocol alone.
    pub fn canonical() -> Self {
        Self::new([])
    }

    /// Returns these, most preferred first, followed by the canonical one unless it is among them.
    pub fn new(best_first: impl IntoIterator<Item = Protocol>) -> Self {
        Self::only(best_first.into_iter().chain([Protocol::CANONICAL]))
    }

    /// Returns these, most preferred first, and no others: for an implementation that has lost the
    /// canonical protocol, for example because it was built for another version of the interface's
    /// state.
    pub fn only(best_first: impl IntoIterator<Item = Protocol>) -> Self {
        best_first.into_iter().fold(Self::NONE, Self::with)
    }

    fn with(mut self, protocol: Protocol) -> Self {
        if self.bits & protocol.bit() == 0 {
            self.bits |= protocol.bit();
            self.order[usize::from(self.len)] = protocol.0;
            self.len += 1;
        }
        self
    }

    /// Returns the set: bit `n` is set if protocol `n` is known.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Returns the protocols, most preferred first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Protocol> {
        self.order[..usize::from(self.len)].iter().map(|n| Protocol(*n))
    }

    /// Returns those of them that are in `bits`, in the same order.
    pub(crate) fn among(&self, bits: u64) -> Self {
        Self::only(self.iter().filter(|p| p.bit() & bits != 0))
    }

    /// Returns the position in the order, from 0; `None` if it is not known.
    pub(crate) fn rank(&self, protocol: Protocol) -> Option<u32> {
        let place = self.iter().position(|p| p == protocol)?;
        u32::try_from(place).ok()
    }
}

impl fmt::Debug for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|p| p.0)).finish()
    }
}
