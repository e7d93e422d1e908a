//! Adapters: an implementation of one interface, presented as another (Baumann et al. 2007 change interfaces so).
//!
//! When an interface changes in a way that appending cannot express, the new one gets a name of its own, and references
//! to objects of the old one live on. [`Adapted`] is a root of the old interface over a root of the new: its reps call
//! reps of the new one, its state is converted both ways. So an object that is known by the old interface can be swapped
//! to an implementation that was written for the new one, under load, and back.

use crate::ending::Ending;
use crate::interface::{Import, Interface, Root, TransferError};
use crate::rep::OwnedRep;

/// How the old interface is expressed by the new.
pub trait Adapter: Send + Sync + 'static {
    /// What the object is known by.
    type Old: Interface;
    /// What it is implemented in.
    type New: Interface;
    /// A rep of the old interface that calls this one. An [`OwnedRep`] implements the trait of its interface.
    fn rep(&self, new: OwnedRep<Self::New>) -> OwnedRep<Self::Old>;
    /// Canonical state of the old interface, of that of the new.
    fn down(&self, state: NewState<Self>) -> Result<OldState<Self>, TransferError>;
    /// The opposite.
    fn up(&self, state: OldState<Self>) -> Result<NewState<Self>, TransferError>;
}

/// Canonical state of an adapter's old interface.
pub type OldState<A> = <<A as Adapter>::Old as Interface>::State;
/// Canonical state of an adapter's new interface.
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
