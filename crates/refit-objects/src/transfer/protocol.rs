//! Protocols: how state can be packed, by name and type, and which of them a root knows, by preference.
//!
//! # What a protocol is
//!
//! A *name* and the *type* of what is handed over. Two implementations that were built apart agree on a protocol if
//! both are the same; names are compared as text, types by [`ProtocolInfo::fingerprint`]. Within a process every
//! protocol of an interface has a number below 64, so that what a root knows is one word (K42: Soules 2003, §4.3.2):
//!
//! | number | whose | given by |
//! |---|---|---|
//! | 0 | the canonical protocol: the interface's `State` | fixed |
//! | 1 to 31 | those that the interface declares, `#[interface(…, protocols(stripes = reference(Stripes)))]` | order of declaration |
//! | 32 to 63 | those that implementations agree on among themselves | [`Typed::named`], as they come |
//!
//! So a number means nothing outside of the process, and nothing that is loaded later can take one that is taken.
//!
//! # What preference is
//!
//! K42 makes the number itself the preference, one order for everybody. Here each root has an order of its own: what
//! is cheap for one implementation need not be for another.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use refit_change::Way;

use super::exported::Exported;
use super::known;
use crate::fnv::{FNV, fnv1a};
use crate::interface::{Interface, TransferError};

/// Number of a protocol within its interface and this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub(crate) u8);

impl Protocol {
    /// The protocol that all implementations of an interface know: its `State`.
    pub const CANONICAL: Protocol = Protocol(0);

    /// First number of those that an interface does not declare.
    pub(crate) const FIRST_NAMED: u8 = 32;

    /// As the only bit of a vector.
    pub fn bit(self) -> u64 {
        1 << self.0
    }
}

/// What is known of a protocol without its type.
#[derive(Clone, Copy)]
pub struct ProtocolInfo {
    /// Its name.
    pub name: &'static str,
    /// How it hands state over.
    pub way: Way,
    type_name: fn() -> &'static str,
    size: usize,
    align: usize,
}

impl ProtocolInfo {
    /// A protocol that hands over a `T`.
    pub const fn of<T>(name: &'static str, way: Way) -> Self {
        let (size, align) = (size_of::<T>(), align_of::<T>());
        ProtocolInfo { name, way, type_name: type_name::<T>, size, align }
    }

    /// The type that is handed over, as people write it.
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// The same for the same type in two builds of it; different, with all likelihood, for types of another path,
    /// size or alignment. It does not see a field that changed its meaning: give the protocol another name then.
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

/// A protocol of interface `I` that hands over a `T`. Made by `#[interface]` for those that it declares.
pub struct Typed<I, T> {
    protocol: Protocol,
    of: PhantomData<fn(I) -> T>,
}

impl<I, T> Clone for Typed<I, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, T> Copy for Typed<I, T> {}

impl<I, T> fmt::Debug for Typed<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Typed({}, {})", self.protocol.0, type_name::<T>())
    }
}

impl<I: Interface, T: Send + 'static> Typed<I, T> {
    /// The protocol with this number. Called by generated code only.
    #[doc(hidden)]
    pub const fn declared(number: u8) -> Self {
        assert!(number < Protocol::FIRST_NAMED, "an interface declares 31 protocols at most");
        Typed { protocol: Protocol(number), of: PhantomData }
    }

    /// A protocol that the interface does not declare: the same number for everybody who asks with the same name and
    /// type, for as long as the process lives.
    ///
    /// # Errors
    /// There are 32 of them already.
    pub fn named(name: &str, way: Way) -> Result<Self, TooManyProtocols> {
        known::intern::<I, T>(name, way).map(|protocol| Typed { protocol, of: PhantomData })
    }

    /// The protocol without its type.
    pub const fn id(self) -> Protocol {
        self.protocol
    }

    /// State, packed in this protocol.
    pub fn pack(self, state: T) -> Exported {
        Exported::new(self.protocol, state)
    }

    /// State that was packed in this protocol.
    ///
    /// # Errors
    /// It is something else.
    pub fn unpack(self, exported: Exported) -> Result<T, TransferError> {
        exported.into_state(self.protocol)
    }
}

/// An interface can have no more protocols.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the protocol {name:?} of {interface}: implementations have named 32 others already; declare those that many \
     know in #[interface(protocols(…))]"
)]
pub struct TooManyProtocols {
    /// The interface.
    pub interface: &'static str,
    /// The protocol that was asked for.
    pub name: String,
}

/// What a root can export or import: a vector of 64 bits, and an order of preference. The canonical protocol is always
/// in it, last unless it was given a place; [`Protocols::only`] is for implementations that cannot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    bits: u64,
    order: [u8; 64],
    len: u8,
}

impl Protocols {
    const NONE: Protocols = Protocols { bits: 0, order: [0; 64], len: 0 };

    /// The canonical protocol alone.
    pub fn canonical() -> Self {
        Self::new([])
    }

    /// These, best liked first, and the canonical one behind them unless it is among them.
    pub fn new(best_first: impl IntoIterator<Item = Protocol>) -> Self {
        Self::only(best_first.into_iter().chain([Protocol::CANONICAL]))
    }

    /// These, best liked first, and no others: for an implementation that has lost the canonical protocol, e.g. since it
    /// was built for another version of the interface's state.
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

    /// The vector: bit `n` is set if protocol `n` is known.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Best liked first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Protocol> {
        self.order[..usize::from(self.len)].iter().map(|n| Protocol(*n))
    }

    /// Those of them that are in `bits`, in the same order.
    pub(crate) fn among(&self, bits: u64) -> Self {
        Self::only(self.iter().filter(|p| p.bit() & bits != 0))
    }

    /// Place in the list, from 0; `None` if it is not known.
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
