//! The host's side: presents a root and reps that live in a plugin as a root and reps of this
//! process.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::abi::{RawSlice, RawVec};
use super::export::{Loadable, from_bytes, to_bytes};
use super::foreign::{Failed, RawImplementation, RawRep, RawRoot, RootCalls, Status, Why, call};
use super::foreign_rep::{ForeignRep, Usage};
use super::leaked::leaked;
use crate::ending::Ending;
use crate::interface::{Root, TransferError};
use crate::rep::OwnedRep;

/// A root that lives in a plugin.
pub(crate) struct ForeignRoot {
    raw: RawRoot,
    usage: Arc<Usage>,
}

// SAFETY: the plugin has created it from a `Box<dyn Root>`, which is Send and Sync.
unsafe impl Send for ForeignRoot {}
// SAFETY: as above.
unsafe impl Sync for ForeignRoot {}

impl ForeignRoot {
    pub(crate) fn make(
        implementation: &RawImplementation,
        usage: &Arc<Usage>,
    ) -> Result<Self, String> {
        let mut out = MaybeUninit::<RawRoot>::uninit();
        // SAFETY: a function of a checked plugin, which writes to the given destination.
        let made = call(|why| unsafe { (implementation.make)(&raw mut out, why) });
        made.map_err(|failed| usage.text(failed))?;
        // SAFETY: written, since it returned.
        let raw = unsafe { out.assume_init() };
        usage.roots.fetch_add(1, Ordering::Relaxed);
        Ok(ForeignRoot { raw, usage: Arc::clone(usage) })
    }

    fn calls(&self) -> &'static RootCalls {
        // SAFETY: a constant of the plugin, which is never unmapped. FORMAT determines its minimum
        // length.
        unsafe { &*self.raw.calls }
    }

    fn ask(&self, run: impl FnOnce(*const c_void, Why) -> Status) -> Result<(), Failed> {
        call(|why| run(self.raw.root, why))
    }

    fn transfer(&self, failed: Failed) -> TransferError {
        TransferError(self.usage.text(failed))
    }

    fn foreign_rep(&self, processor: usize) -> Result<ForeignRep, Failed> {
        let mut out = MaybeUninit::<RawRep>::uninit();
        // SAFETY: the root is alive; the function writes to the given destination, here and below.
        self.ask(|root, why| unsafe {
            (self.calls().make_rep)(root, processor, &raw mut out, why)
        })?;
        // SAFETY: written, since it returned.
        Ok(ForeignRep { raw: unsafe { out.assume_init() }, usage: Arc::clone(&self.usage) })
    }
}

impl Drop for ForeignRoot {
    fn drop(&mut self) {
        // SAFETY: created by the plugin, dropped once.
        if let Err(failed) = call(|why| unsafe { (self.calls().drop)(self.raw.root, why) }) {
            let _ = self.usage.text(failed);
        }
        self.usage.roots.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<I: Loadable> Root<I> for ForeignRoot {
    fn implementation(&self) -> &str {
        self.usage.precise
    }

    fn cluster(&self, processor: usize) -> usize {
        let mut cluster = 0;
        // SAFETY: as in `foreign_rep`.
        let answer = self.ask(|root, why| unsafe {
            (self.calls().cluster)(root, processor, &raw mut cluster, why)
        });
        match answer {
            Ok(()) => cluster,
            Err(failed) => self.usage.repeat(failed),
        }
    }

    fn make_rep(&self, processor: usize) -> OwnedRep<I> {
        match self.foreign_rep(processor) {
            Ok(rep) => I::adopt(rep),
            Err(failed) => self.usage.repeat(failed),
        }
    }

    fn export(&self) -> Result<I::State, TransferError> {
        let mut state = RawVec::empty();
        // SAFETY: as in `foreign_rep`.
        self.ask(|root, why| unsafe { (self.calls().export)(root, &raw mut state, why) })
            .map_err(|failed| self.transfer(failed))?;
        // SAFETY: created by the plugin, since it returned.
        from_bytes(&unsafe { state.take() }).map_err(TransferError)
    }

    fn import(&self, state: I::State) -> Result<(), TransferError> {
        let bytes = to_bytes(&state).map_err(TransferError)?;
        // SAFETY: as in `foreign_rep`; the bytes live until it returns.
        self.ask(|root, why| unsafe { (self.calls().import)(root, RawSlice::of(&bytes), why) })
            .map_err(|failed| self.transfer(failed))?;
        // If no rep can be created, that must be detected while the change can still be rolled
        // back.
        self.foreign_rep(0).map(drop).map_err(|failed| self.transfer(failed))
    }

    fn relinquish(&self, ending: Ending<'_>) {
        let rolled_back = matches!(ending, Ending::RolledBack(_));
        let relinquish = self.calls().relinquish;
        // SAFETY: as in `foreign_rep`.
        if let Err(failed) = self.ask(|root, why| unsafe { relinquish(root, rolled_back, why) }) {
            self.usage.repeat(failed);
        }
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut bytes = RawVec::empty();
        // SAFETY: as in `foreign_rep`.
        if self.ask(|root, why| unsafe { (self.calls().stats)(root, &raw mut bytes, why) }).is_err()
        {
            return Vec::new();
        }
        // SAFETY: created by the plugin, since it returned.
        let stats: Vec<(String, u64)> = from_bytes(&unsafe { bytes.take() }).unwrap_or_default();
        stats.into_iter().map(|(what, n)| (leaked(&what), n)).collect()
    }
}
