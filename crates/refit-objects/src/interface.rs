//! The functions that an implementation of a clustered object provides; `#[interface]` generates
//! the rest.

use serde::Serialize;

use crate::bound::Bound;
use crate::description::InterfaceInfo;
use crate::ending::Ending;
use crate::id::ObjectId;
use crate::rep::OwnedRep;
pub use crate::transfer::TransferError;
use crate::transfer::{Exported, Progress, Protocol, ProtocolInfo, Protocols};

/// An interface, as a type. Implemented by `#[interface]` only.
///
/// # Safety
/// `info` must describe vtables of the shape that calls through `Ref` expect.
pub unsafe trait Interface: Sized + Send + Sync + 'static {
    /// The canonical state, which every implementation of the interface can export and import.
    type State: Send + 'static;
    /// The reference, which is `Copy` and has the interface's methods.
    type Ref: Copy + Send + Sync + 'static;
    /// Returns the name, the methods and the vtables of the system.
    fn info() -> &'static InterfaceInfo;
    /// Returns the protocols that the interface declares in addition to the canonical one: numbers
    /// 1 and up.
    fn protocols() -> &'static [ProtocolInfo] {
        &[]
    }
    /// Returns whether the state is a hint, so that an implementation works as correctly without
    /// its predecessor's state. Declared by `#[interface(…, hint)]`.
    fn state_is_hint() -> bool {
        false
    }
    /// Returns the canonical state of an object that holds nothing, if the interface has one: the
    /// state's default if `#[interface(…, empty)]` declares it.
    fn empty_state() -> Option<Self::State> {
        None
    }
    /// Returns a reference to the object that is bound to this interface; see
    /// [`reference()`](crate::reference()).
    fn bind(object: Bound<Self>) -> Self::Ref;
    /// Returns the id of the object that is referred to.
    fn id(reference: Self::Ref) -> ObjectId;
}

/// A reference that an implementation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Import {
    /// The role of the object for the implementation, for example `pm`.
    pub port: &'static str,
    /// The object that it refers to.
    pub object: ObjectId,
}

/// The root of one implementation of a clustered object.
///
/// `export` and `import` are called while no call is in any method of the object. The exception is
/// a deadline that passes in the meantime: then the old root serves again although its export has
/// not returned, and the result of the export is discarded. A root that was replaced is dropped
/// when no call can be in its reps any more.
pub trait Root<I: Interface>: Send + Sync + 'static {
    /// Returns the name of the implementation, for example `shared`.
    fn implementation(&self) -> &str;

    /// Returns the cluster of a processor: processors with the same number share a rep. By default
    /// there is one rep for all.
    fn cluster(&self, processor: usize) -> usize {
        let _ = processor;
        0
    }

    /// Creates a rep when a processor of its cluster calls the object for the first time. Must not
    /// call objects.
    fn make_rep(&self, processor: usize) -> OwnedRep<I>;

    /// Returns the state in the canonical protocol. Must leave the object able to continue: the
    /// change can still be rolled back afterwards.
    fn export(&self) -> Result<I::State, TransferError>;

    /// Takes over state. Called once, on a new root, before any method.
    fn import(&self, state: I::State) -> Result<(), TransferError>;

    /// Returns the protocols that it knows, by preference. Called before every swap, while the root
    /// serves.
    fn protocols(&self) -> Protocols {
        Protocols::canonical()
    }

    /// Returns the protocols in which it can export, if they are not all that it knows.
    fn export_protocols(&self) -> Protocols {
        self.protocols()
    }

    /// Returns the protocols that it can import, if they are not all that it knows.
    fn import_protocols(&self) -> Protocols {
        self.protocols()
    }

    /// As [`Self::export`], in any of [`Self::export_protocols`].
    fn export_as(&self, protocol: Protocol) -> Result<Exported, TransferError> {
        match protocol {
            Protocol::CANONICAL => self.export().map(|state| Exported::new(protocol, state)),
            _ => Err(not_known(self.implementation(), "export")),
        }
    }

    /// As [`Self::import`], of any of [`Self::import_protocols`].
    fn import_as(&self, protocol: Protocol, state: Exported) -> Result<(), TransferError> {
        match protocol {
            Protocol::CANONICAL => self.import(state.into_state(protocol)?),
            _ => Err(not_known(self.implementation(), "import")),
        }
    }

    /// Returns the number of parts into which a partitioned protocol divides the state. Both sides
    /// must return the same number, and divide alike.
    fn partitions(&self, protocol: Protocol) -> usize {
        let _ = protocol;
        1
    }

    /// Returns one part of the state, numbered from 0. Several threads may call this at the same
    /// time.
    fn export_part(&self, protocol: Protocol, part: usize) -> Result<Exported, TransferError> {
        let _ = part;
        self.export_as(protocol)
    }

    /// Takes over one part of the state. Several threads may call this at the same time.
    fn import_part(
        &self,
        protocol: Protocol,
        part: usize,
        state: Exported,
    ) -> Result<(), TransferError> {
        let _ = part;
        self.import_as(protocol, state)
    }

    /// Returns the number of items in its state, so that a transfer that loses some is detected and
    /// rolled back. Must be cheap, since calls wait. With a lazy protocol, items that are still at
    /// the source count. Not called for a transfer by reference unless the exporter says how many
    /// items it has packed.
    fn count(&self) -> Option<u64> {
        None
    }

    /// Moves up to `most` more items of a lazy transfer here; all of them, with calls for them
    /// waiting, if `most` is `usize::MAX`; none if it is 0. Called after the commit, concurrently
    /// with methods.
    fn drain(&self, most: usize) -> Result<Progress, TransferError> {
        let _ = most;
        Ok(Progress::default())
    }

    /// Releases everything that the two sides of a swap share: the other side serves, and this root
    /// will not be called again. `ending` says whether it was the old root of a committed swap, or
    /// the new one of a swap that was rolled back. Called while no call is in any method, and
    /// before calls continue.
    fn relinquish(&self, ending: Ending<'_>) {
        let _ = ending;
    }

    /// Returns whether [`count`](Self::count), export, import and [`relinquish`](Self::relinquish)
    /// always return promptly: in a time that is bounded by the number of items, without I/O, and
    /// without a lock that another thread holds for long. They run on the swapping thread then,
    /// which saves the start of two threads while calls wait. By default they run on a separate
    /// thread, and a swap whose deadline passes continues without them.
    fn transfers_promptly(&self) -> bool {
        false
    }

    /// Returns the objects that this one calls, for display.
    fn imports(&self) -> Vec<Import> {
        Vec::new()
    }

    /// Returns the counters to show, as pairs of a name and a value.
    fn stats(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

#[cold]
fn not_known(implementation: &str, verb: &str) -> TransferError {
    TransferError(format!(
        "{implementation} lists a protocol that it cannot {verb}, which is a bug in it"
    ))
}

/// The implementations to which an object can be swapped.
pub trait Implementations<I: Interface>: Send + Sync + 'static {
    /// Returns their names.
    fn names(&self) -> Vec<&'static str>;
    /// Returns a new, empty root; `None` if there is none with this name.
    fn root(&self, name: &str) -> Option<Box<dyn Root<I>>>;
}
