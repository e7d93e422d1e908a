//! Protocols with the type of the state that they transfer.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use refit_change::Way;

use super::exported::Exported;
use super::known::{self, TooManyProtocols};
use super::protocol::Protocol;
use crate::interface::{Interface, TransferError};

/// A protocol of interface `I` that transfers a `T`. `#[interface]` creates those that the
/// interface declares.
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
    /// Returns the protocol with this number. Called by generated code only.
    #[doc(hidden)]
    pub const fn declared(number: u8) -> Self {
        assert!(number < Protocol::FIRST_NAMED, "an interface declares 31 protocols at most");
        Typed { protocol: Protocol(number), of: PhantomData }
    }

    /// Returns a protocol that the interface does not declare: the same number for all callers with
    /// the same name and type, as long as the process lives.
    ///
    /// # Errors
    /// There are 32 of them already.
    pub fn named(name: &str, way: Way) -> Result<Self, TooManyProtocols> {
        known::intern::<I, T>(name, way).map(|protocol| Typed { protocol, of: PhantomData })
    }

    /// Returns the protocol without its type.
    pub const fn id(self) -> Protocol {
        self.protocol
    }

    /// Packs state in this protocol.
    pub fn pack(self, state: T) -> Exported {
        Exported::new(self.protocol, state)
    }

    /// Unpacks state that was packed in this protocol.
    ///
    /// # Errors
    /// It was packed in another one.
    pub fn unpack(self, exported: Exported) -> Result<T, TransferError> {
        exported.into_state(self.protocol)
    }
}
