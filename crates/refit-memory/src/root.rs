//! The root of a file cache: the part that all implementations share, whatever their number of
//! locks.

use std::sync::Arc;

use refit_objects::transfer::{Exported, Progress, Protocol, Protocols};
use refit_objects::{Ending, Import, OwnedRep, Root, TransferError};

use crate::cell::Cell;
use crate::fcm::{CacheState, CacheStats, FileCacheInterface};
use crate::lazy::{LazyIndex, TransferProgress};
use crate::pages::File;
use crate::whole;

/// The preferred protocol of all caches: nothing moves.
const STRIPES: Protocol = FileCacheInterface::STRIPES.id();

/// The protocol that transfers the stripes as a source, from which the new cache takes its pages
/// one by one while it is used. For tables that should be rebuilt, for example because the old ones
/// are fragmented.
const LAZY: Protocol = FileCacheInterface::LAZY.id();

/// The protocol that transfers the canonical state in parts that are divided like the stripes, so
/// that several threads can move them. For tables that should be rebuilt at once.
const PARTITIONS: Protocol = FileCacheInterface::PARTITIONS.id();

/// An implementation of the file cache.
pub(crate) trait Cache: Send + Sync + 'static {
    /// A lock, and the pages under it.
    type Cell: AsRef<Cell>;
    /// The name of the implementation.
    const NAME: &'static str;

    fn file(&self) -> &File;

    /// Returns all locks, in ascending order.
    fn cells(&self) -> &[Self::Cell];

    /// Returns the number of stripes into which the pages of a large file are divided, the same as
    /// in other caches of the file.
    fn stripes(&self) -> usize;

    /// See [`Root::cluster`].
    fn cluster(&self, processor: usize) -> usize {
        let _ = processor;
        0
    }

    fn rep(self: Arc<Self>, processor: usize) -> OwnedRep<FileCacheInterface>;

    /// Returns counters beyond those that all caches have.
    fn own_stats(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The root of an implementation.
pub(crate) struct CacheRoot<C>(pub(crate) Arc<C>);

impl<C: Cache> Root<FileCacheInterface> for CacheRoot<C> {
    fn implementation(&self) -> &str {
        C::NAME
    }

    fn cluster(&self, processor: usize) -> usize {
        self.0.cluster(processor)
    }

    fn make_rep(&self, processor: usize) -> OwnedRep<FileCacheInterface> {
        Arc::clone(&self.0).rep(processor)
    }

    fn export(&self) -> Result<CacheState, TransferError> {
        whole::export(self.0.file(), self.0.cells())
    }

    fn import(&self, state: CacheState) -> Result<(), TransferError> {
        whole::import(self.0.file(), self.0.cells(), state)
    }

    fn protocols(&self) -> Protocols {
        Protocols::new([STRIPES, LAZY, PARTITIONS])
    }

    fn partitions(&self, protocol: Protocol) -> usize {
        if protocol == PARTITIONS { self.0.stripes() } else { 1 }
    }

    fn export_part(&self, protocol: Protocol, part: usize) -> Result<Exported, TransferError> {
        let PARTITIONS = protocol else { return self.export_as(protocol) };
        let state = whole::export_part(self.0.file(), self.0.cells(), part, self.0.stripes())?;
        Ok(FileCacheInterface::PARTITIONS.pack(state))
    }

    fn import_part(
        &self,
        protocol: Protocol,
        part: usize,
        state: Exported,
    ) -> Result<(), TransferError> {
        let PARTITIONS = protocol else { return self.import_as(protocol, state) };
        let state = FileCacheInterface::PARTITIONS.unpack(state)?;
        whole::import_part(self.0.file(), self.0.cells(), (part, self.0.stripes()), state)
    }

    fn export_as(&self, protocol: Protocol) -> Result<Exported, TransferError> {
        match protocol {
            STRIPES => {
                whole::drain(self.0.file(), self.0.cells(), usize::MAX);
                let state = whole::share(self.0.file(), self.0.cells())?;
                Ok(FileCacheInterface::STRIPES.pack(state))
            }
            LAZY => {
                let state = whole::share(self.0.file(), self.0.cells())?;
                Ok(FileCacheInterface::LAZY.pack(state))
            }
            // All of it as one part.
            PARTITIONS => self.export().map(|state| FileCacheInterface::PARTITIONS.pack(state)),
            _ => self.export().map(|state| FileCacheInterface::CANONICAL.pack(state)),
        }
    }

    fn import_as(&self, protocol: Protocol, state: Exported) -> Result<(), TransferError> {
        match protocol {
            STRIPES => {
                let state = FileCacheInterface::STRIPES.unpack(state)?;
                whole::adopt(self.0.file(), self.0.cells(), state, LazyIndex::adopt)
            }
            LAZY => {
                let state = FileCacheInterface::LAZY.unpack(state)?;
                whole::adopt(self.0.file(), self.0.cells(), state, LazyIndex::adopt_beneath)
            }
            PARTITIONS => self.import(FileCacheInterface::PARTITIONS.unpack(state)?),
            _ => self.import(FileCacheInterface::CANONICAL.unpack(state)?),
        }
    }

    fn count(&self) -> Option<u64> {
        Some(whole::resident(self.0.cells()))
    }

    fn drain(&self, most: usize) -> Result<Progress, TransferError> {
        let TransferProgress { left, on_demand, by_drain } =
            whole::drain(self.0.file(), self.0.cells(), most);
        Ok(Progress { open: left > 0, left, on_demand, by_drain })
    }

    fn relinquish(&self, _ending: Ending<'_>) {
        whole::relinquish(self.0.cells());
    }

    fn transfers_promptly(&self) -> bool {
        true
    }

    fn imports(&self) -> Vec<Import> {
        self.0.file().parts.imports()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let stats = whole::stats(self.0.file(), self.0.cells());
        let CacheStats { size, resident, dirty, calls, faults } = stats;
        let named = [("size", size), ("resident", resident), ("dirty", dirty)];
        let counted = [("calls", calls), ("faults", faults)];
        // Usually zero: most transfers are not lazy, and those that are end soon.
        let left = whole::drain(self.0.file(), self.0.cells(), 0).left;
        let to_move = (left > 0).then_some(("to_move", left));
        named.into_iter().chain(counted).chain(to_move).chain(self.0.own_stats()).collect()
    }
}
