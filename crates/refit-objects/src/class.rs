//! Classes and their factories: which objects are of one kind, and what new ones of it are made of (Soules
//! 2003, §7.1: object creation and management).
//!
//! A factory makes the objects of a class with the implementation that serves just then, and knows which it has made.
//! [`upgrade`](crate::upgrade()) swaps them all, and with them what new ones are made of. Several factories may make
//! objects of one class, say one for each mount; an upgrade of the class concerns them all.
//!
//! # Why an upgrade misses no object
//!
//! A factory chooses the implementation, makes the object and registers it under the read lock of `serves`; an
//! upgrade puts its own implementation there under the write lock, and looks for objects after that. So what it does
//! not find was made later, of the new implementation.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use serde::Serialize;

use crate::interface::{Implementations, Interface, Root, TransferError};
use crate::name::Name;
use crate::object::{Slot, create_made};
use crate::plugin::ledger;
use crate::registry;
use crate::ticket::Ticket;

/// Why a factory could not make an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The implementation that serves the class is not one that this object can have.
    #[error("an object of class {class} cannot be {asked:?}; there are: {known}")]
    UnknownImplementation {
        /// The class.
        class: String,
        /// The implementation.
        asked: String,
        /// What there is.
        known: String,
    },
    /// The new object did not take its first state.
    #[error("the first state of the object was refused: {0}")]
    State(TransferError),
}

/// Makes objects of one class.
///
/// Objects outlive their factory, and can be upgraded then too.
#[derive(Debug)]
pub struct Factory<I> {
    maker: Arc<Maker>,
    interface: PhantomData<fn() -> I>,
}

/// A factory without its type.
#[derive(Debug)]
pub(crate) struct Maker {
    class: String,
    /// What the factory is there for, say a mount.
    name: String,
    pub(crate) serves: RwLock<Serves>,
    /// Objects that live.
    instances: AtomicUsize,
}

/// What new objects are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serves {
    pub(crate) implementation: String,
    /// Raised with every change of `implementation`.
    pub(crate) since: u64,
}

/// Where an object comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) maker: Arc<Maker>,
    /// [`Serves::since`] when it was made.
    pub(crate) since: u64,
}

impl Origin {
    fn new(maker: &Arc<Maker>, since: u64) -> Self {
        maker.instances.fetch_add(1, Ordering::Relaxed);
        Origin { maker: Arc::clone(maker), since }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.maker.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The factories there are, and the right to upgrade each class.
static MAKERS: Mutex<Vec<Weak<Maker>>> = Mutex::new(Vec::new());

impl<I: Interface> Factory<I> {
    /// A factory of the class that is named after the interface. `name` tells it from others of the class;
    /// `implementation` is what it makes objects of until the class is upgraded.
    pub fn new(name: impl Into<String>, implementation: impl Into<String>) -> Self {
        let serves = Serves { implementation: implementation.into(), since: 0 };
        let maker = Arc::new(Maker {
            class: I::info().name.to_owned(),
            name: name.into(),
            serves: RwLock::new(serves),
            instances: AtomicUsize::new(0),
        });
        let mut makers = MAKERS.lock().unwrap_or_else(PoisonError::into_inner);
        makers.retain(|maker| maker.strong_count() > 0);
        makers.push(Arc::downgrade(&maker));
        Factory { maker, interface: PhantomData }
    }

    /// The implementation of which new objects are made.
    pub fn implementation(&self) -> String {
        self.maker.serving()
    }

    /// Makes an object of the implementation that serves the class, with `state` as its first state.
    pub fn create(
        &self,
        name: impl Into<Name>,
        implementations: Arc<dyn Implementations<I>>,
        state: Option<I::State>,
    ) -> Result<I::Ref, CreateError> {
        // Held until the object is registered; see the module.
        let serves = self.maker.serves.read().unwrap_or_else(PoisonError::into_inner);
        let root = self.root(&serves.implementation, &*implementations)?;
        if let Some(state) = state {
            root.import(state).map_err(CreateError::State)?;
        }
        let origin = Origin::new(&self.maker, serves.since);
        Ok(create_made(name.into(), root, implementations, Some(origin)))
    }

    fn root(
        &self,
        asked: &str,
        implementations: &dyn Implementations<I>,
    ) -> Result<Box<dyn Root<I>>, CreateError> {
        let made = ledger::make(implementations, asked);
        made.map_err(|why| CreateError::State(TransferError(why)))?.ok_or_else(|| {
            let known = [implementations.names(), ledger::names::<I>()].concat().join(", ");
            let (class, asked) = (self.maker.class.clone(), asked.to_owned());
            CreateError::UnknownImplementation { class, asked, known }
        })
    }
}

impl Maker {
    pub(crate) fn serving(&self) -> String {
        self.serves.read().unwrap_or_else(PoisonError::into_inner).implementation.clone()
    }

    /// From now on new objects are made of this; what served before.
    pub(crate) fn serve(&self, implementation: &str) -> Serves {
        let mut serves = self.serves.write().unwrap_or_else(PoisonError::into_inner);
        let since = serves.since + 1;
        let now = Serves { implementation: implementation.to_owned(), since };
        std::mem::replace(&mut serves, now)
    }
}

/// What a class tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassInfo {
    /// Its name, that of its interface.
    pub class: String,
    /// The factory's name.
    pub factory: String,
    /// The implementation of which the factory makes new objects.
    pub implementation: String,
    /// Objects that the factory has made and that live.
    pub instances: usize,
}

/// The classes with a factory, one line for each factory.
pub fn classes() -> Vec<ClassInfo> {
    let info = |maker: Arc<Maker>| ClassInfo {
        class: maker.class.clone(),
        factory: maker.name.clone(),
        implementation: maker.serving(),
        instances: maker.instances.load(Ordering::Relaxed),
    };
    makers().into_iter().map(info).collect()
}

fn makers() -> Vec<Arc<Maker>> {
    let makers = MAKERS.lock().unwrap_or_else(PoisonError::into_inner);
    makers.iter().filter_map(Weak::upgrade).collect()
}

/// The factories of a class; none if there is no such class.
pub(crate) fn makers_of(class: &str) -> Vec<Arc<Maker>> {
    makers().into_iter().filter(|maker| maker.class == class).collect()
}

/// The objects that these factories have made, in the order of their ids.
pub(crate) fn made_by(makers: &[Arc<Maker>]) -> Vec<Arc<Slot>> {
    let mine = |slot: &Arc<Slot>| {
        let origin = slot.origin.as_ref();
        origin.is_some_and(|origin| makers.iter().any(|maker| Arc::ptr_eq(maker, &origin.maker)))
    };
    let mut slots: Vec<_> = registry::all().into_iter().filter(mine).collect();
    slots.sort_by_key(|slot| slot.id);
    slots
}

/// The right to upgrade any class: upgrades queue.
pub(crate) static UPGRADING: Ticket = Ticket::new();
