//! Classes and their factories: which objects are of one kind, and which implementation new ones
//! get (Soules 2003, §7.1: object creation and management).
//!
//! A factory creates the objects of a class with the implementation that is current, and knows
//! which objects it has created. [`upgrade`](crate::upgrade()) swaps them all, and sets the
//! implementation of new ones. Several factories may create objects of one class, for example one
//! for each mount; an upgrade of the class applies to all of them.
//!
//! # Why an upgrade misses no object
//!
//! A factory chooses the implementation, creates the object and registers it under the read lock of
//! `serves`. An upgrade sets its own implementation under the write lock, and looks for objects
//! after that. So every object that it does not find was created later, with the new
//! implementation.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::interface::{Implementations, Interface, Root, TransferError};
use crate::maker::{Maker, Origin, makers};
use crate::name::Name;
use crate::object::create_made;
use crate::plugin::ledger;
use crate::registry;
use crate::slot::Slot;
use crate::ticket::Ticket;

/// The reason that a factory could not create an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The implementation that serves the class is not available for this object.
    #[error("an object of class {class} cannot be {asked:?}; there are: {known}")]
    UnknownImplementation {
        /// The class.
        class: String,
        /// The implementation.
        asked: String,
        /// The available implementations.
        known: String,
    },
    /// The new object has refused its first state.
    #[error("the object refused its initial state: {0}")]
    State(TransferError),
}

/// Creates objects of one class.
///
/// Objects outlive their factory, and can be upgraded even then.
#[derive(Debug)]
pub struct Factory<I> {
    maker: Arc<Maker>,
    interface: PhantomData<fn() -> I>,
}

impl<I: Interface> Factory<I> {
    /// Creates a factory of the class that is named after the interface. `name` distinguishes it
    /// from others of the class; `implementation` is that of its objects until the class is
    /// upgraded.
    pub fn new(name: impl Into<String>, implementation: impl Into<String>) -> Self {
        let maker = Maker::new(I::info().name, name.into(), implementation.into());
        Factory { maker, interface: PhantomData }
    }

    /// Returns the implementation of new objects.
    pub fn implementation(&self) -> String {
        self.maker.serving()
    }

    /// Creates an object with the implementation that serves the class, and `state` as its first
    /// state.
    pub fn create(
        &self,
        name: impl Into<Name>,
        implementations: Arc<dyn Implementations<I>>,
        state: Option<I::State>,
    ) -> Result<I::Ref, CreateError> {
        // Held until the object is registered; see the module documentation.
        let serves = self.maker.serves.read();
        let root = self.root(&serves.implementation, &*implementations)?;
        if let Some(state) = state {
            root.import(state).map_err(CreateError::State)?;
        }
        let origin = Origin::new(&self.maker, serves.since);
        Ok(create_made(name.into(), root, implementations, Some(origin)))
    }

    fn root(
        &self,
        implementation: &str,
        implementations: &dyn Implementations<I>,
    ) -> Result<Box<dyn Root<I>>, CreateError> {
        let made = ledger::make(implementations, implementation);
        made.map_err(|why| CreateError::State(TransferError(why)))?.ok_or_else(|| {
            let known = [implementations.names(), ledger::names::<I>()].concat().join(", ");
            let (class, asked) = (self.maker.class.clone(), implementation.to_owned());
            CreateError::UnknownImplementation { class, asked, known }
        })
    }
}

/// The description of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassInfo {
    /// The name of the class, which is that of its interface.
    pub class: String,
    /// The name of the factory.
    pub factory: String,
    /// The implementation of the factory's new objects.
    pub implementation: String,
    /// The number of living objects that the factory has created.
    pub instances: usize,
}

/// Returns the classes that have a factory, one entry for each factory.
pub fn classes() -> Vec<ClassInfo> {
    let info = |maker: Arc<Maker>| ClassInfo {
        class: maker.class.clone(),
        factory: maker.name.clone(),
        implementation: maker.serving(),
        instances: maker.instances.load(Ordering::Relaxed),
    };
    makers().into_iter().map(info).collect()
}

/// Returns the objects that these factories have created, in the order of their ids.
pub(crate) fn made_by(makers: &[Arc<Maker>]) -> Vec<Arc<Slot>> {
    let mine = |slot: &Arc<Slot>| {
        let origin = slot.origin.as_ref();
        origin.is_some_and(|origin| makers.iter().any(|maker| Arc::ptr_eq(maker, &origin.maker)))
    };
    let mut slots: Vec<_> = registry::all().into_iter().filter(mine).collect();
    slots.sort_by_key(|slot| slot.id);
    slots
}

/// The right to upgrade any class: upgrades queue for it.
pub(crate) static UPGRADING: Ticket = Ticket::new();
