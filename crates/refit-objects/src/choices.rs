//! The simplest way to create an object: each implementation is a single value, which all
//! processors share.
//!
//! An implementation that needs a rep for each processor, or protocols of its own, implements
//! [`Root`] itself.

use std::sync::Arc;

use crate::class::CreateError;
use crate::interface::{Implementations, Interface, Root, TransferError};
use crate::name::Name;
use crate::object::create;
use crate::rep::OwnedRep;

/// A value whose state can be transferred as an `S`.
pub trait State<S>: Send + Sync + 'static {
    /// See [`Root::transfers_promptly`].
    const PROMPT: bool = false;
    /// See [`Root::export`].
    fn export(&self) -> Result<S, TransferError>;
    /// See [`Root::import`].
    fn import(&self, state: S) -> Result<(), TransferError>;
}

/// The implementations of an interface between which an object can be swapped.
pub struct Choices<I> {
    all: Vec<(&'static str, Make<I>)>,
}

type Make<I> = Box<dyn Fn() -> Box<dyn Root<I>> + Send + Sync>;

impl<I: Interface> Choices<I> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Choices { all: Vec::new() }
    }

    /// Adds an implementation under a name. `rep` is the `rep` of the interface, `make` creates a
    /// value without state.
    pub fn with<T: State<I::State>>(
        mut self,
        name: &'static str,
        rep: fn(Arc<T>) -> OwnedRep<I>,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        let make = move || Box::new(Single { name, rep, value: Arc::new(make()) }) as _;
        self.all.push((name, Box::new(make)));
        self
    }

    /// Creates an object that begins with the implementation of this name.
    ///
    /// # Errors
    /// There is no such implementation.
    pub fn create(self, name: impl Into<Name>, first: &str) -> Result<I::Ref, CreateError> {
        let root = self.root(first).ok_or_else(|| CreateError::UnknownImplementation {
            class: I::info().name.to_owned(),
            asked: first.to_owned(),
            known: self.names().join(", "),
        })?;
        Ok(create(name, root, Arc::new(self)))
    }
}

impl<I: Interface> Default for Choices<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Interface> std::fmt::Debug for Choices<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Choices").field(&self.names()).finish()
    }
}

impl<I: Interface> Implementations<I> for Choices<I> {
    fn names(&self) -> Vec<&'static str> {
        self.all.iter().map(|(name, _)| *name).collect()
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<I>>> {
        self.all.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
    }
}

/// The root of a single value.
struct Single<I, T> {
    name: &'static str,
    rep: fn(Arc<T>) -> OwnedRep<I>,
    value: Arc<T>,
}

impl<I: Interface, T: State<I::State>> Root<I> for Single<I, T> {
    fn implementation(&self) -> &str {
        self.name
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<I> {
        (self.rep)(Arc::clone(&self.value))
    }

    fn export(&self) -> Result<I::State, TransferError> {
        self.value.export()
    }

    fn import(&self, state: I::State) -> Result<(), TransferError> {
        self.value.import(state)
    }

    fn transfers_promptly(&self) -> bool {
        T::PROMPT
    }
}
