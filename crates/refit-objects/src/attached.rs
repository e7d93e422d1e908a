//! The roots that an object can have, with the reps that they have created.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::clustering::Clustering;
use crate::id::ObjectId;
use crate::interface::{Import, Interface, Root};
use crate::rep::{OwnedRep, RepHeader};
use crate::sync::{Mutex, lock};

/// A source of reps for processors: an implementation's root with its reps, or the mediator.
pub(crate) trait AnyRoot: Send + Sync {
    /// Returns the rep for a processor, and creates it if necessary. It lives as long as `self`.
    fn rep(&self, processor: usize) -> *const RepHeader;
    /// Returns the name of the implementation.
    fn implementation(&self) -> String;
    /// Returns the number of reps that have been created.
    fn reps(&self) -> usize;
    /// Returns the grouping of processors.
    fn clustering(&self) -> Clustering;
    /// Returns the counters of the implementation.
    fn stats(&self) -> Vec<(&'static str, u64)>;
    /// See [`Root::imports`].
    fn imports(&self) -> Vec<Import>;
    /// Converts to `Any`, to recover the type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// An implementation's root and the reps it has created.
pub(crate) struct Attached<I: Interface> {
    pub(crate) root: Box<dyn Root<I>>,
    clustering: Clustering,
    id: ObjectId,
    /// The thread in which a transfer from this root runs; 0 if there is none.
    pub(crate) unreturned: AtomicUsize,
    /// `(cluster number, rep)`.
    reps: Mutex<Vec<(usize, OwnedRep<I>)>>,
}

impl<I: Interface> Attached<I> {
    pub(crate) fn new(root: Box<dyn Root<I>>, id: ObjectId) -> Self {
        Self::clustered(root, id, Clustering::AsMade)
    }

    pub(crate) fn clustered(root: Box<dyn Root<I>>, id: ObjectId, clustering: Clustering) -> Self {
        let (unreturned, reps) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        Attached { root, clustering, id, unreturned, reps }
    }
}

impl<I: Interface> AnyRoot for Attached<I> {
    fn rep(&self, processor: usize) -> *const RepHeader {
        let cluster = self.clustering.of(processor, || self.root.cluster(processor));
        let mut reps = lock(&self.reps);
        if let Some((_, rep)) = reps.iter().find(|(c, _)| *c == cluster) {
            return rep.as_ptr();
        }
        let mut rep = self.root.make_rep(processor);
        rep.belong_to(self.id.to_bits());
        let header = rep.as_ptr();
        reps.push((cluster, rep));
        header
    }

    fn implementation(&self) -> String {
        self.root.implementation().to_owned()
    }

    fn reps(&self) -> usize {
        lock(&self.reps).len()
    }

    fn clustering(&self) -> Clustering {
        self.clustering.clone()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.root.stats()
    }

    fn imports(&self) -> Vec<Import> {
        self.root.imports()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
