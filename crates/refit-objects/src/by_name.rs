//! Swaps of an object by the names of its implementations, its own and loaded ones.

use std::sync::Arc;

use crate::attached::AnyRoot;
use crate::clustering::Clustering;
use crate::id::ObjectId;
use crate::interface::{Implementations, Interface};
use crate::plugin::ledger;
use crate::slot::Swapper;
use crate::successor::Successor;

/// Swaps objects of one interface by name.
pub(crate) struct ByName<I: Interface>(Arc<dyn Implementations<I>>);

impl<I: Interface> ByName<I> {
    pub(crate) fn new(implementations: Arc<dyn Implementations<I>>) -> Self {
        ByName(implementations)
    }
}

impl<I: Interface> Swapper for ByName<I> {
    fn names(&self) -> Vec<&'static str> {
        let mut names = self.0.names();
        names.extend(ledger::names::<I>());
        names
    }

    fn own(&self, name: &str) -> bool {
        self.0.names().contains(&name)
    }

    fn cannot(&self, to: &str) -> Option<String> {
        let names = self.names();
        let known = names.join(", ");
        let why = || format!("there is no implementation {to:?}; there are: {known}");
        (!names.contains(&to)).then(why)
    }

    fn successor(
        &self,
        id: ObjectId,
        old: &Arc<dyn AnyRoot>,
        to: &str,
        clustering: Clustering,
    ) -> Result<Successor, String> {
        let unknown = || self.cannot(to).unwrap_or_else(|| format!("{to:?} could not be created"));
        let root = ledger::make(&*self.0, to)?.ok_or_else(unknown)?;
        Successor::new(id, old, root, clustering).ok_or_else(|| "its interface differs".into())
    }
}
