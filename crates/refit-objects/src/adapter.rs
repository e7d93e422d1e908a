//! Adapters: an implementation of one interface, presented as another (Baumann et al. 2007 change
//! interfaces in this way).
//!
//! When an interface changes in a way that appending cannot express, the new one gets its own name,
//! and references to objects of the old one live on. [`Adapted`] is a root of the old interface
//! over a root of the new one: its reps call reps of the new interface, and its state is converted
//! in both directions. So an object that is known by the old interface can be swapped to an
//! implementation that was written for the new one, under load, and back.

use crate::ending::Ending;
use crate::interface::{Import, Interface, Root, TransferError};
use crate::rep::OwnedRep;

/// Expresses the old interface by the new one.
pub trait Adapter: Send + Sync + 'static {
    /// The interface by which the object is known.
    type Old: Interface;
    /// The interface in which it is implemented.
    type New: Interface;
    /// Returns a rep of the old interface that calls `new`. An [`OwnedRep`] implements the trait of
    /// its interface.
    fn rep(&self, new: OwnedRep<Self::New>) -> OwnedRep<Self::Old>;
    /// Converts canonical state of the new interface to that of the old.
    fn down(&self, state: NewState<Self>) -> Result<OldState<Self>, TransferError>;
    /// Converts canonical state of the old interface to that of the new.
    fn up(&self, state: OldState<Self>) -> Result<NewState<Self>, TransferError>;
}

/// The canonical state of an adapter's old interface.
pub type OldState<A> = <<A as Adapter>::Old as Interface>::State;
/// The canonical state of an adapter's new interface.
pub type NewState<A> = <<A as Adapter>::New as Interface>::State;

/// A root of the old interface over one of the new.
pub struct Adapted<A: Adapter> {
    adapter: A,
    new: Box<dyn Root<A::New>>,
}

impl<A: Adapter> std::fmt::Debug for Adapted<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapted").field("new", &self.new.implementation()).finish_non_exhaustive()
    }
}

impl<A: Adapter> Adapted<A> {
    /// Presents a root of the new interface as one of the old.
    pub fn new(adapter: A, new: Box<dyn Root<A::New>>) -> Self {
        Adapted { adapter, new }
    }
}

impl<A: Adapter> Root<A::Old> for Adapted<A> {
    fn implementation(&self) -> &str {
        self.new.implementation()
    }

    fn cluster(&self, processor: usize) -> usize {
        self.new.cluster(processor)
    }

    fn make_rep(&self, processor: usize) -> OwnedRep<A::Old> {
        self.adapter.rep(self.new.make_rep(processor))
    }

    fn export(&self) -> Result<OldState<A>, TransferError> {
        self.adapter.down(self.new.export()?)
    }

    fn import(&self, state: OldState<A>) -> Result<(), TransferError> {
        self.new.import(self.adapter.up(state)?)
    }

    fn relinquish(&self, ending: Ending<'_>) {
        self.new.relinquish(ending);
    }

    fn imports(&self) -> Vec<Import> {
        self.new.imports()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.new.stats()
    }
}
